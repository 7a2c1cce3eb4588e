//! The standard streams as async files that do not block other tasks.

use std::io;
use std::os::fd::AsFd;

use tokio::fs::File;

/// Standard input.
pub(crate) fn input() -> io::Result<File> {
    open(io::stdin())
}

/// Standard output, unbuffered: it must be flushed at the end.
pub(crate) fn output() -> io::Result<File> {
    open(io::stdout())
}

fn open(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}
