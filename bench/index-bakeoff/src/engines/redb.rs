//! redb 4.4: a copy-on-write B-tree in one file; no journal.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{CACHE, Index, Spec};
use crate::workload::{Entry, position};

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");
const POSITION: &str = "position";
/// Batches between two durable commits when the caller asks for none: pages that became free are
/// used again only after one, so without them the file would grow without an end.
const DURABLE_EVERY: u64 = 256;

pub struct Redb {
    db: Database,
}

impl Redb {
    pub fn open(spec: &Spec, path: &Path) -> Result<Self> {
        spec.known(&[])?;
        std::fs::create_dir_all(path)?;
        let db = Database::builder().set_cache_size(CACHE as usize).create(path.join("redb"))?;
        Ok(Self { db })
    }

    fn commit(&self, entries: &[Entry], position: Option<u64>, durable: bool) -> Result<()> {
        let mut change = self.db.begin_write()?;
        match durable {
            // Without it, opening after a crash walks the whole file.
            true => change.set_quick_repair(true),
            false => change.set_durability(Durability::None)?,
        }
        {
            let mut records = change.open_table(RECORDS)?;
            for (key, value) in entries {
                records.insert(key.as_slice(), value.as_slice())?;
            }
            let mut state = change.open_table(STATE)?;
            if let Some(position) = position {
                state.insert(POSITION, position.to_le_bytes().as_slice())?;
            }
        }
        Ok(change.commit()?)
    }
}

impl Index for Redb {
    fn apply(&self, entries: &[Entry], position: u64, sync: bool) -> Result<()> {
        self.commit(entries, Some(position), sync || position.is_multiple_of(DURABLE_EVERY))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.begin_read()?.open_table(RECORDS)?.get(key)?;
        if let Some(value) = &value {
            visit(value.value());
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.db.begin_read()?.open_table(RECORDS)?.range(from..)? {
            let (key, value) = entry?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn position(&self) -> Result<Option<u64>> {
        let table = match self.db.begin_read()?.open_table(STATE) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            other => other?,
        };
        position(table.get(POSITION)?.as_ref().map(|v| v.value()))
    }

    fn flush(&self) -> Result<()> {
        self.commit(&[], None, true)
    }
}
