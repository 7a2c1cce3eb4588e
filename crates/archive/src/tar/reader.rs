//! Reading a TAR from a stream, member after member.

use std::io::{self, Read};

use forebay_core::error::{Error, Result};

use super::walker::{Step, Walker};
use crate::damaged;
use crate::index::Member;
use crate::limits::Limits;
use crate::source::{from_io, into_io};

/// Bytes skipped at once.
const SKIP_CHUNK_BYTES: usize = 64 << 10;
/// Maximum bytes reserved for a member before any of them arrived.
const FIRST: u64 = 1 << 20;

/// Iterates over the regular files of a TAR, in order. Its [`Read`] returns the data of the current
/// one.
pub struct TarReader<R: Read> {
    input: R,
    walker: Walker,
    members: u64,
    most_members: u64,
    /// Bytes read so far.
    at: u64,
    /// Bytes of the current member that were not read yet.
    left: u64,
    scratch: Vec<u8>,
}

impl<R: Read> TarReader<R> {
    pub fn new(input: R, limits: Limits) -> Self {
        let most_members = limits.members;
        let walker = Walker::new(limits);
        Self { input, walker, members: 0, most_members, at: 0, left: 0, scratch: Vec::new() }
    }

    /// Advances to the next member, and skips the unread rest of the previous one. `None`: the end
    /// of the archive. After an error there is nothing more to read.
    pub fn next_member(&mut self) -> Result<Option<Member>> {
        self.left = 0;
        while let Some((offset, len)) = self.walker.wants() {
            self.skip_to(offset)?;
            self.scratch.resize(len, 0);
            let mut piece = std::mem::take(&mut self.scratch);
            let step = match self.fill(&mut piece) {
                Ok(true) => self.walker.give(&piece),
                Ok(false) => Ok(Step::End),
                Err(e) => Err(e),
            };
            self.scratch = piece;
            let step = step?;
            if matches!(step, Step::End) {
                return Ok(None);
            }
            if let Step::Member(member) = step {
                self.members += 1;
                if self.members > self.most_members {
                    return Err(damaged(format!(
                        "the archive has more than {} members",
                        self.most_members
                    )));
                }
                self.left = member.size;
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// Reads the rest of the current member's data; fails if that is more than `max` bytes.
    pub fn read_member(&mut self, max: u64) -> Result<Vec<u8>> {
        if self.left > max {
            return Err(Error::invalid(format!(
                "the member that ends at byte {} has {} bytes; the limit is {max}",
                self.at + self.left,
                self.left
            )));
        }
        if self.left <= FIRST {
            let mut data = vec![0; self.left as usize];
            self.fill_whole(&mut data)?;
            self.left = 0;
            return Ok(data);
        }
        let mut data = Vec::with_capacity(FIRST as usize);
        self.read_to_end(&mut data).map_err(from_io)?;
        Ok(data)
    }

    fn skip_to(&mut self, offset: u64) -> Result<()> {
        while self.at < offset {
            let step = (offset - self.at).min(SKIP_CHUNK_BYTES as u64) as usize;
            self.scratch.resize(step, 0);
            let mut scratch = std::mem::take(&mut self.scratch);
            let skipped = self.fill_whole(&mut scratch);
            self.scratch = scratch;
            skipped?;
        }
        Ok(())
    }

    /// Fills `buf`, or fails where the archive ended. `false`: it ended at an allowed position.
    fn fill(&mut self, mut buf: &mut [u8]) -> Result<bool> {
        while !buf.is_empty() {
            let n = self.take(buf)?;
            if n == 0 {
                let may_end = self.left == 0 && self.walker.may_end_at(self.at);
                return if may_end { Ok(false) } else { Err(self.walker.ended(self.at)) };
            }
            buf = &mut buf[n..];
        }
        Ok(true)
    }

    fn fill_whole(&mut self, buf: &mut [u8]) -> Result<()> {
        match self.fill(buf)? {
            true => Ok(()),
            false => Err(self.walker.ended(self.at)),
        }
    }

    fn take(&mut self, buf: &mut [u8]) -> Result<usize> {
        loop {
            match self.input.read(buf) {
                Ok(n) => {
                    self.at += n as u64;
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A truncated compressed stream.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.walker.ended(self.at));
                }
                Err(e) => return Err(from_io(e)),
            }
        }
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = self.left.min(buf.len() as u64) as usize;
        if most == 0 {
            return Ok(0);
        }
        let n = self.take(&mut buf[..most]).map_err(into_io)?;
        if n == 0 {
            return Err(into_io(self.walker.ended(self.at)));
        }
        self.left -= n as u64;
        Ok(n)
    }
}
