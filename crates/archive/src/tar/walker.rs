//! The steps through a TAR, independent of how its bytes are read: the next block to read, and its
//! meaning.

use forebay_core::error::{Error, Result};
use forebay_core::shard::{Stat, names};

use super::BLOCK;
use super::header::{self, Header, Kind, Pax};
use crate::damaged;
use crate::index::Member;
use crate::limits::Limits;

/// The meaning of the bytes that were passed in.
#[derive(Debug)]
pub(super) enum Step {
    /// A regular file; its data follows.
    Member(Member),
    /// An entry that is skipped.
    Other,
    /// The end of the archive.
    End,
}

/// Walks from header to header. The caller reads the block that [`Walker::wants`] returns and
/// passes it to [`Walker::give`].
pub(super) struct Walker {
    limits: Limits,
    /// Offset of the next block to read.
    at: u64,
    want: Want,
    /// Values of extension headers for the next entry.
    long_name: Option<Vec<u8>>,
    pax: Pax,
    /// A sparse file whose map is being skipped.
    sparse: Option<Member>,
    /// The last member and where its data ends, for messages.
    last: Option<(String, u64)>,
}

#[derive(Clone, Copy)]
enum Want {
    Header,
    Pax(usize),
    LongName(usize),
    SparseMap,
    Nothing,
}

impl Walker {
    pub(super) fn new(limits: Limits) -> Self {
        let pax = Pax::default();
        let (long_name, sparse, last) = (None, None, None);
        Self { limits, at: 0, want: Want::Header, long_name, pax, sparse, last }
    }

    /// Offset and length of the next block to read. `None` after the end of the archive.
    pub(super) fn wants(&self) -> Option<(u64, usize)> {
        match self.want {
            Want::Header | Want::SparseMap => Some((self.at, BLOCK)),
            Want::Pax(len) | Want::LongName(len) => Some((self.at, len)),
            Want::Nothing => None,
        }
    }

    /// Processes the block that was requested.
    pub(super) fn give(&mut self, piece: &[u8]) -> Result<Step> {
        match self.want {
            Want::Header => {
                let block = piece
                    .first_chunk::<BLOCK>()
                    .ok_or_else(|| Error::internal("less than a TAR header was given"))?;
                return self.header(block);
            }
            Want::Pax(len) => {
                self.pax.read(piece, self.limits.pax_records, self.at)?;
                self.pass(len as u64)?;
            }
            Want::LongName(len) => {
                self.long_name = Some(header::until_nul(piece).to_vec());
                self.pass(len as u64)?;
            }
            Want::SparseMap => return self.sparse_map(piece),
            Want::Nothing => return Ok(Step::End),
        }
        self.want = Want::Header;
        Ok(Step::Other)
    }

    fn sparse_map(&mut self, block: &[u8]) -> Result<Step> {
        self.at = self.advanced(BLOCK as u64)?;
        if header::sparse_map_goes_on(block) {
            return Ok(Step::Other);
        }
        self.want = Want::Header;
        match self.sparse.take() {
            Some(member) => self.member(Member { offset: self.at, ..member }),
            None => Err(Error::internal("a sparse map of no member")),
        }
    }

    /// A member whose data begins here.
    fn member(&mut self, member: Member) -> Result<Step> {
        self.last = Some((member.name.clone(), member.offset.saturating_add(member.size)));
        self.pass(member.size)?;
        Ok(Step::Member(member))
    }

    fn header(&mut self, block: &[u8; BLOCK]) -> Result<Step> {
        if block == &[0; BLOCK] {
            self.want = Want::Nothing;
            return Ok(Step::End);
        }
        let found = header::decode(block, self.at)?;
        self.at = self.advanced(BLOCK as u64)?;
        match found.kind {
            Kind::Pax => self.want = Want::Pax(self.extension(found.size)?),
            Kind::LongName => self.want = Want::LongName(self.extension(found.size)?),
            _ => return self.entry(found),
        }
        Ok(Step::Other)
    }

    /// An entry, under the name, size and time that its extension headers gave it.
    fn entry(&mut self, found: Header) -> Result<Step> {
        let pax = std::mem::take(&mut self.pax);
        let long_name = self.long_name.take();
        let is_sparse = found.kind == Kind::Sparse || pax.sparse.is_some();
        let real_name = pax.sparse.filter(|name| !name.is_empty());
        let name = real_name.or(pax.path).or(long_name).unwrap_or(found.name);
        let size = pax.size.unwrap_or(found.size);
        if found.kind == Kind::Continued {
            return Err(Error::unsupported(format!(
                "member \"{}\" began in another volume of a multi-volume archive",
                names::text(&name)
            )));
        }
        if found.kind == Kind::Bare {
            return Ok(Step::Other);
        }
        if name.len() > self.limits.name_bytes {
            return Err(damaged(format!(
                "a member's name before byte {} has {} bytes; the limit is {}",
                self.at,
                name.len(),
                self.limits.name_bytes
            )));
        }
        let offset = self.at;
        let is_file = matches!(found.kind, Kind::Regular | Kind::Sparse)
            && !(found.old && name.ends_with(b"/"));
        if is_file {
            let mtime = pax.mtime.map(|at| Stat::new(at, 0).mtime);
            let stat = Stat { mtime: mtime.unwrap_or(found.stat.mtime), ..found.stat };
            let name = names::text(&name);
            let member = Member { name, offset, size, stat, is_sparse };
            if found.has_sparse_map {
                (self.sparse, self.want) = (Some(member), Want::SparseMap);
                return Ok(Step::Other);
            }
            return self.member(member);
        }
        // An old-style directory has no data either.
        if found.kind == Kind::Other {
            self.pass(size)?;
        }
        Ok(Step::Other)
    }

    /// The length of an extension header's data, if it is within the memory limit.
    fn extension(&self, size: u64) -> Result<usize> {
        if size > self.limits.header_bytes {
            return Err(damaged(format!(
                "an extension header before byte {} has {size} bytes; the limit is {}",
                self.at, self.limits.header_bytes
            )));
        }
        // Below the limit, which is far below what a pointer can address.
        Ok(size as usize)
    }

    /// Skips data of `size` bytes and its padding.
    fn pass(&mut self, size: u64) -> Result<()> {
        let padded = size.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX);
        self.at = self.advanced(padded)?;
        Ok(())
    }

    fn advanced(&self, by: u64) -> Result<u64> {
        self.at
            .checked_add(by)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or_else(|| damaged(format!("the entry at byte {} has an impossible size", self.at)))
    }

    /// Whether an archive of `len` bytes, all of which were passed in, is complete without an end
    /// marker: it ends after an entry, as some writers do.
    pub(super) fn may_end_at(&self, len: u64) -> bool {
        let is_behind_entry = self.long_name.is_none() && self.pax == Pax::default();
        matches!(self.want, Want::Header) && is_behind_entry && self.at > 0 && len == self.at
    }

    /// The error for an archive that ended at byte `at`, before the requested block.
    pub(super) fn ended(&self, at: u64) -> Error {
        match &self.last {
            Some((name, end)) if at < *end => {
                damaged(format!("the archive ends at byte {at} in the middle of member \"{name}\""))
            }
            _ => damaged(format!("the archive ends at byte {at} without its end marker")),
        }
        .hint("it was cut off: write it again")
    }
}
