//! Reading a range of an object that is here in part.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use super::run::{Failed, Run};
use super::{AHEAD, Live};
use crate::backend::BodyStream;
use crate::object::cold::object_meta;
use crate::object::{Key, ObjectService};
use crate::store::GRANULE;

/// Most granules read at once.
const STEP: u64 = 1 << 20;
/// Granules that may be fetched before their reader is there.
const WINDOW: u32 = (AHEAD / GRANULE) as u32;
/// Reads that may find damage before the rest comes straight from the backend.
const TRIES: u32 = 4;

/// An object that is here in part, to be read now.
pub(crate) struct Parts {
    service: ObjectService,
    info: BucketInfo,
    key: Key,
    live: Arc<Live>,
    pub(crate) meta: ObjectMeta,
    pub(crate) result: &'static str,
}

impl Parts {
    pub(super) fn new(
        service: ObjectService,
        info: BucketInfo,
        key: Key,
        live: Arc<Live>,
        met: bool,
    ) -> Self {
        let meta = object_meta(&live.remote_meta(), false);
        Self { service, info, key, live, meta, result: if met { "miss" } else { "hit" } }
    }

    /// Starts what must be fetched for `range` and waits for the backend's word that it still has
    /// this version.
    pub(super) async fn begin(&mut self, range: ByteRange, last_try: bool) -> Result<()> {
        let live = &self.live;
        live.partial.touch(unix_ns());
        let ahead = live.note_reader(range);
        let all = live.partial.head().granules();
        let (first, end) = (first_of(range), end_of(range));
        let far = end_of(ByteRange { end: range.end.saturating_add(ahead), ..range });
        let (far, near) = (far.min(first.saturating_add(WINDOW)).min(all), end.min(first + WINDOW));
        // What is ahead already is topped up when half of it is used: large requests, not many.
        let covered = live.covered(first, far.max(near));
        let enough = near.max(near + far.saturating_sub(near) / 2);
        if covered < enough {
            let started = self.fetch(first..far.max(near));
            if !started.is_empty() {
                self.result = "miss";
            }
            // Not looked up below: one that failed is off the list at once.
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
        // Somebody else's fetch may have met another version.
        if live.partial.is_over() && !last_try {
            return Err(Error::new(ErrorCode::ObjectChanged, "dropped meanwhile"));
        }
        Ok(())
    }

    fn fetch(&self, granules: std::ops::Range<u32>) -> Vec<Arc<Run>> {
        self.service.fetch_missing(&self.info, &self.key, &self.live, granules)
    }

    /// The bytes of `range`, checked, in pieces of at most a MiB.
    pub(crate) fn stream(self, range: ByteRange) -> BoxStream<'static, Result<Bytes>> {
        let reading = Reading {
            parts: self,
            at: range.start,
            end: range.end,
            fetched: first_of(range),
            passing: None,
            tries: 0,
        };
        reading.into_stream().boxed()
    }
}

async fn answer(run: &Run) -> Result<()> {
    match run.answered().await {
        // Where it cannot be kept, the stream finds another way.
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
    /// Granules before this one were looked at.
    fetched: u32,
    /// Straight from the backend, as nothing can be kept.
    passing: Option<BodyStream>,
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
            if let Some(stream) = &mut self.passing {
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
                // It came between the two looks.
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

    /// Keeps fetches under way before the reader, up to the end of his range.
    fn keep_going(&mut self) {
        let granule = (self.at / GRANULE) as u32;
        let end = end_of(ByteRange { start: self.at, end: self.end });
        let goal = end.min(granule.saturating_add(WINDOW));
        if self.fetched < goal && self.fetched.saturating_sub(granule) < WINDOW / 2 {
            self.parts.fetch(self.fetched.max(granule)..goal);
            self.fetched = goal;
        }
    }

    /// Reads what is here from `at` on. `None`: it was damaged, and is fetched again.
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
        self.passing = Some(service.get_version(info, key, live, rest).await?.stream);
        Ok(())
    }
}

/// Bytes of the old object went out already: the reader has to come again.
fn broken_off(error: Error) -> Error {
    match error.code {
        ErrorCode::ObjectChanged => Error::unavailable(error.message).retry_after(1),
        _ => error,
    }
}
