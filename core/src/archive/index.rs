//! The index of a shard: its members in the archive's order, in memory and as bytes.
//!
//! ```text
//! magic "FBSHARDX" | format u16 | archive u8 | 0 u8 | number of members u64 | members | CRC-32C u32
//! member: length of name u32 | name | offset u64 | size u64 | mtime u32 | mode u16
//!         | sparse u8 [| zip: method u16 | flags u16 | packed u64 | CRC-32 u32]
//! ```
//! `mtime` and `mode` are as in [`Stat`]; bit 15 of the mode says that the time is local.
//! Numbers are little-endian; the CRC covers everything before it.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::damaged;
use super::format::ArchiveFormat;
use super::limits::Limits;
use super::names;
use super::stat::Stat;
use crate::checksum::crc32c;
use crate::error::{Error, ErrorCode, Result};

/// Version of the layout above. An index of another version is ignored and built again.
pub const INDEX_FORMAT: u16 = 3;
const MAGIC: &[u8; 8] = b"FBSHARDX";
const HEAD: usize = 20;
/// Bytes of a member without its name.
const FIXED: usize = 27;
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

    /// Encodes the index for storage.
    pub fn encode(&self) -> Vec<u8> {
        let names: usize = self.members.iter().map(|m| m.name.len()).sum();
        let mut out = Vec::with_capacity(HEAD + 4 + names + 45 * self.members.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&INDEX_FORMAT.to_le_bytes());
        out.extend_from_slice(&[code(self.format), 0]);
        out.extend_from_slice(&(self.members.len() as u64).to_le_bytes());
        for (number, member) in self.members.iter().enumerate() {
            out.extend_from_slice(&(member.name.len() as u32).to_le_bytes());
            out.extend_from_slice(member.name.as_bytes());
            out.extend_from_slice(&member.offset.to_le_bytes());
            out.extend_from_slice(&member.size.to_le_bytes());
            let (mtime, mode) = member.stat.into();
            out.extend_from_slice(&mtime.to_le_bytes());
            out.extend_from_slice(&mode.to_le_bytes());
            out.push(member.is_sparse.into());
            if self.format == ArchiveFormat::Zip {
                let packed = self.packed.get(number).copied().unwrap_or_default();
                out.extend_from_slice(&packed.method.to_le_bytes());
                out.extend_from_slice(&packed.flags.to_le_bytes());
                out.extend_from_slice(&packed.size.to_le_bytes());
                out.extend_from_slice(&packed.crc32.to_le_bytes());
            }
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the output of [`Self::encode`]; [`ErrorCode::Corrupt`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| broken("is cut off"))?;
        let mut fields = Fields(body);
        if fields.take::<8>()? != *MAGIC {
            return Err(broken("has no magic"));
        }
        let format = u16::from_le_bytes(fields.take()?);
        if format != INDEX_FORMAT {
            return Err(broken(&format!("has format {format}, not {INDEX_FORMAT}")));
        }
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(broken("fails its checksum"));
        }
        let [archive, _] = fields.take()?;
        let format = decode_format(archive)?;
        let count = u64::from_le_bytes(fields.take()?);
        // Checked against the available bytes before anything is allocated for it.
        if count > (fields.0.len() / FIXED) as u64 || count > u64::from(u32::MAX) {
            return Err(broken("has an impossible number of members"));
        }
        let mut members = Vec::with_capacity(count as usize);
        let mut packed = Vec::new();
        for _ in 0..count {
            let len = u32::from_le_bytes(fields.take()?) as usize;
            let name = fields.text(len)?;
            let offset = u64::from_le_bytes(fields.take()?);
            let size = u64::from_le_bytes(fields.take()?);
            let mtime = u32::from_le_bytes(fields.take()?);
            let mode = u16::from_le_bytes(fields.take()?);
            let [sparse] = fields.take()?;
            let (stat, is_sparse) = ((mtime, mode).into(), sparse != 0);
            members.push(Member { name, offset, size, stat, is_sparse });
            if format == ArchiveFormat::Zip {
                packed.push(Packed {
                    method: u16::from_le_bytes(fields.take()?),
                    flags: u16::from_le_bytes(fields.take()?),
                    size: u64::from_le_bytes(fields.take()?),
                    crc32: u32::from_le_bytes(fields.take()?),
                });
            }
        }
        if !fields.0.is_empty() {
            return Err(broken("has bytes to spare"));
        }
        Ok(Self { packed, ..Self::new(format, members) })
    }
}

