//! The domain logic of Forebay: names, placement, the cluster's state, plans, wire types and
//! errors. Nothing here opens a socket or a file, reads a clock or spawns a task; time is an
//! argument, so that everything can be tested deterministically.
//!
//! Where to look: names and buckets in [`name`]; the owner of an object in [`placement`]; a
//! target's rights to it in [`native`]; the state that the gateways agree on in [`state`]; the
//! AIStore v1 protocol in [`v1`]; S3 in [`s3`]; messages between nodes in [`intra`].

pub mod access;
pub mod archive;
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
pub mod origin;
pub mod placement;
pub mod promote;
pub mod rebalance;
pub mod replication;
pub mod request;
pub mod routes;
pub mod s3;
pub mod settings;
pub mod shard_build;
pub mod shard_names;
mod shown_url;
pub mod sign;
pub mod size;
pub mod state;
pub mod template;
pub mod upload;
pub mod url;
pub mod v1;

pub use error::{Error, ErrorCode, Result};
pub use name::{Bucket, NodeId, ObjectName, Provider};
pub use shown_url::shown_url;
