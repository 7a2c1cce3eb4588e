//! Opens a disk: locks and identifies it first, then brings it up to date with its log and starts
//! it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use forebay_core::{Error, Result, placement};
use tokio::sync::watch;

use super::DiskSettings;
use super::committer::Committer;
use super::compaction::Compactor;
use super::condition::Condition;
use super::disk::{Disk, DiskLock};
use super::format::{FIRST_FORMAT, FORMAT};
use super::free_space_hint::FreeSpaceHint;
use super::identity::{self, Identity, failed};
use super::location_cache::LocationCache;
use super::log::Log;
use super::partial::Partials;
use super::recency::Recency;
use super::recover::{Recovered, Replayed, Site, tidy};
use super::reserve::{Reserve, reserve_path};
use super::shared::Shared;
use super::sidecar::Sidecars;
use super::space::{EvictionNotifier, Room};
use super::volume::Volume;

/// Default budget: this part of the file system, or [`MAX_DEFAULT_BUDGET`], the smaller.
const DEFAULT_SHARE: u64 = 10;
const MAX_DEFAULT_BUDGET: u64 = 20 << 30;
/// Segments have this part of the budget, within these bounds.
const SEGMENT_SHARE: u64 = 64;
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = (256 << 10)..=(256 << 20);
/// Opening a disk needs this much free space on its file system; with less, its reserve is given
/// up.
const OPENING: u64 = 1 << 20;
/// A disk that is locked and identified, and not yet open.
pub(crate) struct Claim {
    pub(crate) identity: Identity,
    settings: DiskSettings,
    io: Arc<dyn Disk>,
    lock: DiskLock,
}

/// Properties of the store that a disk needs.
pub(crate) struct Setting {
    pub(crate) number: usize,
    /// How often the store was opened.
    pub(crate) opens: u64,
    /// Assigns the sequence numbers of records.
    pub(crate) sequence: Arc<AtomicU64>,
    pub(crate) bell: Arc<EvictionNotifier>,
    pub(crate) location_cache: Arc<LocationCache>,
    /// Some other disk is not in use.
    pub(crate) degraded: Arc<AtomicBool>,
    /// Counts the times that objects were lost.
    pub(crate) losses: Arc<watch::Sender<u64>>,
}

impl Claim {
    /// Locks a disk and reads its identity.
    pub(crate) fn take(settings: &DiskSettings, io: Arc<dyn Disk>) -> Result<Self> {
        let root = &settings.path;
        let own = root.join(".forebay");
        if settings.mount && !io.is_mount(root).map_err(failed("look at", root))? {
            let text = format!("no file system is mounted at {}", root.display());
            return Err(Error::unavailable(text).hint("mount the disk; it is taken into use then"));
        }
        for dir in [&own, &root.join("work"), &root.join("objects"), &root.join("log")] {
            io.create_dir(dir).map_err(failed("create folder", dir))?;
        }
        let lock = identity::lock(&*io, root, &own)?;
        // Opening writes a little: with no free space at all it would fail.
        if io.space(root).is_ok_and(|s| s.free < OPENING) {
            drop(io.unlink(&reserve_path(root)));
        }
        let identity = Identity::read(&*io, &own, || holds_anything(&*io, root))?;
        Ok(Self { identity, settings: settings.clone(), io, lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.settings.path
    }

    /// The target that is to use the disk.
    pub(crate) fn node(&self) -> &str {
        &self.settings.node
    }

    /// Rejects a disk that another target uses, or one of another cluster.
    pub(crate) fn check_owner(&self, cluster: &str) -> Result<()> {
        self.identity.check_owner(self.path(), self.node(), cluster)
    }

    /// Opens the disk. Also returns the keys that were just learned from the log.
    pub(crate) fn open(mut self, setting: Setting) -> Result<(Volume, Replayed)> {
        let Setting { number, opens, sequence, bell, location_cache, degraded, losses } = setting;
        let (root, io) = (self.settings.path.clone(), self.io.clone());
        create_folders(&*io, &root.join("objects"))?;
        let budget = match self.settings.budget {
            Some(budget) => budget,
            None => {
                let total = io.space(&root).map_err(failed("measure", &root))?.total;
                (total / DEFAULT_SHARE).min(MAX_DEFAULT_BUDGET)
            }
        };
        let segment_bytes =
            (budget / SEGMENT_SHARE).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        let files_are_truth = self.identity.format == FIRST_FORMAT;
        // Before any record is written, so that no later opening repeats a sequence.
        self.identity.opens = opens;
        if !files_are_truth {
            // Nothing else has to be converted: each segment and each file has its own format.
            self.identity.format = FORMAT;
            self.identity.write(&*io, &root.join(".forebay"))?;
        }
        let (folder, spares) = (root.join("log"), root.join("work"));
        let log = Log::open(io.clone(), folder, spares, self.identity.number(), segment_bytes)?;
        let sidecars = Sidecars::open(&root, &*io)?;
        let partials = Partials::open(&root, &*io)?;
        let site = Site {
            io: io.clone(),
            root: &root,
            log: &log,
            number,
            rebuild: self.settings.rebuild_index,
            check: self.settings.check_index,
            files_are_truth,
        };
        let Recovered { index, usage_counters, replayed } = site.recover()?;
        log.begin_after(usage_counters.position.segment);
        if files_are_truth {
            self.identity.format = FORMAT;
            self.identity.write(&*io, &root.join(".forebay"))?;
        }
        let shared = Arc::new(Shared {
            number,
            io,
            log,
            index,
            usage_counters: Mutex::new(usage_counters),
            room: Room::new(budget, bell),
            recency: Recency::default(),
            sidecars,
            partials,
            checked: Arc::default(),
            location_cache,
            sequence,
            observer: OnceLock::new(),
            stale_index: AtomicBool::new(false),
            degraded,
            losses,
            progress: AtomicU64::new(0),
            condition: Condition::new(),
            reserve: Reserve::new(budget),
            free_space_hint: FreeSpaceHint::default(),
            root,
        });
        tidy(&shared)?;
        shared.sidecars.recover(&shared)?;
        shared.recover_partials()?;
        shared.show_accounts();
        shared.index.serve();
        let committer = Arc::new(Committer::start(shared.clone())?);
        let compactor = Compactor::start(shared.clone(), committer.clone(), segment_bytes)?;
        let digest = placement::digest(&self.identity.id);
        let identity = Mutex::new(self.identity);
        let volume = Volume { compactor, committer, shared, digest, identity, _lock: self.lock };
        Ok((volume, replayed))
    }
}

fn holds_anything(io: &dyn Disk, root: &Path) -> Result<bool> {
    let (log, objects) = (root.join("log"), root.join("objects"));
    if !io.list(&log).map_err(failed("list", &log))?.is_empty() {
        return Ok(true);
    }
    for dir in io.list(&objects).map_err(failed("list", &objects))? {
        let dir = objects.join(dir);
        if !io.list(&dir).map_err(failed("list", &dir))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn create_folders(io: &dyn Disk, objects: &Path) -> Result<()> {
    let there = io.list(objects).map_err(failed("list", objects))?;
    let missing = (0..256u64).map(|i| format!("{i:02x}")).filter(|name| !there.contains(name));
    let mut created = false;
    for name in missing {
        let dir = objects.join(name);
        io.create_dir(&dir).map_err(failed("create folder", &dir))?;
        created = true;
    }
    if created {
        io.sync_dir(objects).map_err(failed("sync", objects))?;
    }
    Ok(())
}
