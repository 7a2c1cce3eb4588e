//! Fetches of adjacent granules: one request to the backend each, and at most one fetch of each
//! granule at a time.

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use forebay_clouds::RemoteObject;
use forebay_core::bucket::BucketInfo;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::GRANULE;
use futures::StreamExt;
use tokio::sync::watch;

use super::Live;
use crate::object::Key;
use crate::object::cold_cache::ColdCache;

/// Maximum number of granules per request to the backend.
const LONGEST: u32 = (16 << 20 >> GRANULE.trailing_zeros()) as u32;

/// A fetch of granules.
pub(super) struct Run {
    granules: Range<u32>,
    progress: watch::Receiver<Progress>,
}

#[derive(Clone)]
struct Progress {
    /// The backend has confirmed the version.
    answered: bool,
    /// Granules before this one are stored.
    upto: u32,
    failed: Option<Failed>,
}

/// Why a fetch ended early.
#[derive(Clone)]
pub(super) enum Failed {
    /// The backend returned an error.
    Fetch(Error),
    /// The bytes could not be kept: no space, or the partial copy was dropped meanwhile.
    Keep(Error),
}

impl Run {
    /// Whether this fetch has still to store a granule.
    fn brings(&self, granule: u32) -> bool {
        let progress = self.progress.borrow();
        let under_way = progress.failed.is_none() && self.progress.has_changed().is_ok();
        under_way && (progress.upto..self.granules.end).contains(&granule)
    }

    pub(super) fn start(&self) -> u32 {
        self.granules.start
    }

    /// The first granule after those of this fetch.
    pub(super) fn end(&self) -> u32 {
        self.granules.end
    }

    /// Waits until the backend has responded.
    pub(super) async fn answered(&self) -> std::result::Result<(), Failed> {
        self.wait(|p| p.answered).await
    }

    /// Waits until a granule is stored.
    pub(super) async fn has(&self, granule: u32) -> std::result::Result<(), Failed> {
        self.wait(|p| p.upto > granule).await
    }

    async fn wait(&self, reached: impl Fn(&Progress) -> bool) -> std::result::Result<(), Failed> {
        let mut progress = self.progress.clone();
        let over = progress.wait_for(|p| reached(p) || p.failed.is_some()).await;
        match over.map(|p| (reached(&p), p.failed.clone())) {
            Ok((false, Some(failed))) => Err(failed),
            Ok(_) => Ok(()),
            Err(_) => Err(Failed::Fetch(Error::unavailable("the fetch was given up"))),
        }
    }
}

/// Removes a fetch from the list when it ends, in any way.
struct Ending {
    live: Arc<Live>,
    run: Arc<Run>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.live.runs().retain(|run| !Arc::ptr_eq(run, &self.run));
    }
}

impl Live {
    /// The fetch that will store a granule.
    pub(super) fn bringing(&self, granule: u32) -> Option<Arc<Run>> {
        self.runs().iter().find(|run| run.brings(granule)).cloned()
    }

    /// The first granule in `from..to` that is neither stored nor being fetched, or `to`.
    pub(super) fn covered(&self, from: u32, to: u32) -> u32 {
        let runs = self.runs();
        self.covered_with(&runs, from, to)
    }

    fn covered_with(&self, runs: &[Arc<Run>], from: u32, to: u32) -> u32 {
        let mut at = from;
        while at < to {
            if let Some(run) = runs.iter().find(|run| run.brings(at)) {
                at = run.granules.end;
                continue;
            }
            match self.partial.stretch(at, to) {
                (true, end) => at = end,
                (false, _) => break,
            }
        }
        at.min(to)
    }
}

impl ColdCache {
    /// Starts fetches of the missing `granules` that are not being fetched; returns these fetches.
    pub(super) fn fetch_missing(
        &self,
        info: &BucketInfo,
        key: &Key,
        live: &Arc<Live>,
        granules: Range<u32>,
    ) -> Vec<Arc<Run>> {
        let mut runs = live.runs();
        let mut started = Vec::new();
        let mut at = granules.start;
        while !live.partial.is_over() {
            at = live.covered_with(&runs, at, granules.end);
            if at >= granules.end {
                break;
            }
            let (_, mut end) = live.partial.stretch(at, granules.end);
            let later = runs.iter().map(|r| r.granules.start).filter(|start| *start > at);
            end = later.fold(end, u32::min).min(at + LONGEST);
            self.start_run(info, key, live, &mut runs, at..end, None);
            started.extend(runs.last().cloned());
            at = end;
        }
        started
    }

