//! Health checks of disks: a disk that fails or hangs is taken out of use, and one that is away is
//! tried again until it is back.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_core::error::is_out_of_descriptors;
use forebay_core::{Error, Result};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Store;
use super::disk::Disk;
use super::state::DiskState;
use super::volume::Volume;

/// How often each disk is checked, and a disk that is away is tried again.
const PERIOD: Duration = Duration::from_secs(2);
/// A disk that takes longer for a small write hangs, unless it completes other writes meanwhile.
/// With the period this stays below the 5 s in which a dead disk must be noticed.
const HANGING: Duration = Duration::from_millis(2500);
/// How often the errors of disks are checked.
const TICK: Duration = Duration::from_millis(100);
/// One block: rewriting it in place needs no free space and no journal.
const PROBE: usize = 4096;

/// The result of a small write, its sync and a read of a disk.
#[derive(Debug)]
enum Verdict {
    Sound,
    /// No result: this process cannot open a file now.
    Unknown,
    Full,
    ReadOnly,
}

/// A check of a disk that runs on a thread of its own.
struct Look<T> {
    since: Instant,
    /// The progress counter of the disk at the start of the check.
    progress: u64,
    answer: oneshot::Receiver<T>,
}

/// The state of the health checks between two ticks.
#[derive(Default)]
struct Watch {
    looks: HashMap<usize, Look<io::Result<Verdict>>>,
    looked: HashMap<usize, Instant>,
    tries: HashMap<usize, Look<Result<()>>>,
    tried: HashMap<usize, Instant>,
}

impl Store {
    /// Watches the disks until `token` is cancelled.
    pub async fn watch_disks(&self, token: &CancellationToken) {
        let mut watch = Watch::default();
        loop {
            for volume in self.volumes().iter() {
                watch.look_at(self, volume);
            }
            // A disk that just came back is not away any more.
            let tries = watch.tries.keys().copied();
            let wanted: BTreeSet<_> = self.disks.away().into_iter().chain(tries).collect();
            for number in wanted {
                if watch.try_again(self, number) {
                    let store = self.clone();
                    tokio::spawn(async move {
                        if let Err(e) = store.drop_strays().await {
                            tracing::warn!("older copies stay until a disk comes again: {e}");
                        }
                        if let Err(e) = store.drop_double_partials().await {
                            tracing::warn!("parts of objects stay twice until a restart: {e}");
                        }
                    });
                }
            }
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }
}

impl Watch {
    fn look_at(&mut self, store: &Store, volume: &Arc<Volume>) {
        let (number, shared) = (volume.number(), volume.shared());
        if store.disks.repair_if_damaged(volume) {
            // At once: the disk itself is sound.
            self.tried.remove(&number);
            self.looks.remove(&number);
            return;
        }
        let Some(look) = self.looks.get_mut(&number) else {
            let asked = shared.condition.take_suspicion();
            let due = self.looked.get(&number).is_none_or(|at| at.elapsed() >= PERIOD);
            if asked || due {
                self.looks.insert(number, begin(volume));
            }
            return;
        };
        let verdict = match look.answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) if look.since.elapsed() < HANGING => return,
            Err(oneshot::error::TryRecvError::Empty) => {
                let progress = shared.progress.load(Ordering::Relaxed);
                if progress != look.progress {
                    (look.since, look.progress) = (Instant::now(), progress);
                    return;
                }
                Err(io::Error::new(io::ErrorKind::TimedOut, "a small write does not end"))
            }
            Err(_) => return drop(self.looks.remove(&number)),
            Ok(verdict) => verdict,
        };
        self.looks.remove(&number);
        self.looked.insert(number, Instant::now());
        if matches!(verdict, Ok(Verdict::Unknown)) {
            return;
        }
        let failed = shared.condition.has_failed();
        let read_only = matches!(verdict, Ok(Verdict::ReadOnly));
        if shared.condition.set_read_only(read_only) {
            tracing::warn!(disk = %volume.path().display(), read_only, "the file system changed");
        }
        match verdict {
            Ok(Verdict::Sound) if failed => {
                let why = "an earlier write failed, it is opened again".into();
                store.disks.leave(volume, DiskState::Away(why));
                // At once: the disk itself is sound.
                self.tried.remove(&number);
            }
            // Reads continue.
            Ok(_) => {}
            Err(e) => {
                let why = format!("a small write, its sync or its read fails: {e}");
                store.disks.leave(volume, DiskState::Away(why));
                self.tried.insert(number, Instant::now());
            }
        }
    }

    /// Tries to bring a disk back. Returns true when it is.
    fn try_again(&mut self, store: &Store, number: usize) -> bool {
        let Some(attempt) = self.tries.get_mut(&number) else {
            if self.tried.get(&number).is_none_or(|at| at.elapsed() >= PERIOD) {
                let disks = store.disks.clone();
                let attempt = on_thread("disk-open", 0, move || disks.try_again(number));
                self.tries.insert(number, attempt);
            }
            return false;
        };
        let tried = match attempt.answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return false,
            Err(_) => Err(Error::internal("opening a disk did not end")),
            Ok(tried) => tried,
        };
        self.tries.remove(&number);
        self.looked.remove(&number);
        self.tried.insert(number, Instant::now());
        tried.is_ok()
    }
}

