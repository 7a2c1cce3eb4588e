//! The index of a shard: its members in the archive's order, found by name.

mod encoding;

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

pub use self::encoding::INDEX_FORMAT;
use forebay_core::error::{Error, Result};
use forebay_core::shard::{ArchiveFormat, Stat, names};

use super::damaged;
use super::limits::Limits;

/// Memory of a member besides its name: the struct, the heap's overhead, its entry in the order.
const OVERHEAD: u64 = 80;

/// One file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name as the archive has it; never used as a path.
    pub name: String,
    /// Offset of its data in the (uncompressed) TAR. For zip, offset of its header in the file.
    pub offset: u64,
    /// Bytes of its data, unpacked.
    pub size: u64,
    /// Its time and mode.
    pub stat: Stat,
    /// Whether it is a sparse file, of which the archive has the data without holes and a map: its
    /// `size` bytes are not the file's data.
    pub is_sparse: bool,
}

impl Member {
    /// Refuses a member whose data cannot be read.
    pub fn check_readable(&self) -> Result<()> {
        if !self.is_sparse {
            return Ok(());
        }
        let what =
            format!("member \"{}\" is stored as a sparse file, which is not read", self.name);
        Err(Error::unsupported(what).hint("write the archive without --sparse"))
    }
}

/// How the data of a member is stored in a zip archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    pub method: u16,
    pub flags: u16,
    /// Bytes in the file.
    pub size: u64,
    pub crc32: u32,
}

/// The members of one archive.
#[derive(Debug)]
pub struct ShardIndex {
    pub format: ArchiveFormat,
    /// In the archive's order; two may have the same name.
    pub members: Vec<Member>,
    /// For a zip archive, parallel to `members`.
    packed: Vec<Packed>,
    /// Numbers of members sorted by name, then by offset; computed at first use.
    by_name: OnceLock<Vec<u32>>,
}

impl PartialEq for ShardIndex {
    fn eq(&self, other: &Self) -> bool {
        self.format == other.format && self.members == other.members && self.packed == other.packed
    }
}

impl ShardIndex {
    /// The index of an archive of the TAR family.
    pub fn new(format: ArchiveFormat, members: Vec<Member>) -> Self {
        Self { format, members, packed: Vec::new(), by_name: OnceLock::new() }
    }

    /// The index of a zip archive.
    pub(crate) fn zip(members: Vec<Member>, packed: Vec<Packed>) -> Self {
        Self { packed, ..Self::new(ArchiveFormat::Zip, members) }
    }

    /// The first member of this name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        let number = *self.named(name).first()?;
        self.members.get(number as usize)
    }

    /// Like [`Self::get`]; a member of a zip archive may also be named by its raw bytes in the
    /// archive.
    pub fn requested(&self, name: &str) -> Option<&Member> {
        let by_bytes = || match self.format {
            ArchiveFormat::Zip => self.get(&names::requested_cp437(name)?),
            _ => None,
        };
        self.get(name).or_else(by_bytes)
    }

    /// Whether exactly this member is in the archive.
    pub fn has(&self, member: &Member) -> bool {
        self.number(member).is_some()
    }

    /// How a zip archive stores this member.
    pub fn packed(&self, member: &Member) -> Option<Packed> {
        self.packed.get(self.number(member)?).copied()
    }

    fn number(&self, member: &Member) -> Option<usize> {
        let (order, wanted) = (self.order(), Some(key(member)));
        let at = order.partition_point(|n| self.key_of(*n) < wanted);
        let number = *order.get(at)?;
        (self.key_of(number) == wanted).then_some(number as usize)
    }

    /// Approximate memory in bytes.
    pub fn memory(&self) -> u64 {
        let names: u64 = self.members.iter().map(|m| m.name.len() as u64).sum();
        let packed = size_of::<Packed>() as u64 * self.packed.len() as u64;
        names + OVERHEAD * self.members.len() as u64 + packed
    }

    /// Sorts the names, which the first lookup does otherwise: for millions of names that takes
    /// seconds.
    pub fn sort_names(&self) {
        self.order();
    }

    fn order(&self) -> &[u32] {
        self.by_name.get_or_init(|| {
            let mut order: Vec<u32> = (0..self.members.len() as u32).collect();
            order.sort_by(|a, b| self.key_of(*a).cmp(&self.key_of(*b)));
            order
        })
    }

    /// The sort key: members of one name are sorted by offset, so that each is found without
    /// scanning the others.
    fn key_of(&self, number: u32) -> Option<(&str, u64, u64, (u32, u16))> {
        self.members.get(number as usize).map(key)
    }

    fn named(&self, name: &str) -> &[u32] {
        let order = self.order();
        let start = order.partition_point(|n| self.name_of(*n) < name);
        let len = order[start..].partition_point(|n| self.name_of(*n) == name);
        &order[start..start + len]
    }

    fn name_of(&self, number: u32) -> &str {
        self.members.get(number as usize).map_or("", |m| &m.name)
    }
}

