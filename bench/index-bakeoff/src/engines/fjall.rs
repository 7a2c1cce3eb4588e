//! fjall 3.1: a log-structured tree in Rust; two keyspaces share one journal.

use std::path::Path;

use anyhow::Result;
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{CACHE, Index, JOURNALS, MEMTABLE, Spec};
use crate::workload::{Entry, position};

const POSITION: &[u8] = b"position";

pub struct Fjall {
    db: Database,
    records: Keyspace,
    state: Keyspace,
}

impl Fjall {
    /// Settings: `lz4` (as the feature of that name: from level 2 down), `lz4-all` (every level),
    /// `workers=N`, `cache=MIB`, `journals=MIB`, `memtable=MIB`, `bits=N` (of the
    /// Bloom filters, 0 for none).
    pub fn open(spec: &Spec, path: &Path) -> Result<Self> {
        spec.known(&["lz4", "lz4-all", "workers", "cache", "journals", "memtable", "bits"])?;
        let mut builder = Database::builder(path)
            .cache_size(spec.number("cache", 1 << 20, CACHE))
            .max_journaling_size(spec.number("journals", 1 << 20, JOURNALS))
            .worker_threads(spec.number("workers", 1, 1) as usize);
        if !spec.has("lz4") {
            builder = builder.journal_compression(CompressionType::None);
        }
        let db = builder.open()?;
        let options = || {
            let mut options = KeyspaceCreateOptions::default().max_memtable_size(spec.number(
                "memtable",
                1 << 20,
                MEMTABLE,
            ));
            if !spec.has("lz4") {
                let compression = match spec.has("lz4-all") {
                    true => CompressionType::Lz4,
                    false => CompressionType::None,
                };
                options =
                    options.data_block_compression_policy(CompressionPolicy::all(compression));
            }
            match spec.number("bits", 1, u64::MAX) {
                u64::MAX => options,
                0 => options.filter_policy(FilterPolicy::all(FilterPolicyEntry::None)),
                bits => options.filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
                    BloomConstructionPolicy::BitsPerKey(bits as f32),
                ))),
            }
        };
        let records = db.keyspace("records", options)?;
        let state = db.keyspace("state", options)?;
        Ok(Self { db, records, state })
    }
}

impl Index for Fjall {
    fn apply(&self, entries: &[Entry], position: u64, sync: bool) -> Result<()> {
        let mut batch = self.db.batch();
        for (key, value) in entries {
            batch.insert(&self.records, key.as_slice(), value.as_slice());
        }
        batch.insert(&self.state, POSITION, position.to_le_bytes());
        if sync {
            batch = batch.durability(Some(PersistMode::SyncData));
        }
        Ok(batch.commit()?)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.records.get(key)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for guard in self.records.range(from..) {
            let (key, value) = guard.into_inner()?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn position(&self) -> Result<Option<u64>> {
        position(self.state.get(POSITION)?.as_deref())
    }

    fn flush(&self) -> Result<()> {
        self.records.rotate_memtable_and_wait()?;
        self.state.rotate_memtable_and_wait()?;
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}