    pub(super) fn start_run(
        &self,
        info: &BucketInfo,
        key: &Key,
        live: &Arc<Live>,
        runs: &mut Vec<Arc<Run>>,
        granules: Range<u32>,
        opened: Option<RemoteObject>,
    ) {
        let start = Progress { answered: opened.is_some(), upto: granules.start, failed: None };
        let (sender, progress) = watch::channel(start);
        let run = Arc::new(Run { granules, progress });
        runs.push(run.clone());
        let (service, info, key, live) = (self.clone(), info.clone(), key.clone(), live.clone());
        let stop = self.local().lifecycle.token();
        self.local().lifecycle.spawn(async move {
            let _ending = Ending { live: live.clone(), run: run.clone() };
            let fetched = tokio::select! {
                fetched = service.fetch(&info, &key, &live, &run.granules, &sender, opened) => fetched,
                () = stop.cancelled() => {
                    Err(Failed::Fetch(Error::unavailable("this target is stopping")))
                }
            };
            match fetched {
                Ok(()) => service.assemble_if_complete(&info, &key, &live),
                Err(failed) => {
                    let (Failed::Fetch(e) | Failed::Keep(e)) = &failed;
                    tracing::debug!(bucket = %info.bucket, error = %e, "parts not fetched");
                    sender.send_modify(|p| p.failed = Some(failed));
                }
            }
        });
    }

    async fn fetch(
        &self,
        info: &BucketInfo,
        key: &Key,
        live: &Arc<Live>,
        granules: &Range<u32>,
        progress: &watch::Sender<Progress>,
        opened: Option<RemoteObject>,
    ) -> std::result::Result<(), Failed> {
        let _permit = match &opened {
            // It has begun already.
            Some(_) => None,
            None => self.0.cold_permits.acquire().await.ok(),
        };
        let count = granules.end - granules.start;
        let mut writer =
            self.store().fill_partial(&live.partial, count).await.map_err(Failed::Keep)?;
        let mut stream = match opened {
            Some(object) => object.stream,
            None => {
                let head = live.partial.head();
                let start = u64::from(granules.start) * GRANULE;
                let end = (u64::from(granules.end) * GRANULE).min(head.size);
                let range = ByteRange { start, end };
                let got = self.get_version(info, key, live, range).await;
                got.map_err(Failed::Fetch)?.stream
            }
        };
        progress.send_modify(|p| p.answered = true);
        let mut buffer = BytesMut::new();
        let mut granule = granules.start;
        while granule < granules.end {
            let len = live.partial.head().granule_len(granule) as usize;
            if buffer.len() >= len {
                let bytes = buffer.split_to(len).freeze();
                writer.keep(granule, bytes).await.map_err(Failed::Keep)?;
                granule += 1;
                progress.send_modify(|p| p.upto = granule);
                continue;
            }
            match stream.next().await {
                Some(chunk) => {
                    let chunk = chunk.map_err(Failed::Fetch)?;
                    buffer.reserve(len.saturating_sub(buffer.len()).max(chunk.len()));
                    buffer.extend_from_slice(&chunk);
                }
                None => {
                    let uri = info.bucket.object_uri(&key.name);
                    let text = format!("the backend sent too little of {uri}");
                    return Err(Failed::Fetch(Error::unavailable(text)));
                }
            }
        }
        Ok(())
    }

    /// Reads from the backend, but only the version of the partial copy; if the backend has another
    /// version or none, the partial copy is dropped.
    pub(super) async fn get_version(
        &self,
        info: &BucketInfo,
        key: &Key,
        live: &Arc<Live>,
        range: ByteRange,
    ) -> Result<RemoteObject> {
        let head = live.partial.head();
        let got = self.backend(info).await?.get(&key.name, Some(range), Some(&head.version)).await;
        let same = |o: &RemoteObject| {
            o.range == range && o.meta.size == head.size && o.meta.version == head.version
        };
        let error = match got {
            Ok(object) if same(&object) => return Ok(object),
            Ok(_) => Error::new(
                ErrorCode::ObjectChanged,
                format!("{} changed", info.bucket.object_uri(&key.name)),
            ),
            // A shorter object does not have the range at all.
            Err(e) if e.code == ErrorCode::RangeNotSatisfiable => {
                Error::new(ErrorCode::ObjectChanged, e.message)
            }
            Err(e) => e,
        };
        if matches!(error.code, ErrorCode::ObjectChanged | ErrorCode::ObjectNotFound) {
            self.discard_live(key, live).await?;
        }
        Err(error)
    }
}
