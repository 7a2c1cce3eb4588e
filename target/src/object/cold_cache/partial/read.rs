//! Reads a range of a partial copy.

use std::sync::Arc;

use bytes::Bytes;
use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_store::GRANULE;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use super::run::{Failed, Run};
use super::{AHEAD, Live};
use crate::object::Key;
use crate::object::cold_cache::ColdCache;
use crate::object::cold_cache::object_meta;

/// Maximum of granules per read, in bytes.
const STEP: u64 = 1 << 20;
/// Number of granules that may be fetched ahead of their reader.
const WINDOW: u32 = (AHEAD / GRANULE) as u32;
/// Number of reads that may find damage before the rest is streamed from the backend.
const TRIES: u32 = 4;

/// A partial copy that is ready to be read.
pub(crate) struct Parts {
    service: ColdCache,
    info: BucketInfo,
    key: Key,
    live: Arc<Live>,
    pub(crate) meta: ObjectMeta,
    pub(crate) result: &'static str,
}

impl Parts {
    pub(super) fn new(
        service: ColdCache,
        info: BucketInfo,
        key: Key,
        live: Arc<Live>,
        met: bool,
    ) -> Self {
        let meta = object_meta(&live.remote_meta(), false);
        Self { service, info, key, live, meta, result: if met { "miss" } else { "hit" } }
    }

    /// Starts the fetches for `range` and waits until the backend has confirmed the version.
    pub(super) async fn begin(&mut self, range: ByteRange, last_try: bool) -> Result<()> {
        let live = &self.live;
        live.partial.touch(unix_ns());
        let ahead = live.note_reader(range);
        let all = live.partial.head().granules();
        let (first, end) = (first_of(range), end_of(range));
        let far = end_of(ByteRange { end: range.end.saturating_add(ahead), ..range });
        let (far, near) = (far.min(first.saturating_add(WINDOW)).min(all), end.min(first + WINDOW));
        // The readahead is extended when half of it is used: few large requests instead of many.
        let covered = live.covered(first, far.max(near));
        let enough = near.max(near + far.saturating_sub(near) / 2);
        if covered < enough {
            let started = self.fetch(first..far.max(near));
            if !started.is_empty() {
                self.result = "miss";
            }
            // Waits on these fetches, not on a look-up: a failed one is removed from the list
            // immediately.
            for run in started.iter().filter(|run| run.start() < near) {
                answer(run).await?;
            }
        }
        let mut granule = first;
        while granule < near {
            match live.bringing(granule) {
                Some(run) => {
                    if self.result == "hit" {
                        self.result = "coalesced";
                    }
                    answer(&run).await?;
                    granule = run.end();
                }
                None => granule = live.partial.stretch(granule, near).1.max(granule + 1),
            }
        }
        // Another reader's fetch may have found another version.
        if live.partial.is_over() && !last_try {
            return Err(Error::new(ErrorCode::ObjectChanged, "dropped meanwhile"));
        }
        Ok(())
    }

    fn fetch(&self, granules: std::ops::Range<u32>) -> Vec<Arc<Run>> {
        self.service.fetch_missing(&self.info, &self.key, &self.live, granules)
    }

    /// The verified bytes of `range`, in chunks of at most a MiB.
    pub(crate) fn stream(self, range: ByteRange) -> BoxStream<'static, Result<Bytes>> {
        let reading = Reading {
            parts: self,
            at: range.start,
            end: range.end,
            fetched: first_of(range),
            pass_through: None,
            tries: 0,
        };
        reading.into_stream().boxed()
    }
}

async fn answer(run: &Run) -> Result<()> {
    match run.answered().await {
        // If it cannot be kept, the stream reads from the backend.
        Ok(()) | Err(Failed::Keep(_)) => Ok(()),
        Err(Failed::Fetch(e)) => Err(e),
    }
}

fn first_of(range: ByteRange) -> u32 {
    (range.start / GRANULE) as u32
}

fn end_of(range: ByteRange) -> u32 {
    u32::try_from(range.end.div_ceil(GRANULE)).unwrap_or(u32::MAX)
}

struct Reading {
    parts: Parts,
    at: u64,
    end: u64,
    /// Granules before this one were requested.
    fetched: u32,
    /// The stream from the backend, if nothing can be kept.
    pass_through: Option<BodyStream>,
    tries: u32,
}

impl Reading {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send {
        futures::stream::try_unfold(self, |mut reading| async move {
            let next = reading.next().await.map_err(broken_off)?;
            Ok(next.map(|bytes| (bytes, reading)))
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        while self.at < self.end {
            if let Some(stream) = &mut self.pass_through {
                let chunk = stream.next().await.ok_or_else(|| {
                    Error::unavailable("the backend sent less of an object than it announced")
                })??;
                self.at += chunk.len() as u64;
                return Ok(Some(chunk));
            }
            self.keep_going();
            let live = &self.parts.live;
            let granule = (self.at / GRANULE) as u32;
            if live.partial.has(granule) {
                let bytes = self.read().await?;
                if let Some(bytes) = bytes {
                    self.at += bytes.len() as u64;
                    return Ok(Some(bytes));
                }
                continue;
            }
            match live.bringing(granule) {
                Some(run) => match run.has(granule).await {
                    Ok(()) => {}
                    Err(Failed::Fetch(e)) => return Err(e),
                    Err(Failed::Keep(_)) => self.pass().await?,
                },
                // It arrived between the two checks.
                None if live.partial.has(granule) => {}
                None if self.tries < TRIES && !live.partial.is_over() => {
                    self.tries += 1;
                    self.fetched = granule;
                }
                None => self.pass().await?,
            }
        }
        Ok(None)
    }

    /// Keeps fetches in progress ahead of the reader, up to the end of its range.
    fn keep_going(&mut self) {
        let granule = (self.at / GRANULE) as u32;
        let end = end_of(ByteRange { start: self.at, end: self.end });
        let goal = end.min(granule.saturating_add(WINDOW));
        if self.fetched < goal && self.fetched.saturating_sub(granule) < WINDOW / 2 {
            self.parts.fetch(self.fetched.max(granule)..goal);
            self.fetched = goal;
        }
    }

    /// Reads available bytes from `at` on. `None`: they were damaged, and are fetched again.
    async fn read(&mut self) -> Result<Option<Bytes>> {
        let partial = &self.parts.live.partial;
        let granule = (self.at / GRANULE) as u32;
        let most = (u64::from(granule) * GRANULE + STEP).min(self.end);
        let (_, here) = partial.stretch(granule, end_of(ByteRange { start: self.at, end: most }));
        let end = (u64::from(here) * GRANULE).min(most);
        match partial.read(ByteRange { start: self.at, end }).await {
            Ok(bytes) => {
                self.tries = 0;
                Ok(Some(bytes))
            }
            Err(e) if matches!(e.code, ErrorCode::Corrupt | ErrorCode::ObjectNotFound) => {
                self.tries += 1;
                if self.tries >= TRIES {
                    self.pass().await?;
                }
                self.fetched = granule;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    async fn pass(&mut self) -> Result<()> {
        let Parts { service, info, key, live, .. } = &self.parts;
        let rest = ByteRange { start: self.at, end: self.end };
        self.pass_through = Some(service.get_version(info, key, live, rest).await?.stream);
        Ok(())
    }
}

/// Bytes of the old version were sent already: the reader has to start again.
fn broken_off(error: Error) -> Error {
    match error.code {
        ErrorCode::ObjectChanged => Error::unavailable(error.message).retry_after(1),
        _ => error,
    }
}
