//! An object that is being written, for readers that follow the write: in memory while it is small,
//! then in a file.

use std::io;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use bytes::Bytes;
use forebay_core::locks::RwLockExt;

use super::disk::DiskFile;

/// Bytes written so far.
#[derive(Default)]
pub(crate) struct Growing(RwLock<State>);

enum State {
    Memory(Vec<u8>),
    /// Complete, and in the log.
    Frozen(Bytes),
    File(Arc<dyn DiskFile>),
}

impl Default for State {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl Growing {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(RwLock::new(State::Memory(Vec::with_capacity(bytes))))
    }

    /// Appends, while the object is in memory.
    pub(crate) fn append(&self, bytes: &[u8]) {
        let mut state = self.0.write_locked();
        if let State::Memory(buffer) = &mut *state {
            buffer.extend_from_slice(bytes);
        }
    }

    /// Makes `bytes` the whole content, without a copy.
    pub(crate) fn set(&self, bytes: Bytes) {
        *self.0.write_locked() = State::Frozen(bytes);
    }

    /// Ends the growth in memory and returns all bytes.
    pub(crate) fn freeze(&self) -> Bytes {
        let mut state = self.0.write_locked();
        let bytes = match &mut *state {
            State::Memory(buffer) => Bytes::from(std::mem::take(buffer)),
            State::Frozen(bytes) => bytes.clone(),
            State::File(_) => return Bytes::new(),
        };
        *state = State::Frozen(bytes.clone());
        bytes
    }

    /// From now on the bytes are in `file`, which has all of them so far.
    pub(crate) fn move_to(&self, file: Arc<dyn DiskFile>) {
        *self.0.write_locked() = State::File(file);
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read_locked()
    }
}

impl DiskFile for Growing {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.read();
        let bytes: &[u8] = match &*state {
            State::Memory(buffer) => buffer,
            State::Frozen(bytes) => bytes,
            State::File(file) => {
                let file = file.clone();
                drop(state);
                return file.read_at(buf, offset);
            }
        };
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn write_vectored_at(&self, _parts: &[io::IoSlice<'_>], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn read_now_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let file = match &*self.read() {
            State::File(file) => Some(file.clone()),
            _ => None,
        };
        match file {
            Some(file) => file.read_now_at(buf, offset),
            None => self.read_at(buf, offset).map(Some),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        match &*self.read() {
            State::Memory(buffer) => Ok(buffer.len() as u64),
            State::Frozen(bytes) => Ok(bytes.len() as u64),
            State::File(file) => file.size(),
        }
    }
}
