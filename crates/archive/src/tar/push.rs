//! Builds the index of a TAR from its bytes as they stream by, in chunks of any size.

use forebay_core::error::{Error, Result};
use forebay_core::shard::ArchiveFormat;

use super::walker::{Step, Walker};
use crate::index::{Members, ShardIndex};
use crate::limits::Limits;

/// Collects the members of a TAR that is fed to it from its first byte on.
pub struct TarIndexer {
    format: ArchiveFormat,
    walker: Walker,
    /// Bytes fed so far.
    at: u64,
    /// The beginning of a block that spans two feeds.
    held: Vec<u8>,
    members: Members,
}

impl TarIndexer {
    /// `format` is the format recorded in the index; the bytes fed are those of the TAR itself.
    pub fn new(format: ArchiveFormat, limits: Limits) -> Self {
        let members = Members::new(&limits);
        Self { format, walker: Walker::new(limits), at: 0, held: Vec::new(), members }
    }

    /// Feeds the next bytes. After an error the archive has no index.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let Some((offset, len)) = self.walker.wants() else {
                self.at += bytes.len() as u64;
                return Ok(());
            };
            // `at` is the offset of the wanted block plus the bytes held of it, or an earlier
            // offset.
            let skipped = (offset + self.held.len() as u64 - self.at).min(bytes.len() as u64);
            bytes = &bytes[skipped as usize..];
            self.at += skipped;
            if bytes.is_empty() {
                return Ok(());
            }
            let (head, rest) = bytes.split_at((len - self.held.len()).min(bytes.len()));
            self.at += head.len() as u64;
            bytes = rest;
            if self.held.is_empty() && head.len() == len {
                self.step(head)?;
                continue;
            }
            self.held.extend_from_slice(head);
            if self.held.len() == len {
                let piece = std::mem::take(&mut self.held);
                self.step(&piece)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, piece: &[u8]) -> Result<()> {
        match self.walker.give(piece)? {
            Step::Member(member) => self.members.push(member),
            Step::Other | Step::End => Ok(()),
        }
    }

    /// Whether the end marker of the archive was seen.
    pub fn is_complete(&self) -> bool {
        self.walker.wants().is_none()
    }

    /// The error for an archive that ends after the bytes fed.
    pub fn ended(&self) -> Error {
        self.walker.ended(self.at)
    }

    /// Returns the index, if the bytes fed are a complete archive.
    pub fn finish(self) -> Result<ShardIndex> {
        if !self.is_complete() && !self.walker.may_end_at(self.at) {
            return Err(self.ended());
        }
        Ok(ShardIndex::new(self.format, self.members.list))
    }
}
