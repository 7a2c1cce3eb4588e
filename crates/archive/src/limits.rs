//! Limits for an archive: members, names, headers, and the ratio of unpacked to packed bytes.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::error::Error;

use super::source::into_io;

/// Limits for untrusted archives; the default is safe for archives from strangers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Members of one archive.
    pub members: u64,
    /// Bytes of a member's name.
    pub name_bytes: usize,
    /// Bytes of one extension header (long names, PAX records).
    pub header_bytes: u64,
    /// Records of one PAX header.
    pub pax_records: u64,
    /// Memory that the list of members may take.
    pub index_bytes: u64,
    /// Unpacked bytes per packed byte, after [`Self::grace`] bytes.
    pub ratio: u64,
    /// Unpacked bytes up to which the ratio is not checked.
    pub grace: u64,
    /// Unpacked bytes in all.
    pub unpacked: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            members: 10_000_000,
            name_bytes: 4096,
            header_bytes: 1 << 20,
            // A file with many holes has two records for each.
            pax_records: 1 << 16,
            index_bytes: 256 << 20,
            ratio: 1000,
            grace: 16 << 20,
            unpacked: 1 << 40,
        }
    }
}

impl Limits {
    /// Refuses a size that `packed` bytes cannot plausibly unpack to.
    pub(crate) fn check_ratio(&self, packed: u64, unpacked: u64) -> Result<(), Error> {
        if unpacked > self.unpacked {
            return Err(Error::invalid(format!(
                "unpacks to more than {} bytes, which is the limit",
                self.unpacked
            )));
        }
        if unpacked > self.grace && unpacked / self.ratio.max(1) > packed {
            return Err(Error::invalid(format!(
                "unpacks {packed} bytes to {unpacked}; more than {} for one is refused",
                self.ratio
            ))
            .hint("store archives like this one without compression"));
        }
        Ok(())
    }
}

/// Counts the bytes that a decoder consumes, and keeps the last of them.
pub(crate) struct Counted<R> {
    input: R,
    taken: Arc<AtomicU64>,
    tail: Tail,
}

/// The last eight bytes that a decoder consumed.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<AtomicU64>);

impl Tail {
    pub(crate) fn bytes(&self) -> [u8; 8] {
        self.0.load(Ordering::Relaxed).to_be_bytes()
    }

    fn push(&self, read: &[u8]) {
        let last = &read[read.len().saturating_sub(8)..];
        let tail = self.0.load(Ordering::Relaxed);
        let tail = last.iter().fold(tail, |tail, byte| (tail << 8) | u64::from(*byte));
        self.0.store(tail, Ordering::Relaxed);
    }
}

impl<R> Counted<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, taken: Arc::default(), tail: Tail::default() }
    }

    pub(crate) fn tail(&self) -> Tail {
        self.tail.clone()
    }

    pub(crate) fn taken(&self) -> Arc<AtomicU64> {
        self.taken.clone()
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        self.taken.fetch_add(n as u64, Ordering::Relaxed);
        self.tail.push(&buf[..n]);
        Ok(n)
    }
}

/// A decoder's output; fails when its size exceeds the allowed ratio.
pub(crate) struct Unpacked<R> {
    output: R,
    taken: Arc<AtomicU64>,
    given: u64,
    limits: Limits,
}

impl<R> Unpacked<R> {
    pub(crate) fn new(output: R, taken: Arc<AtomicU64>, limits: &Limits) -> Self {
        Self { output, taken, given: 0, limits: limits.clone() }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.output.read(buf)?;
        self.given += n as u64;
        let taken = self.taken.load(Ordering::Relaxed);
        self.limits.check_ratio(taken, self.given).map_err(into_io)?;
        Ok(n)
    }
}
