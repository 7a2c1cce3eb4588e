//! RocksDB: the C++ log-structured tree; two column families share one write-ahead log.

use std::path::Path;

use anyhow::{Context as _, Result};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    Direction, IteratorMode, Options, WriteBatch, WriteOptions,
};

use super::{CACHE, Index, JOURNALS, MEMTABLE, Spec};
use crate::workload::{Entry, position};

const POSITION: &[u8] = b"position";

pub struct Rocks {
    db: DB,
}

impl Rocks {
    /// Settings: `lz4`, `memtable=MIB`.
    pub fn open(spec: &Spec, path: &Path) -> Result<Self> {
        spec.known(&["lz4", "memtable"])?;
        let cache = Cache::new_lru_cache(CACHE as usize);
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&cache);
        blocks.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_total_wal_size(JOURNALS);
        options.set_write_buffer_size(spec.number("memtable", 1 << 20, MEMTABLE) as usize);
        options.set_max_background_jobs(2);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(match spec.has("lz4") {
            true => DBCompressionType::Lz4,
            false => DBCompressionType::None,
        });
        let families = ["default", "records", "state"]
            .map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        Ok(Self { db: DB::open_cf_descriptors(&options, path, families)? })
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily> {
        self.db.cf_handle(name).context("a column family is missing")
    }
}

impl Index for Rocks {
    fn apply(&self, entries: &[Entry], position: u64, sync: bool) -> Result<()> {
        let (records, state) = (self.family("records")?, self.family("state")?);
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put_cf(records, key, value);
        }
        batch.put_cf(state, POSITION, position.to_le_bytes());
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        Ok(self.db.write_opt(batch, &options)?)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_cf(self.family("records")?, key)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let from = IteratorMode::From(from, Direction::Forward);
        for entry in self.db.iterator_cf(self.family("records")?, from) {
            let (key, value) = entry?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn position(&self) -> Result<Option<u64>> {
        position(self.db.get_pinned_cf(self.family("state")?, POSITION)?.as_deref())
    }

    fn flush(&self) -> Result<()> {
        self.db.flush_cf(self.family("records")?)?;
        Ok(self.db.flush_cf(self.family("state")?)?)
    }
}
