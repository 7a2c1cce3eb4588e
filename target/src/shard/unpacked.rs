//! Compressed TARs that are decompressed once, for a job that reads their members in random order:
//! into an invisible file, on the disk where the shard's name belongs, for as long as the job holds
//! it.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_archive::{decompress, from_io, is_behind_end};
use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use forebay_store::blocking;

use super::source::Forward;
use super::{ShardKey, Shards};
use crate::object::Scratch;

/// A file that no job renewed for this time is removed.
const LEASE: Duration = Duration::from_secs(30);
/// Bytes decompressed at once.
const UNPACK_CHUNK_BYTES: usize = 1 << 20;

/// The unpacked shards of this target.
#[derive(Default)]
pub(super) struct UnpackedShards(Mutex<HashMap<ShardKey, Held>>);

struct Held {
    /// `None` while it is being decompressed.
    scratch: Option<Arc<Scratch>>,
    job: String,
    kept: Instant,
}

impl UnpackedShards {
    fn table(&self) -> MutexGuard<'_, HashMap<ShardKey, Held>> {
        self.0.locked()
    }

    /// The TAR of a compressed shard, if it is decompressed.
    pub(super) fn get(&self, key: &ShardKey) -> Option<Arc<Scratch>> {
        self.table().get(key)?.scratch.clone()
    }

    /// Whether there was no entry yet; the caller then has to decompress the shard.
    fn claim(&self, key: ShardKey, job: &str) -> bool {
        let mut table = self.table();
        if table.contains_key(&key) {
            return false;
        }
        table.insert(key, Held { scratch: None, job: job.to_owned(), kept: Instant::now() });
        true
    }

    fn hold(&self, job: &str, keep: bool) {
        let mut table = self.table();
        if !keep {
            table.retain(|_, held| held.job != job);
            return;
        }
        table.values_mut().filter(|h| h.job == job).for_each(|h| h.kept = Instant::now());
    }
}

impl Shards {
    /// Decompresses a compressed TAR, so that its members are read by their offsets until `job`
    /// releases it. Other shards are left as they are.
    pub(crate) async fn unpack(&self, info: &BucketInfo, name: &str, job: &str) -> Result<()> {
        let opened = self.open(info, name, None).await?;
        let key = opened.key;
        if !key.format.is_compressed_tar() || !self.0.unpacked.claim(key, job) {
            return Ok(());
        }
        let filled = async {
            let whole = ByteRange::whole(opened.stored.record().size);
            let input = Forward::new(opened.stored.clone(), self.0.lifecycle.token(), whole);
            let mut reader = decompress(key.format, input, &self.0.limits)?;
            let mut scratch = self.0.objects.scratch(name).await?;
            loop {
                let (rest, bytes) = blocking(move || {
                    let mut bytes = Vec::with_capacity(UNPACK_CHUNK_BYTES);
                    match reader.by_ref().take(UNPACK_CHUNK_BYTES as u64).read_to_end(&mut bytes) {
                        // The index was built, so the archive itself is complete.
                        Err(e) if !is_behind_end(&e) => return Err(from_io(e)),
                        _ => {}
                    }
                    Ok((reader, Bytes::from(bytes)))
                })
                .await?;
                if bytes.is_empty() {
                    return Ok::<_, Error>(scratch);
                }
                reader = rest;
                scratch.write(bytes).await?;
            }
        };
        match filled.await {
            Ok(scratch) => {
                // If it was released meanwhile, it is removed at once.
                if let Some(held) = self.0.unpacked.table().get_mut(&key) {
                    (held.scratch, held.kept) = (Some(Arc::new(scratch)), Instant::now());
                }
            }
            Err(e) => {
                self.0.unpacked.table().remove(&key);
                return Err(e);
            }
        }
        let inner = self.0.clone();
        self.0.lifecycle.spawn(async move {
            let stop = inner.lifecycle.token();
            // A job that ended abnormally does not renew it any more.
            while inner.unpacked.table().get(&key).is_some_and(|h| h.kept.elapsed() < LEASE) {
                tokio::select! {
                    () = tokio::time::sleep(LEASE / 4) => {}
                    () = stop.cancelled() => break,
                }
            }
            inner.unpacked.table().remove(&key);
        });
        Ok(())
    }

    /// Renews or releases the decompressed shards of a job.
    pub(crate) fn hold_unpacked(&self, job: &str, keep: bool) {
        self.0.unpacked.hold(job, keep);
    }
}
