//! The index of a shard as stored bytes.
//!
//! ```text
//! magic "FBSHARDX" | format u16 | archive u8 | 0 u8 | number of members u64 | members | CRC-32C u32
//! member: length of name u32 | name | offset u64 | size u64 | mtime u32 | mode u16
//!         | sparse u8 [| zip: method u16 | flags u16 | packed u64 | CRC-32 u32]
//! ```
//! `mtime` and `mode` are as in [`Stat`](forebay_core::Stat); bit 15 of the mode says that the
//! time is local. Numbers are little-endian; the CRC covers everything before it.

use forebay_core::checksum::crc32c;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::shard::ArchiveFormat;

use super::{Member, Packed, ShardIndex};

/// Version of the layout above. An index of another version is ignored and built again.
pub const INDEX_FORMAT: u16 = 3;
const MAGIC: &[u8; 8] = b"FBSHARDX";
const HEAD: usize = 20;
/// Bytes of a member without its name.
const FIXED: usize = 27;

impl ShardIndex {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::member;
    use super::*;

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
