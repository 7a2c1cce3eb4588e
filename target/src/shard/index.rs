//! Indexes of shards: each is built once for any number of concurrent readers, kept as a sidecar of
//! its shard and, within bounds, in memory.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use forebay_archive::{ShardIndex, read_index};
use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::shard::ArchiveFormat;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use forebay_store::blocking;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lru::LruCache;
use tokio::sync::Semaphore;

use super::source::Anywhere;
use super::{Inner, Opened, ShardKey, Shards, in_shard};
use crate::object::{Stored, Turns};

/// Memory for indexes of recently read shards.
const MEMORY: u64 = 64 << 20;
/// Indexes built at once; each may take a core and the memory of its limits.
const BUILDS: usize = 4;
/// Bytes from which the format is detected if the name does not imply it.
const HEAD: u64 = 512;

type Flight = Shared<BoxFuture<'static, Result<Arc<ShardIndex>>>>;

/// The indexes in memory, and those being built.
pub(super) struct Indexes {
    kept: Mutex<Kept>,
    flights: Mutex<HashMap<ShardKey, Flight>>,
    builds: Semaphore,
}

/// Indexes in memory, evicted by least recent use.
struct Kept {
    by_key: LruCache<ShardKey, (Arc<ShardIndex>, u64)>,
    memory: u64,
}

impl Default for Indexes {
    fn default() -> Self {
        Self {
            kept: Mutex::new(Kept { by_key: LruCache::unbounded(), memory: 0 }),
            flights: Mutex::default(),
            builds: Semaphore::new(BUILDS),
        }
    }
}

impl Kept {
    fn insert(&mut self, key: ShardKey, index: &Arc<ShardIndex>) {
        let memory = index.memory();
        if memory > MEMORY {
            return;
        }
        if let Some((_, (_, old))) = self.by_key.push(key, (index.clone(), memory)) {
            self.memory -= old;
        }
        self.memory += memory;
        while self.memory > MEMORY
            && let Some((_, (_, old))) = self.by_key.pop_lru()
        {
            self.memory -= old;
        }
    }
}

impl Indexes {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.locked()
    }

    pub(super) fn get(&self, key: &ShardKey) -> Option<Arc<ShardIndex>> {
        self.kept().by_key.get(key).map(|(index, _)| index.clone())
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<ShardKey, Flight>> {
        self.flights.locked()
    }
}

impl Shards {
    /// Opens the current shard, with the index of exactly that commit.
    pub(super) async fn open(
        &self,
        info: &BucketInfo,
        name: &str,
        mime: Option<ArchiveFormat>,
    ) -> Result<Opened> {
        let mut turns = Turns::default();
        loop {
            let done = self.try_open(info, name, mime).await;
            if !turns.again(&done) {
                return done;
            }
        }
    }

    async fn try_open(
        &self,
        info: &BucketInfo,
        name: &str,
        mime: Option<ArchiveFormat>,
    ) -> Result<Opened> {
        let stored = self.0.objects.reads().stored(info, name).await?;
        let format = match mime.or_else(|| ArchiveFormat::from_name(name)) {
            Some(format) => format,
            None => by_content(&stored).await.map_err(|e| in_shard(info, name, e))?,
        };
        let key = ShardKey::of(stored.record(), format);
        let index = self.index_of(key, &stored).await.map_err(|e| in_shard(info, name, e))?;
        // The name may imply another format than the content.
        Ok(Opened { key: ShardKey { format: index.format, ..key }, stored, index })
    }

    async fn index_of(&self, key: ShardKey, stored: &Stored) -> Result<Arc<ShardIndex>> {
        if let Some(index) = self.0.indexes.get(&key) {
            return Ok(index);
        }
        let flight = {
            let mut flights = self.0.indexes.flights();
            match flights.get(&key) {
                Some(flight) => flight.clone(),
                None => {
                    // A build may have finished between the check above and this one.
                    if let Some(index) = self.0.indexes.get(&key) {
                        return Ok(index);
                    }
                    let flight = self.0.clone().start(key, stored.clone());
                    flights.insert(key, flight.clone());
                    flight
                }
            }
        };
        flight.await
    }
}

impl Inner {
    /// Starts to build an index. It continues if the caller goes away: others may have joined.
    fn start(self: Arc<Self>, key: ShardKey, stored: Stored) -> Flight {
        let lifecycle = self.lifecycle.clone();
        let task = lifecycle.spawn(async move {
            let made = self.make(key, stored).await.map(Arc::new);
            if let Ok(index) = &made {
                self.indexes.kept().insert(key, index);
            }
            self.indexes.flights().remove(&key);
            made
        });
        let landed = async move {
            task.await.unwrap_or_else(|e| Err(Error::internal(format!("indexing failed: {e}"))))
        };
        landed.boxed().shared()
    }

