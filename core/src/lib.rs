//! The domain logic of Forebay: names, placement, the cluster's state, plans, messages between
//! nodes and errors. Nothing here opens a socket or a file, reads a clock or spawns a task; time is an
//! argument, so that everything can be tested deterministically.
//!
//! Where to look: names of buckets in [`name`] and their properties in [`bucket`]; the owner of an
//! object in [`placement`]; a target's rights to it in [`native`]; the state that the gateways agree
//! on in [`state`]; messages between nodes in [`intra`]; formats and members of shards in [`shard`].
//!
//! The types in the state, in the log of commands, on disks and in messages between nodes are
//! defined here, and nothing here knows a protocol of clients. The crates `forebay-v1` and
//! `forebay-s3` convert: `forebay_s3::bodies` parses XML to [`bucket::CorsRule`], for example.

pub mod access;
pub mod audit;
pub mod backend_access;
pub mod batch;
pub mod batch_stream;
pub mod bill;
pub mod boundary;
pub mod bucket;
pub mod bucket_access;
pub mod buffers;
pub mod cache_rules;
pub mod certificate;
pub mod checksum;
pub mod clock_offset;
pub mod cloud_name;
pub mod cloud_rules;
pub mod config;
pub mod copies;
pub mod date;
pub mod download;
pub mod dsort;
pub mod egress;
pub mod erasure;
pub mod error;
pub mod etl;
pub mod feed;
pub mod history;
pub mod intra;
pub mod inventory;
pub mod ishard;
pub mod job;
pub mod lease;
pub mod list_columns;
pub mod list_page;
pub mod locks;
pub mod membership;
pub mod name;
pub mod native;
mod node_id;
pub mod object;
pub mod object_page;
pub mod origin;
pub mod overview;
pub mod placement;
pub mod program_version;
pub mod promote;
pub mod quota;
pub mod rate;
pub mod rebalance;
pub mod replication;
pub mod request;
pub mod settings;
pub mod shard;
pub mod shard_build;
pub mod shard_names;
mod shown_url;
pub mod sign;
pub mod size;
pub mod state;
pub mod stopping;
pub mod template;
pub mod timing;
pub mod trace;
pub mod traffic;
pub mod upload;
pub mod url;
pub mod warmth;

pub use error::{Error, ErrorCode, Result};
pub use name::{Bucket, NodeId, ObjectName, Provider};
pub use shown_url::shown_url;