fn begin(volume: &Arc<Volume>) -> Look<io::Result<Verdict>> {
    let shared = volume.shared();
    let progress = shared.progress.load(Ordering::Relaxed);
    // Not the volume itself: a thread that hangs must not keep it.
    let (io, root) = (shared.io.clone(), shared.root.clone());
    let renewed = Arc::downgrade(shared);
    on_thread("disk-health", progress, move || {
        let verdict = probe(&*io, &root.join(".forebay"));
        if matches!(verdict, Ok(Verdict::Sound))
            && let Some(shared) = renewed.upgrade()
        {
            shared.renew_reserve();
        }
        verdict
    })
}

/// Runs `f` on a thread of its own: it may never end.
fn on_thread<T: Send + 'static>(
    name: &str,
    progress: u64,
    f: impl FnOnce() -> T + Send + 'static,
) -> Look<T> {
    let (sender, answer) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    if let Err(e) = thread.spawn(move || drop(sender.send(f()))) {
        tracing::error!("no thread to look at a disk: {e}");
    }
    Look { since: Instant::now(), progress, answer }
}

/// Writes a block, syncs it and reads it back.
fn probe(io: &dyn Disk, folder: &Path) -> io::Result<Verdict> {
    let path = folder.join("health");
    let probed = || -> io::Result<()> {
        let file = match io.open_write(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => io.create(&path)?,
            other => other?,
        };
        let mark = [rand::random::<u8>(); PROBE];
        file.write_at(&mark, 0)?;
        file.sync()?;
        let mut back = [0; PROBE];
        file.read_exact_at(&mut back, 0)?;
        if back == mark {
            Ok(())
        } else {
            Err(io::Error::other("what was written is not what is read"))
        }
    };
    match probed() {
        Ok(()) => Ok(Verdict::Sound),
        Err(e) => match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Ok(Verdict::Full),
            io::ErrorKind::ReadOnlyFilesystem => Ok(Verdict::ReadOnly),
            _ if is_out_of_descriptors(&e) => Ok(Verdict::Unknown),
            _ => Err(e),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::faulty::{FaultyDisk, Lasting};

    #[test]
    fn a_process_without_descriptors_says_nothing_about_its_disk() {
        // ENFILE and EMFILE.
        for code in [23, 24] {
            let e = io::Error::from_raw_os_error(code);
            let error = Error::from(io::Error::from_raw_os_error(code));
            assert!(is_out_of_descriptors(&e));
            assert_eq!((error.code.status(), error.retry_after_s), (503, Some(1)));
            let (folder, disk) = (tempfile::tempdir().unwrap(), FaultyDisk::new());
            disk.set(folder.path(), Some(Lasting::Fails(code)));
            assert!(matches!(probe(&disk, folder.path()), Ok(Verdict::Unknown)), "{code}");
            disk.set(folder.path(), None);
            assert!(matches!(probe(&disk, folder.path()), Ok(Verdict::Sound)), "{code}");
        }
    }
}
