//! Damage of the index: found in its files, recorded beside them, and reported to callers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use forebay_core::error::is_out_of_descriptors;
use forebay_core::{Error, ErrorCode};

use super::Index;

impl Index {
    /// From now on damage is an outage: the index is rebuilt, and calls meanwhile fail with an
    /// error that allows a retry.
    pub(crate) fn serve(&self) {
        self.serving.store(true, Ordering::Relaxed);
    }

    /// Whether damage was found since the index was opened.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether the library marked it as poisoned: its files may be damaged in places not read yet.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    pub(super) fn damaged(&self, what: &str) -> Error {
        damaged(&self.path, what)
    }

    /// Converts an error of the library. Damage is recorded, so that the index is rebuilt when it
    /// is opened.
    pub(super) fn failed(&self, e: &fjall::Error) -> Error {
        if matches!(e, fjall::Error::Poisoned) {
            self.poisoned.store(true, Ordering::Relaxed);
        }
        let error = failed(&self.path, e);
        if error.code == ErrorCode::Corrupt { self.distrust(error) } else { error }
    }

    pub(super) fn distrusted(&self, what: &str) -> Error {
        self.distrust(self.damaged(what))
    }

    fn distrust(&self, error: Error) -> Error {
        if !self.damaged.swap(true, Ordering::Relaxed) {
            tracing::error!("{error}; it is to be made again from the log");
            let note = distrusted(&self.path);
            match self.io.create(&note) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => tracing::error!(path = %note.display(), "not written: {e}"),
            }
        }
        if !self.serving.load(Ordering::Relaxed) {
            return error;
        }
        // Not "corrupt": the object itself is sound and must not be dropped.
        Error::unavailable(format!("{}; it is made again just now", error.message))
    }
}

/// Path of the file beside an index that marks it as damaged.
pub(crate) fn distrusted(index: &Path) -> PathBuf {
    index.with_extension("damaged")
}

pub(super) fn damaged(path: &Path, what: &str) -> Error {
    let at = path.display();
    Error::new(ErrorCode::Corrupt, format!("index {at} is damaged: {what}"))
}

pub(super) fn failed(path: &Path, e: &fjall::Error) -> Error {
    let at = path.display();
    match e {
        fjall::Error::Io(io) if io.kind() == io::ErrorKind::StorageFull => {
            Error::from(io::Error::from(io::ErrorKind::StorageFull))
        }
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io))
            if is_out_of_descriptors(io) =>
        {
            Error::out_of_descriptors(io)
        }
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io))
            if matches!(
                io.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::NotFound
            ) =>
        {
            damaged(path, &io.to_string())
        }
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
            Error::internal(format!("index {at}: {io}"))
        }
        fjall::Error::Locked => Error::internal(format!("index {at} is open elsewhere")),
        fjall::Error::Poisoned => Error::internal(format!("index {at}: an earlier write failed"))
            .hint("look at the disk, then restart the target"),
        other => damaged(path, &format!("{other:?}")),
    }
}
