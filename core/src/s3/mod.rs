//! S3 as data: requests, answers, errors. Nothing here stores or sends anything.
//!
//! A front has a request's method, path, query and headers as they came ([`RequestHead`]). It asks
//! what it is ([`Request::parse`]), reads further headers ([`put_headers`], [`read_headers`]) and
//! bodies ([`bodies`]), and writes an answer ([`answers`]) or an [`S3Error`].

pub mod answers;
pub mod bodies;
pub mod checksum;
pub mod condition;
pub mod copy_source;
pub mod date;
pub mod encode;
mod error;
mod error_code;
pub mod etag;
pub mod listing;
pub mod names;
pub mod operation;
pub mod put_headers;
pub mod query;
pub mod range;
pub mod read_headers;
mod request;
pub mod subresources;
pub mod token;
pub mod xml;

pub use error::{S3Error, S3Result};
pub use error_code::S3Code;
pub use operation::Operation;
pub use request::{Front, MAX_PART_NUMBER, Request, RequestHead};
pub use xml::{Element, XmlWriter};