fn key(member: &Member) -> (&str, u64, u64, (u32, u16)) {
    (&member.name, member.offset, member.size, member.stat.into())
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| broken("is cut off"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn text(&mut self, len: usize) -> Result<String> {
        let (head, rest) = self.0.split_at_checked(len).ok_or_else(|| broken("is cut off"))?;
        self.0 = rest;
        String::from_utf8(head.to_vec()).map_err(|_| broken("holds text not in UTF-8"))
    }
}

const FORMATS: [ArchiveFormat; 5] = [
    ArchiveFormat::Tar,
    ArchiveFormat::TarGz,
    ArchiveFormat::TarLz4,
    ArchiveFormat::TarZst,
    ArchiveFormat::Zip,
];

fn code(format: ArchiveFormat) -> u8 {
    FORMATS.iter().position(|f| *f == format).map_or(0, |i| i as u8 + 1)
}

fn decode_format(code: u8) -> Result<ArchiveFormat> {
    let number = usize::from(code).checked_sub(1);
    let format = number.and_then(|n| FORMATS.get(n)).copied();
    format.ok_or_else(|| broken("is of an unknown kind of archive"))
}

fn broken(what: &str) -> Error {
    Error::new(ErrorCode::Corrupt, format!("a kept shard index {what}"))
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
    use proptest::prelude::*;

    use super::*;

    fn member(name: &str, offset: u64) -> Member {
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

    #[test]
    fn an_index_of_an_older_format_is_refused_and_so_made_again() {
        let mut first = MAGIC.to_vec();
        first.extend([1, 0, 1, 0]);
        first.extend(1u64.to_le_bytes());
        first.extend([1, 0, 0, 0, b'a']);
        first.extend([512u64.to_le_bytes(), 3u64.to_le_bytes()].concat());
        first.extend(crc32c(&first).to_le_bytes());
        let error = ShardIndex::decode(&first).unwrap_err();
        assert_eq!(error.code, ErrorCode::Corrupt);
        assert!(error.message.contains("has format 1, not 3"), "{error}");
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded_and_a_flipped_bit_is_found(
            names in proptest::collection::vec(".{0,30}", 0..20),
            zip in any::<bool>(),
            flip in any::<(u32, u8)>(),
        ) {
            let list = names.iter().enumerate().map(|(i, n)| member(n, i as u64 * 7)).collect();
            let index = match zip {
                true => {
                    let packed = Packed { method: 8, flags: 1, size: 1 << 40, crc32: 7 };
                    ShardIndex::zip(list, vec![packed; names.len()])
                }
                false => ShardIndex::new(ArchiveFormat::TarZst, list),
            };
            let mut bytes = index.encode();
            prop_assert_eq!(&ShardIndex::decode(&bytes).unwrap(), &index);
            let bits = bytes.len() as u32 * 8;
            let bit = (flip.0 % bits) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = ShardIndex::decode(&bytes).unwrap_err();
            prop_assert_eq!(error.code, ErrorCode::Corrupt);
            bytes.truncate(bit / 8);
            prop_assert!(ShardIndex::decode(&bytes).is_err());
        }

        #[test]
        fn noise_with_a_good_checksum_is_refused_without_a_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut whole = MAGIC.to_vec();
            whole.extend(INDEX_FORMAT.to_le_bytes());
            whole.append(&mut bytes);
            let crc = crc32c(&whole);
            whole.extend(crc.to_le_bytes());
            let _ = ShardIndex::decode(&whole);
        }
    }
}