fn key(member: &Member) -> (&str, u64, u64, (u32, u16)) {
    (&member.name, member.offset, member.size, member.stat.into())
}

/// Collects members as they are found, within the limits.
pub(crate) struct Members {
    pub(crate) list: Vec<Member>,
    memory: u64,
    most_members: u64,
    most_memory: u64,
}

impl Members {
    pub(crate) fn new(limits: &Limits) -> Self {
        // Numbers of members are stored in 32 bits.
        let most_members = limits.members.min(u64::from(u32::MAX));
        Self { list: Vec::new(), memory: 0, most_members, most_memory: limits.index_bytes }
    }

    pub(crate) fn push(&mut self, member: Member) -> Result<()> {
        self.memory += OVERHEAD + member.name.len() as u64;
        if self.list.len() as u64 >= self.most_members || self.memory > self.most_memory {
            return Err(damaged(format!(
                "the archive has more than {} members, too many for an index",
                self.list.len()
            ))
            .hint("spread them over more archives"));
        }
        self.list.push(member);
        Ok(())
    }
}

/// Parameter of the index route that requests times and modes too.
pub const SHARD_STATS: &str = "stats";

/// Answer of the index route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardIndexReply {
    pub format: ArchiveFormat,
    /// The version of the object that the index belongs to.
    pub version: String,
    /// Bytes of the object.
    #[serde(default)]
    pub size: u64,
    /// Name, offset and size of each member, in the archive's order.
    pub members: Vec<(String, u64, u64)>,
    /// Time and mode of each, if [`SHARD_STATS`] requested them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stats: Vec<Stat>,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn member(name: &str, offset: u64) -> Member {
        let stat = Stat {
            local: offset.is_multiple_of(2),
            ..Stat::new(offset as i64 * 99, offset as u32)
        };
        Member {
            name: name.into(),
            offset,
            size: offset + 1,
            stat,
            is_sparse: offset.is_multiple_of(3),
        }
    }

    #[test]
    fn of_two_members_of_one_name_the_first_is_found_and_both_are_kept() {
        let members = vec![member("b", 1), member("a", 2), member("b", 3), member("", 4)];
        let index = ShardIndex::new(ArchiveFormat::Tar, members);
        assert_eq!(index.get("b"), Some(&member("b", 1)));
        assert_eq!(index.get("a"), Some(&member("a", 2)));
        assert_eq!(index.get(""), Some(&member("", 4)));
        assert_eq!(index.get("c"), None);
        assert!(index.has(&member("b", 3)) && !index.has(&member("b", 2)));
        assert!(index.memory() > 3);
        assert_eq!(ShardIndex::new(ArchiveFormat::Tar, Vec::new()).get("a"), None);
    }

    #[test]
    fn a_member_among_many_of_its_name_is_found_by_its_place() {
        let members: Vec<Member> = (0..50_000).map(|n| member("same", 512 * n)).collect();
        let index = ShardIndex::new(ArchiveFormat::Tar, members.clone());
        // A scan over the others would be 10^9 comparisons.
        assert!(members.iter().all(|member| index.has(member)));
        assert_eq!(index.get("same"), members.first());
        assert!(!index.has(&member("same", 511)) && !index.has(&member("other", 512)));
    }
}
