//! The caller's side of Forebay: used by the command line, the Python SDK and the nodes themselves.
//!
//! A [`Client`] is given the address of any gateway. It fetches the cluster's map, computes the
//! owner of an object, and sends requests directly to that target. It retries transient failures
//! until the deadline, and ends in one [`Error`] that names the cluster. Nodes use a [`PeerClient`]
//! among themselves: one signed attempt per call, since nodes decide about retries on their own.
//!
//! ```no_run
//! # async fn example() -> forebay_client::Result<()> {
//! use forebay_client::{Client, ClientConfig};
//! use forebay_core::{Bucket, Provider};
//!
//! let client = Client::new(ClientConfig::new("http://127.0.0.1:7400"))?;
//! let images = Bucket::new(Provider::Ais, "images")?;
//! client.create_bucket(&images, None).await?;
//! client.put(&images, "cat/1.jpg", "meow", None).await?;
//! assert_eq!(client.get_bytes(&images, "cat/1.jpg", None).await?, "meow");
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod accounts;
mod admin;
mod batch;
mod body;
mod buckets;
mod caller_driven;
mod client;
mod contact;
mod direct;
mod download;
mod dsort;
mod each;
mod error;
mod feeds;
mod hedging;
mod listing;
mod live;
mod local_server;
mod map;
mod objects;
mod pace;
mod peer;
mod planning;
mod prefetch_plan;
mod ranges;
mod retry;
mod rows;
#[cfg(test)]
mod scripted_server;
mod shards;
mod span_parent;
mod timeouts;
mod timing;
pub mod tls;
mod token;
mod traces;
mod transport;
mod upload;

pub use batch::{BatchItem, BatchStream};
pub use body::{Body, ByteStream, OpenStream};
pub use client::{Client, ClientConfig, DEFAULT_ENDPOINT};
pub use contact::Contact;
pub use download::{GetReply, ObjectStream};
pub use dsort::{Gathered, LookedInto};
pub use each::{Pin, PinnedEntry};
pub use error::{Error, Result};
pub use http::Method;
pub use live::{LiveRequests, Seen};
pub use local_server::LocalServer;
pub use peer::PeerClient;
pub use prefetch_plan::PrefetchPlan;
pub use ranges::{Ranges, no_memory};
pub use rows::RowStream;
pub use shards::{
    Naming, Sample, SampleLayout, ShardItem, ShardOptions, ShardStream, sample_layout,
};
pub use span_parent::{SpanParent, start_within_span, within_span};
pub use timing::{Recorder, WaitSplit};
pub use token::{TokenSource, login_file};
pub use upload::Upload;
