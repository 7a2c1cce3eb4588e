//! Sorting shards: the input that a plan needs, and the start of the job.

use std::time::{Duration, Instant};

use forebay_archive::ShardIndexReply;
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::dsort::{Added, Algorithm, ContentType, DsortSpec, InputFormat, Inputs, Records};
use forebay_core::job::JobState;
use forebay_core::shard::Stat;
use forebay_core::{Error as CoreError, ErrorCode, ObjectName};
use forebay_v1::dsort::PATH;
use futures::StreamExt;
use http::Method;
use rand::RngExt;
use rand::distr::Alphanumeric;

use crate::client::{Client, ControlCall};
use crate::error::{Error, Result};

/// Default number of input shards that are indexed in parallel.
const PARALLEL: usize = 16;
/// How long the start waits for the plan, so that an impossible job is refused at the start.
const PLANNED_WITHIN: Duration = Duration::from_secs(8);
/// Keys that are read in parallel.
const KEYS: usize = 4096;

/// The records and properties gathered from the input of a job.
pub struct Gathered {
    /// Names, sizes, times and modes of all members, and the keys of an order by content.
    pub records: Records,
    /// Properties of the input shards.
    pub inputs: Inputs,
    /// Problems whose configured reaction is a warning.
    pub warnings: Vec<String>,
}

/// An input shard that was indexed.
pub struct LookedInto<'a> {
    /// Its name.
    pub shard: &'a str,
    /// The records that it added.
    pub added: Added,
    /// How long that took.
    pub took: Duration,
}

impl Client {
    /// Starts a job that sorts shards and returns its id; `spec` is JSON as AIStore's clients write
    /// it. Errors that are found early (no shards, too few names, a shard that exists already) are
    /// returned here, with nothing written; a large input is still being indexed when this returns.
    pub async fn start_dsort(&self, spec: Vec<u8>) -> Result<String> {
        // The same id on every try: an answer that is lost starts no second job.
        let id: String = rand::rng().sample_iter(Alphanumeric).take(12).map(char::from).collect();
        let path = format!("{PATH}?id=srt-{id}");
        let call = ControlCall {
            method: Method::POST,
            path: &path,
            body: Some(spec),
            accept: None,
            node: None,
        };
        let answer = self.ask_gateway(call).await?;
        let id = String::from_utf8_lossy(&answer.body).trim().to_owned();
        let (started, mut pause) = (Instant::now(), Duration::from_millis(10));
        loop {
            let job = self.job(&id).await?;
            let planned = job.dsort.as_ref().is_some_and(|r| r.sorting.is_finished());
            match job.failure {
                Some(e) if !planned => return Err(Error::Api(e)),
                _ if planned || job.state != JobState::Running => return Ok(id),
                _ if started.elapsed() >= PLANNED_WITHIN => return Ok(id),
                _ => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(200));
        }
    }

    /// The names of a job's input shards, in order.
    pub async fn dsort_inputs(&self, spec: &DsortSpec) -> Result<Vec<String>> {
        if let InputFormat::Prefix(prefix) = &spec.input {
            let mut names = Vec::new();
            let mut add = |name: &str, _| {
                if spec.is_input(name) {
                    names.push(name.to_owned());
                }
                Ok(())
            };
            self.list_each(&spec.source, prefix, &mut add).await?;
            return Ok(names);
        }
        // Where it is not said, shards are what they are for AIStore.
        let ext = if spec.input_ext.is_empty() { ".tar" } else { &spec.input_ext };
        Ok(spec.input.names(ext)?.unwrap_or_default())
    }

    /// Reads the indexes of the input shards and, for an order by content, the keys; no other data
    /// is read. `memory` is the memory of this machine.
    pub async fn gather_records(
        &self,
        spec: &DsortSpec,
        names: &[String],
        memory: u64,
        mut looked: impl FnMut(LookedInto<'_>) + Send,
    ) -> Result<Gathered> {
        let parallel = match spec.extract_limit {
            0 => PARALLEL,
            limit => limit as usize,
        };
        let mut all = Gathered {
            records: Records::default(),
            inputs: Inputs::default(),
            warnings: Vec::new(),
        };
        // In order, so that the plan does not depend on timing.
        let mut indexes = futures::stream::iter(0..names.len())
            .map(|at| async move {
                let started = Instant::now();
                (at, self.input_index(spec, &names[at]).await, started.elapsed())
            })
            .buffered(parallel);
        while let Some((at, index, took)) = indexes.next().await {
            let name = &names[at];
            let Some(index) = index? else {
                all.inputs.missing += 1;
                let missing = || {
                    let text = format!("{} does not exist", spec.source.object_uri(name));
                    CoreError::new(ErrorCode::ObjectNotFound, text)
                };
                spec.on.missing_shards.to(&mut all.warnings, missing)?;
                continue;
            };
            // A target of an earlier version sends no stats.
            let stats = index.stats.into_iter().chain(std::iter::repeat(Stat::default()));
            let members = index.members.into_iter().zip(stats);
            let members: Vec<_> =
                members.map(|((name, _, size), stat)| (name, size, stat)).collect();
            let duplicated = spec.on.duplicated_records;
            let added = all.records.add_shard(name, &members, duplicated, &mut all.warnings)?;
            all.inputs.duplicates += added.duplicates;
            if index.format.is_compressed_tar() {
                all.inputs.packed_bytes += index.size;
                all.inputs.unpacked_bytes += added.bytes;
            }
            all.records.check_memory(spec, memory)?;
            looked(LookedInto { shard: name, added, took });
        }
        if let Algorithm::Content { ext, kind } = &spec.algorithm {
            self.read_keys(spec, ext, *kind, &mut all.records, memory).await?;
        }
        Ok(all)
    }

    /// `None` when there is no such shard.
    async fn input_index(&self, spec: &DsortSpec, name: &str) -> Result<Option<ShardIndexReply>> {
        match self.shard_stats(&spec.source, &ObjectName::new(name)?).await {
            Err(e) if e.code() == ErrorCode::ObjectNotFound => Ok(None),
            other => other.map(Some),
        }
    }

    async fn read_keys(
        &self,
        spec: &DsortSpec,
        ext: &str,
        kind: ContentType,
        records: &mut Records,
        memory: u64,
    ) -> Result<()> {
        records.check_keys(ext)?;
        let count = records.len();
        for first in (0..count).step_by(KEYS) {
            let mut entries = Vec::with_capacity(KEYS);
            for record in first as u32..(first + KEYS).min(count) as u32 {
                let whole = BatchEntry::whole(0, ObjectName::new(records.shard(record))?);
                let key = records.key_member(record, ext);
                let archpath = key.map_or("", |(name, _)| name).to_owned();
                entries.push(BatchEntry { archpath, ..whole });
            }
            let buckets = vec![spec.source.clone()];
            let request = BatchRequest { buckets, entries, ordered: true };
            for key in self.batch_all(&request).await? {
                records.push_key(kind, &key.map_err(Error::Api)?)?;
            }
            records.check_memory(spec, memory)?;
        }
        Ok(())
    }
}
