//! One disk of the store: its folders, and how objects are added, read and removed.
//!
//! ```text
//! DISK/.forebay/{lock,disk.json,index/,lost/}   DISK/log/<segment>
//! DISK/objects/xx/<file>   DISK/work/<file>     DISK/companions/<generation>
//! DISK/partial/{<id>,<id>.map}
//! ```
//! All ids are numbers in hexadecimal; names of objects never become paths.

mod changes;
mod open;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use forebay_core::locks::MutexExt;
use forebay_core::{Result, placement};

pub(crate) use self::changes::Parts;

use super::committer::Committer;
use super::compaction::Compactor;
use super::disk::DiskLock;
use super::identity::Identity;
use super::observer::Observer;
use super::partial::PartialHead;
use super::record::Record;
use super::shared::Shared;
use super::space::{Demand, Reservation, Room};

/// One disk.
pub struct Volume {
    // In drop order: compaction needs the committer, both need the lock.
    pub(super) compactor: Compactor,
    pub(super) committer: Arc<Committer>,
    pub(super) shared: Arc<Shared>,
    pub(super) digest: u64,
    pub(super) identity: Mutex<Identity>,
    pub(super) _lock: DiskLock,
}

impl Volume {
    /// Number of the disk, as in [`Record`] and [`Store::budgets`](crate::Store::budgets).
    pub fn number(&self) -> usize {
        self.shared.number
    }

    /// The folder of the disk.
    pub fn path(&self) -> &Path {
        &self.shared.root
    }

    /// Records on the disk that the store was opened `opens` times.
    pub(crate) fn raise(&self, opens: u64) -> Result<()> {
        let mut identity = self.identity.locked();
        identity.opens = identity.opens.max(opens);
        identity.write(&*self.shared.io, &self.shared.root.join(".forebay"))
    }

    /// Records on the disk which target and which cluster it belongs to; empty ids change nothing.
    pub(crate) fn belong_to(&self, node: &str, cluster: &str) -> Result<()> {
        let mut identity = self.identity.locked();
        let before = (identity.node.clone(), identity.cluster.clone());
        if !node.is_empty() {
            identity.node = node.to_owned();
        }
        if !cluster.is_empty() {
            identity.cluster = cluster.to_owned();
        }
        if before == (identity.node.clone(), identity.cluster.clone()) {
            return Ok(());
        }
        identity.write(&*self.shared.io, &self.shared.root.join(".forebay"))
    }

    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        // `Disks` sets only the first observer.
        drop(self.shared.observer.set(observer));
    }

    /// Ends the use of this disk: callers that wait for it get an error.
    pub(crate) fn retire(&self) {
        self.shared.condition.retire();
        self.shared.partials.close();
    }

    /// Whether eviction or compaction could free anything here.
    pub(crate) fn may_free(&self) -> bool {
        let evictable = self.shared.index.residents(0, 1).is_ok_and(|r| !r.is_empty());
        evictable || self.shared.partials.is_any() || self.shared.room.has_dead_space()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.shared.room
    }

    /// Whether dropping partial objects could free space.
    pub fn has_partials(&self) -> bool {
        self.shared.partials.is_any()
    }

    /// Space that partial objects of a bucket take.
    pub fn partial_space_of(&self, bucket_id: u64) -> u64 {
        self.shared.partials.space_of(bucket_id)
    }

    /// Heads of all partial objects.
    pub fn partial_heads(&self) -> Vec<Arc<PartialHead>> {
        self.shared.partials.all()
    }

    /// Drops partial objects that were last used before `horizon_ns`, in the buckets for which
    /// `may_go` is true, the least recently used first, until `need` bytes are free. Returns the
    /// space that each of them freed. Blocks.
    pub fn evict_partials(
        &self,
        need: u64,
        horizon_ns: u64,
        may_go: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        self.shared.evict_partials(need, horizon_ns, may_go)
    }

    /// Names in a folder of the disk.
    pub fn list_folder(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.shared.io.list(folder)
    }

    /// Path of a file with bytes of an object, as [`Record::file_ids`] names it.
    pub fn object_path(&self, file: u64) -> PathBuf {
        self.shared.object_path(file)
    }

    /// Removes the file at [`Self::object_path`].
    pub fn remove_object_file(&self, file: u64) -> io::Result<()> {
        self.shared.io.unlink(&self.object_path(file))
    }

    /// Reserves `bytes` if disk and budget have them. Removes recycled segments first if needed.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        if !self.shared.file_system_fits(bytes) {
            return None;
        }
        let reserve = || self.room().try_reserve(bytes);
        reserve().or_else(|| (self.shared.give_up_spares() > 0).then(reserve)?)
    }

    /// Bytes used and requested.
    pub fn demand(&self) -> Demand {
        self.shared.room.demand()
    }

    /// Called by the evictor after a pass over this disk, even if it freed nothing.
    pub fn pass_done(&self) {
        self.shared.room.pass_done();
    }

    /// Frees dead space of the log while space is short. Returns the bytes freed. Blocks.
    pub fn reclaim(&self) -> Result<u64> {
        self.compactor.reclaim()
    }

    #[cfg(test)]
    pub(crate) fn compactor(&self) -> &Compactor {
        &self.compactor
    }

    #[cfg(test)]
    pub(crate) fn compact_all(&self) -> Result<u64> {
        self.compactor.compact_all()
    }

    /// Every record of the disk with its latest access.
    pub fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.shared.index.all().map(|record| record.map(|record| self.refreshed(record)))
    }

    /// Evictable records committed after `generation`, in the order of their commits, at most
    /// `limit` of them; none at the end.
    pub fn residents(&self, generation: u64, limit: usize) -> Result<Vec<Record>> {
        let mut last = generation;
        loop {
            let page = self.shared.index.residents(last, limit)?;
            let Some((newest, _)) = page.last() else { return Ok(Vec::new()) };
            last = *newest;
            let mut found = Vec::with_capacity(page.len());
            for (generation, key) in page {
                let record = self.shared.get(&key)?;
                found.extend(record.filter(|r| r.generation == generation && r.evictable()));
            }
            // All records of a page may be gone although more follow.
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// The records of these commits that still exist and are evictable.
    pub fn records_of(&self, generations: &[u64]) -> Result<Vec<Record>> {
        let mut found = Vec::with_capacity(generations.len());
        for generation in generations {
            let Some(key) = self.shared.index.resident(*generation)? else { continue };
            let record = self.shared.get(&key)?;
            found.extend(record.filter(|r| r.generation == *generation));
        }
        Ok(found)
    }

    /// Decodes the record of an entry of the index, with its latest access.
    pub(crate) fn decode(&self, key: &[u8], value: &[u8]) -> Result<Record> {
        self.shared.index.decode(key, value).map(|record| self.refreshed(record))
    }

    fn refreshed(&self, mut record: Record) -> Record {
        self.shared.recency.refresh(&mut record);
        record
    }

    /// Score of this disk for a key. A new object goes to the disk with the highest score.
    pub(crate) fn score(&self, key_digest: u64) -> u64 {
        placement::mix(self.digest ^ key_digest)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        self.shared.get(key)
    }
}
