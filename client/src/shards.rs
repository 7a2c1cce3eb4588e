//! Shards: the members of a shard, the bytes of one member, and all samples as a stream.
//!
//! A stream has a task that fetches and a thread that unpacks ([`reader`]). Both run ahead of the
//! reader by a bounded number of bytes ([`pipe`]) and end when the stream is dropped.

use std::vec;

use forebay_archive::{SHARD_STATS, ShardIndexReply};
use forebay_core::size::RangeSpec;
use forebay_core::url::encode_query;
use forebay_core::{Bucket, Error as CoreError, ErrorCode, ObjectName};
use http::{HeaderMap, Method};
use tokio::task::AbortHandle;

use crate::client::{Client, ObjectCall, Route, parse};
use crate::download::GetReply;
use crate::download::is_long;
use crate::error::{Error, Result};
use crate::span_parent;
use crate::timing;

mod naming;
mod pipe;
mod reader;
mod samples;

pub use naming::Naming;
pub use reader::{ShardItem, ShardOptions};
pub use samples::{Sample, SampleLayout, sample_layout};

impl Client {
    /// Returns the members of a shard with their offsets and sizes; the owner builds the index if
    /// it has none yet.
    pub async fn shard_index(&self, bucket: &Bucket, name: &ObjectName) -> Result<ShardIndexReply> {
        self.index_of(bucket, name, "").await
    }

    /// Like [`Self::shard_index`], with times and modes.
    pub(crate) async fn shard_stats(
        &self,
        bucket: &Bucket,
        name: &ObjectName,
    ) -> Result<ShardIndexReply> {
        self.index_of(bucket, name, &format!("&{SHARD_STATS}=true")).await
    }

    async fn index_of(
        &self,
        bucket: &Bucket,
        name: &ObjectName,
        query: &str,
    ) -> Result<ShardIndexReply> {
        let call = ObjectCall {
            method: Method::GET,
            bucket,
            name: name.as_str(),
            route: Route::ShardIndex,
            caller_driven: false,
            query,
            headers: HeaderMap::new(),
            body: None,
        };
        let mut tries = self.attempts();
        loop {
            let (answer, _) = self.ask_owner(&call, &mut tries).await?;
            match answer.into_body().collect().await {
                Ok(body) => return parse(&body),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    /// Starts reading one member of a shard, or a range of it.
    ///
    /// `mime` gives the format of the shard if its name does not. A broken connection is resumed,
    /// as by [`Client::get`].
    pub async fn get_member(
        &self,
        bucket: &Bucket,
        name: &str,
        archpath: &str,
        mime: Option<&str>,
        range: Option<RangeSpec>,
    ) -> Result<GetReply> {
        if archpath.is_empty() {
            let e = CoreError::new(ErrorCode::InvalidName, "the name of a member is empty");
            return Err(Error::Api(e));
        }
        let mut query = format!("&archpath={}", encode_query(archpath));
        if let Some(mime) = mime {
            query = format!("{query}&archmime={}", encode_query(mime));
        }
        self.get_part(bucket, name, (query, is_long(range)), range).await
    }

    /// Starts reading a shard; failures are returned as the first item. Call it within a runtime.
    ///
    /// The bytes come by one GET, which is resumed if the connection breaks; a zip archive, whose
    /// table of contents is at its end, is read by its index.
    pub fn read_shard(
        &self,
        bucket: &Bucket,
        name: &ObjectName,
        options: ShardOptions,
    ) -> ShardStream {
        let (sender, runs) = pipe::channel(options.read_ahead / 2);
        let (client, bucket, name) = (self.clone(), bucket.clone(), name.clone());
        let job = reader::Job { client, bucket, name, options };
        let reading = span_parent::carried(reader::run(job, sender));
        let task = tokio::spawn(timing::carried(reading)).abort_handle();
        ShardStream { runs, run: Vec::new().into_iter(), task }
    }
}

/// A shard being read.
pub struct ShardStream {
    runs: pipe::Receiver<reader::Run>,
    /// Items of the current run that were not returned yet.
    run: vec::IntoIter<ShardItem>,
    task: AbortHandle,
}

impl ShardStream {
    /// The next item; `None` at the end.
    pub async fn next(&mut self) -> Option<ShardItem> {
        loop {
            match self.run.next() {
                Some(item) => return Some(item),
                None => self.run = self.runs.next().await?.into_iter(),
            }
        }
    }

    /// Returns the next item if it has arrived already: `Some(None)` is the end.
    pub fn try_next(&mut self) -> Option<Option<ShardItem>> {
        loop {
            match self.run.next() {
                Some(item) => return Some(Some(item)),
                None => match self.runs.try_next()? {
                    Some(run) => self.run = run.into_iter(),
                    None => return Some(None),
                },
            }
        }
    }
}

impl Drop for ShardStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for ShardStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShardStream")
    }
}

#[cfg(test)]
mod tests;