    async fn make(&self, key: ShardKey, stored: Stored) -> Result<ShardIndex> {
        let stopping = |_| Error::unavailable("this target is stopping");
        let _permit = self.indexes.builds.acquire().await.map_err(stopping)?;
        let kept = self.kept_beside(&stored).await;
        // Another format than the shard's own was requested: the own index is kept.
        let keep = kept.is_none();
        let (format, other) = formats(key.format, &stored).await?;
        if let Some(index) = kept.filter(|i| i.format == format || Some(i.format) == other) {
            return Ok(index);
        }
        let source = Anywhere::new(stored.clone(), self.lifecycle.token());
        let limits = self.limits.clone();
        let made = blocking(move || {
            let read = |format| read_index(format, &source, &limits);
            let index = match (read(format), other) {
                (Err(e), Some(other)) => read(other).map_err(|_| e)?,
                (index, _) => index?,
            };
            index.sort_names();
            let bytes = keep.then(|| index.encode());
            Ok((index, bytes))
        });
        let (index, bytes) = made.await?;
        self.built.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            self.objects.reads().keep_sidecar(stored.record(), bytes).await;
        }
        Ok(index)
    }

    /// The index that is stored beside the shard, if there is one.
    async fn kept_beside(&self, stored: &Stored) -> Option<ShardIndex> {
        let bytes = self.objects.reads().sidecar(stored.record()).await?;
        let decoded = blocking(move || {
            let index = ShardIndex::decode(&bytes)?;
            index.sort_names();
            Ok(index)
        });
        let decoded = decoded.await;
        let name = &stored.record().name;
        decoded.inspect_err(|e| tracing::warn!(name, "{e}; it is made again")).ok()
    }
}

/// Detects the format from a shard's first bytes.
async fn by_content(stored: &Stored) -> Result<ArchiveFormat> {
    forebay_archive::detect(None, &head(stored).await?)
}

/// The format to try first, and another one if that fails. A format that the name implies is
/// compared with the first bytes; one that a client gives is not.
async fn formats(
    format: ArchiveFormat,
    stored: &Stored,
) -> Result<(ArchiveFormat, Option<ArchiveFormat>)> {
    if ArchiveFormat::from_name(&stored.record().name) != Some(format) {
        return Ok((format, None));
    }
    let head = head(stored).await?;
    let detected = forebay_archive::detect(Some(format), &head)?;
    let other = forebay_archive::format_of(&head).filter(|other| *other != detected);
    Ok((detected, other))
}

async fn head(stored: &Stored) -> Result<Bytes> {
    let end = stored.record().size.min(HEAD);
    stored.read(ByteRange { start: 0, end }).await
}

#[cfg(test)]
mod tests {
    use forebay_archive::Member;
    use forebay_core::shard::Stat;

    use super::*;

    #[test]
    fn indexes_in_memory_stay_within_their_bytes_and_the_oldest_goes_first() {
        let mut kept = Kept { by_key: LruCache::unbounded(), memory: 0 };
        let key = |generation| ShardKey { disk: 0, generation, format: ArchiveFormat::Tar };
        let sized = |bytes: usize| {
            let name = "n".repeat(bytes);
            let (stat, is_sparse) = (Stat::default(), false);
            let member = Member { name, offset: 0, size: 0, stat, is_sparse };
            Arc::new(ShardIndex::new(ArchiveFormat::Tar, vec![member]))
        };
        let third = MEMORY as usize / 3;
        for generation in 0..3 {
            kept.insert(key(generation), &sized(third - 1000));
        }
        assert!(kept.by_key.get(&key(0)).is_some());
        kept.insert(key(3), &sized(third - 1000));
        let there: Vec<_> = (0..4).filter(|g| kept.by_key.contains(&key(*g))).collect();
        assert_eq!(there, [0, 2, 3]);
        // A repeated insert counts once, and an index that is too large is not kept at all.
        kept.insert(key(3), &sized(third - 1000));
        kept.insert(key(9), &sized(MEMORY as usize));
        assert_eq!(kept.by_key.len(), 3);
        let counted: u64 = kept.by_key.iter().map(|(_, (index, _))| index.memory()).sum();
        assert_eq!(kept.memory, counted);
        assert!(kept.memory <= MEMORY);
    }
}
