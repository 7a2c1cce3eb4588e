//! Assembly of whole objects from partial copies: when the last granule arrived, and when a reader
//! needs the whole.

use std::sync::Arc;

use forebay_clouds::{BodyStream, RemoteObject};
use forebay_core::bucket::BucketInfo;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::{GRANULE, RecordMeta};
use futures::StreamExt;

use super::Live;
use crate::object::Key;
use crate::object::cold_cache::ColdCache;
use crate::object::cold_cache::cached_meta;
use crate::object::cold_cache::meta::Checks;
use crate::object::cold_cache::ranges::{self, Ranges};
use crate::object::learn::Learner;

/// Bytes per read.
const STEP: u64 = 1 << 20;

impl ColdCache {
    /// Reads a complete partial copy once more to compute its checksums, and makes an object of it.
    pub(super) async fn assemble(
        &self,
        info: &BucketInfo,
        key: &Key,
        live: &Arc<Live>,
    ) -> Result<()> {
        let remote = live.remote_meta();
        let mut checks = Checks::new(info.checksum, &remote);
        let mut learner = Learner::new(&key.name);
        let mut at = 0;
        while at < remote.size {
            let end = (at + STEP).min(remote.size);
            match live.partial.read(ByteRange { start: at, end }).await {
                Ok(bytes) => {
                    checks.update(&bytes);
                    learner.update(&bytes);
                }
                // Damaged, to be fetched again; or dropped.
                Err(e) if matches!(e.code, ErrorCode::Corrupt | ErrorCode::ObjectNotFound) => {
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
            at = end;
        }
        let checksum = match checks.finish(&remote, &info.bucket.object_uri(&key.name)) {
            Ok(checksum) => checksum,
            Err(e) => {
                self.discard_live(key, live).await?;
                return Err(e);
            }
        };
        let _guard = self.local().locks.lock(key).await;
        let known = live.partial.validation();
        let meta = cached_meta(&remote, checksum, known.epoch);
        let meta = RecordMeta { validated_ns: known.ns, ..meta };
        let record = self.store().complete_partial(&live.partial, meta).await;
        self.0.lives.forget(key, live);
        if let Some(record) = record? {
            self.local().keep_learned(learner, &record);
        }
        Ok(())
    }

    /// The whole object for a whole fetch: stored granules are not fetched again.
    pub(in crate::object::cold_cache) async fn whole(
        &self,
        info: &BucketInfo,
        key: &Key,
        how: Ranges,
    ) -> Result<RemoteObject> {
        if let Some((live, _)) = self.live(info, key, None).await? {
            match self.rest_of(info, key, live).await {
                Ok(object) => return Ok(object),
                Err(e) if e.code == ErrorCode::ObjectChanged => {}
                Err(e) => return Err(e),
            }
        }
        ranges::open(self.backend(info).await?, &key.name, how, &self.0.ahead).await
    }

    async fn rest_of(&self, info: &BucketInfo, key: &Key, live: Arc<Live>) -> Result<RemoteObject> {
        let meta = live.remote_meta();
        let range = ByteRange::whole(meta.size);
        let mut filling = Filling {
            service: self.clone(),
            info: info.clone(),
            key: key.clone(),
            live,
            at: 0,
            size: meta.size,
            ahead: None,
        };
        // The backend confirms the version before readers get a response.
        let granules = filling.live.partial.head().granules();
        let first_missing = match filling.live.partial.stretch(0, granules) {
            (true, end) => end,
            (false, _) => 0,
        };
        if first_missing < granules {
            filling.ahead = Some(filling.open(first_missing).await?);
        }
        let stream = futures::stream::try_unfold(filling, |mut filling| async move {
            Ok(filling.next().await?.map(|bytes| (bytes, filling)))
        });
        Ok(RemoteObject { meta, range, stream: stream.boxed() })
    }
}

/// Streams the whole object, from stored granules and from the backend in turn.
struct Filling {
    service: ColdCache,
    info: BucketInfo,
    key: Key,
    live: Arc<Live>,
    at: u64,
    size: u64,
    /// A stream from the backend, and its offset.
    ahead: Option<(u64, BodyStream)>,
}

impl Filling {
    /// Opens a stream of the missing granules from `granule` on.
    async fn open(&mut self, granule: u32) -> Result<(u64, BodyStream)> {
        let partial = &self.live.partial;
        let (_, end) = partial.stretch(granule, partial.head().granules());
        let start = u64::from(granule) * GRANULE;
        let range = ByteRange { start, end: (u64::from(end) * GRANULE).min(self.size) };
        let object = self.service.get_version(&self.info, &self.key, &self.live, range).await?;
        Ok((start, object.stream))
    }

    async fn next(&mut self) -> Result<Option<bytes::Bytes>> {
        while self.at < self.size {
            if let Some((start, stream)) = &mut self.ahead
                && *start == self.at
            {
                match stream.next().await.transpose()? {
                    Some(chunk) => {
                        self.at += chunk.len() as u64;
                        *start = self.at;
                        return Ok(Some(chunk));
                    }
                    None if self.at.is_multiple_of(GRANULE) => self.ahead = None,
                    None => {
                        let uri = self.info.bucket.object_uri(&self.key.name);
                        let text = format!("the backend sent too little of {uri}");
                        return Err(Error::unavailable(text));
                    }
                }
                continue;
            }
            let partial = &self.live.partial;
            let granule = (self.at / GRANULE) as u32;
            let opened = self.ahead.as_ref().map_or(self.size, |(start, _)| *start);
            if partial.has(granule) {
                let end = (u64::from(granule + 1) * GRANULE).min(opened);
                match partial.read(ByteRange { start: self.at, end }).await {
                    Ok(bytes) => {
                        self.at = end;
                        return Ok(Some(bytes));
                    }
                    Err(e) if matches!(e.code, ErrorCode::Corrupt | ErrorCode::ObjectNotFound) => {}
                    Err(e) => return Err(e),
                }
                continue;
            }
            // Always at a granule boundary: the backend's bytes end at one.
            self.ahead = Some(self.open(granule).await?);
        }
        Ok(None)
    }
}
