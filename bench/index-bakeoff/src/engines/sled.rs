//! sled 0.34.7: a lock-free tree over a log, of 2021.

use std::path::Path;

use anyhow::Result;
use sled::{Batch, Db, Mode};

use super::{CACHE, Index, Spec};
use crate::workload::{Entry, position};

/// Behind every record: a batch of sled covers one tree only, so the position lies among them.
const POSITION: &[u8] = b"\xff\xff\xff\xff\xff\xff\xff\xffposition";

pub struct Sled {
    db: Db,
}

impl Sled {
    /// Setting: `small` for the mode that saves space instead of time.
    pub fn open(spec: &Spec, path: &Path) -> Result<Self> {
        spec.known(&["small"])?;
        let mode = if spec.has("small") { Mode::LowSpace } else { Mode::HighThroughput };
        let db = sled::Config::new().path(path).cache_capacity(CACHE).mode(mode).open()?;
        Ok(Self { db })
    }
}

impl Index for Sled {
    fn apply(&self, entries: &[Entry], position: u64, sync: bool) -> Result<()> {
        let mut batch = Batch::default();
        for (key, value) in entries {
            batch.insert(key.as_slice(), value.as_slice());
        }
        batch.insert(POSITION, &position.to_le_bytes());
        self.db.apply_batch(batch)?;
        if sync {
            self.db.flush()?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.db.range(from..POSITION) {
            let (key, value) = entry?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn position(&self) -> Result<Option<u64>> {
        position(self.db.get(POSITION)?.as_deref())
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()?;
        Ok(())
    }
}
