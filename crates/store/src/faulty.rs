//! A disk for tests that counts every step and stops at a chosen one, as a crash or a failure would.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_node::fast_http::Held;

use super::disk::{Disk, DiskFile, DiskLock, RealDisk, Space};

const NEVER: u64 = u64::MAX;

/// The fault at the chosen step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This step and all later ones fail, as after the end of the process.
    Crash,
    /// As `Crash`, and of a write only the first half reaches the file.
    Torn,
    /// Only that step fails, with this kind of error.
    Fail(io::ErrorKind),
}

/// A lasting fault of a path, until it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// Every call fails with this system error.
    Fails(i32),
    /// Every changing call waits until this is over.
    Hangs,
}

struct State {
    lasting: Mutex<Vec<(PathBuf, Lasting)>>,
    steps: AtomicU64,
    at: AtomicU64,
    fault: Mutex<Fault>,
    log: Mutex<Vec<&'static str>>,
    closed: Mutex<Vec<(PathBuf, String)>>,
}

/// [`RealDisk`] with a fault planned for its n-th changing call. Reads are not steps.
#[derive(Clone)]
pub(crate) struct FaultyDisk {
    state: Arc<State>,
}

impl FaultyDisk {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::new(State {
                lasting: Mutex::default(),
                steps: AtomicU64::new(0),
                at: AtomicU64::new(NEVER),
                fault: Mutex::new(Fault::Crash),
                log: Mutex::default(),
                closed: Mutex::default(),
            }),
        }
    }

    /// Plans `fault` for the `n`-th step from now (0 is the next one) and clears the log.
    pub(crate) fn plan(&self, n: u64, fault: Fault) {
        *self.state.fault.lock().unwrap() = fault;
        self.state.log.lock().unwrap().clear();
        self.state.at.store(self.state.steps.load(Ordering::SeqCst) + n, Ordering::SeqCst);
    }

    /// Sets a lasting fault for everything under `path`; `None` ends it.
    pub(crate) fn set(&self, path: &Path, lasting: Option<Lasting>) {
        let mut all = self.state.lasting.lock().unwrap();
        all.retain(|(p, _)| p != path);
        all.extend(lasting.map(|l| (path.to_owned(), l)));
    }

    fn look(&self, path: &Path, changing: bool) -> io::Result<()> {
        loop {
            let all = self.state.lasting.lock().unwrap();
            let found = all.iter().find(|(p, _)| path.starts_with(p)).map(|(_, l)| *l);
            drop(all);
            match found {
                Some(Lasting::Fails(libc::EROFS | libc::ENOSPC)) if !changing => return Ok(()),
                Some(Lasting::Fails(code)) => return Err(io::Error::from_raw_os_error(code)),
                Some(Lasting::Hangs) if changing => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Whether the planned step was reached.
    pub(crate) fn struck(&self) -> bool {
        self.state.steps.load(Ordering::SeqCst) > self.state.at.load(Ordering::SeqCst)
    }

    /// Names of the steps since the last plan.
    pub(crate) fn log(&self) -> Vec<&'static str> {
        self.state.log.lock().unwrap().clone()
    }

    /// Files that were closed, in order, and the names of the threads that did.
    pub(crate) fn closed(&self) -> Vec<(PathBuf, String)> {
        self.state.closed.lock().unwrap().clone()
    }

    fn check(&self, what: &'static str) -> io::Result<()> {
        let n = self.state.steps.fetch_add(1, Ordering::SeqCst);
        let at = self.state.at.load(Ordering::SeqCst);
        let fault = *self.state.fault.lock().unwrap();
        match fault {
            Fault::Fail(kind) if n == at => Err(io::Error::new(kind, format!("planned: {what}"))),
            Fault::Crash | Fault::Torn if n >= at => Err(io::Error::other("crashed")),
            _ => {
                self.state.log.lock().unwrap().push(what);
                Ok(())
            }
        }
    }

    fn tears_now(&self) -> bool {
        *self.state.fault.lock().unwrap() == Fault::Torn
            && self.state.steps.load(Ordering::SeqCst) == self.state.at.load(Ordering::SeqCst) + 1
    }
}

struct FaultyFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    disk: FaultyDisk,
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.disk.state.closed.lock().unwrap().push((self.path.clone(), thread));
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.look(&self.path, false)?;
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.look(&self.path, true)?;
        if let Err(e) = self.disk.check("write") {
            if self.disk.tears_now() {
                self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            }
            return Err(e);
        }
        self.file.write_at(bytes, offset)
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.disk.look(&self.path, true)?;
        if let Err(e) = self.disk.check("append") {
            if self.disk.tears_now() {
                let bytes: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
                self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            }
            return Err(e);
        }
        self.file.write_vectored_at(parts, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.look(&self.path, true)?;
        self.disk.check("set_len")?;
        self.file.set_len(len)
    }

    fn read_now_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.disk.look(&self.path, false)?;
        self.file.read_now_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.look(&self.path, true)?;
        self.disk.check("sync")?;
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn changed_ns(&self) -> io::Result<i128> {
        self.file.changed_ns()
    }

    fn resident(self: Arc<Self>, offset: u64, len: u64) -> io::Result<Option<Arc<dyn Held>>> {
        self.disk.look(&self.path, false)?;
        self.file.clone().resident(offset, len)
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.look(path, true)?;
        self.check("create")?;
        let (file, path) = (RealDisk.create(path)?, path.to_owned());
        Ok(Arc::new(FaultyFile { path, file, disk: self.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.look(path, false)?;
        let (file, path) = (RealDisk.open(path)?, path.to_owned());
        Ok(Arc::new(FaultyFile { path, file, disk: self.clone() }))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.look(path, true)?;
        let (file, path) = (RealDisk.open_write(path)?, path.to_owned());
        Ok(Arc::new(FaultyFile { path, file, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.look(from, true)?;
        self.check("rename")?;
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.look(path, true)?;
        self.check("unlink")?;
        RealDisk.unlink(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.look(dir, true)?;
        self.check("sync_dir")?;
        RealDisk.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.look(dir, false)?;
        RealDisk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if !dir.exists() {
            self.look(dir, true)?;
        }
        self.check("create_dir")?;
        RealDisk.create_dir(dir)
    }

    fn remove_tree(&self, dir: &Path) -> io::Result<()> {
        self.check("remove_tree")?;
        RealDisk.remove_tree(dir)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }

    fn is_mount(&self, dir: &Path) -> io::Result<bool> {
        RealDisk.is_mount(dir)
    }

    fn allocate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.look(path, true)?;
        self.check("allocate")?;
        RealDisk.allocate(path, len)
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.look(path, true)?;
        RealDisk.lock(path)
    }

    fn step(&self, what: &'static str) -> io::Result<()> {
        self.check(what)
    }
}
