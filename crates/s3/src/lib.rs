//! S3 as data: requests, answers, errors, signatures. Nothing here stores or sends anything.
//!
//! A front has a request's unmodified method, path, query and headers ([`RequestHead`]). It
//! authenticates the sender ([`auth`]), determines the operation ([`Request::parse`]), parses
//! further headers ([`put_headers`], [`read_headers`]) and bodies ([`bodies`], [`chunked`],
//! [`form`]), checks bytes as they pass ([`body_check`]), and writes an answer ([`answers`]) or an
//! [`S3Error`].

pub mod access;
pub mod acl;
pub mod answers;
pub mod auth;
pub mod bodies;
pub mod body_check;
pub mod bucket_policy;
pub mod checksum;
pub mod chunked;
pub mod condition;
pub mod copy_source;
pub mod cors;
pub mod encode;
mod error;
mod error_code;
pub mod etag;
pub mod form;
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
pub use request::{Front, MAX_PART_NUMBER, Request, RequestHead, is_url_encoded};
pub use xml::{Element, XmlWriter};
