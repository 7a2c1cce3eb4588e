//! What a disk asks of its index, and the engines that can answer.

mod fjall;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sled;

use std::path::Path;

use anyhow::{Result, bail};

use crate::workload::Entry;

/// Cache of blocks or pages that every engine gets, in bytes.
pub const CACHE: u64 = 256 << 20;
/// Memory that an engine may fill with changes before it writes a table, in bytes.
pub const MEMTABLE: u64 = 64 << 20;
/// Journals that an engine may keep, in bytes. What the product sets.
pub const JOURNALS: u64 = 128 << 20;

/// Engines in the order of the table; the first is what the others are compared to.
pub const ALL: &[&str] = &[
    "fjall",
    "fjall:lz4",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb:lz4",
    "redb",
    "sled",
];

/// One open index: records ordered by key, and the position in the log that they reflect.
pub trait Index {
    /// Puts all entries in and sets the position, all or nothing. `sync`: it survives a power cut
    /// when this returns.
    fn apply(&self, entries: &[Entry], position: u64, sync: bool) -> Result<()>;

    /// Whether `key` is there; its value goes to `visit`.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Visits keys and values in order, from `from` (inclusive) until `visit` says no.
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// The position set by the last batch that is there.
    fn position(&self) -> Result<Option<u64>>;

    /// Writes out what is in memory only, as far as the engine offers it.
    fn flush(&self) -> Result<()>;
}

/// An engine and its settings, written `NAME` or `NAME:SETTING,SETTING=NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub name: String,
    pub settings: Vec<(String, Option<u64>)>,
}

impl Spec {
    pub fn parse(text: &str) -> Result<Self> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        if !ALL.iter().any(|known| known.split(':').next() == Some(name)) {
            bail!("no engine is called {name}; there are {}", ALL.join(", "));
        }
        let settings = settings
            .split(',')
            .filter(|s| !s.is_empty())
            .map(|s| match s.split_once('=') {
                Some((key, number)) => Ok((key.to_owned(), Some(number.parse()?))),
                None => Ok((s.to_owned(), None)),
            })
            .collect::<Result<_>>()?;
        Ok(Self { name: name.to_owned(), settings })
    }

    fn has(&self, setting: &str) -> bool {
        self.settings.iter().any(|(key, _)| key == setting)
    }

    /// The number of a setting, in `unit`s, or `default`.
    fn number(&self, setting: &str, unit: u64, default: u64) -> u64 {
        let found = self.settings.iter().find(|(key, _)| key == setting);
        found.and_then(|(_, number)| *number).map_or(default, |number| number * unit)
    }

    fn known(&self, settings: &[&str]) -> Result<()> {
        match self.settings.iter().find(|(key, _)| !settings.contains(&key.as_str())) {
            Some((key, _)) => bail!("{} has the settings {settings:?}, not {key}", self.name),
            None => Ok(()),
        }
    }
}

/// Opens the index in folder `path`, an empty one when there is none.
pub fn open(spec: &Spec, path: &Path) -> Result<Box<dyn Index>> {
    Ok(match spec.name.as_str() {
        "fjall" => Box::new(fjall::Fjall::open(spec, path)?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rocksdb::Rocks::open(spec, path)?),
        "redb" => Box::new(redb::Redb::open(spec, path)?),
        "sled" => Box::new(sled::Sled::open(spec, path)?),
        other => bail!("engine {other} is not in this build"),
    })
}
