//! Structure of TAR: headers before members, padding behind them, two empty blocks at the end.

use bytes::{Bytes, BytesMut};
use forebay_core::shard::{Stat, names};

const BLOCK: usize = 512;
/// Longest name that fits the header itself.
const NAME_FIELD: usize = 100;

/// The end of an archive.
pub(super) static END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Header of a regular file (ustar); names that do not fit get a PAX header before it. A name of
/// another archive that is not UTF-8 keeps its bytes.
pub(super) fn header(name: &str, size: u64, stat: Stat) -> Bytes {
    let name = names::raw(name);
    let mut out = BytesMut::with_capacity(BLOCK);
    if name.len() > NAME_FIELD {
        let record = pax_record("path", &name);
        let pax = block(b"pax", record.len() as u64, Stat::default(), tar::EntryType::XHeader);
        out.extend_from_slice(pax.as_bytes());
        out.extend_from_slice(&record);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let short = &name[..name.len().min(NAME_FIELD)];
    out.extend_from_slice(block(short, size, stat, tar::EntryType::Regular).as_bytes());
    out.freeze()
}

/// Zeroes that fill a member of `size` bytes up to a whole block.
pub(super) fn padding(size: u64) -> &'static [u8] {
    let rest = (size % BLOCK as u64) as usize;
    if rest == 0 { &[] } else { &END[..BLOCK - rest] }
}

fn block(name: &[u8], size: u64, stat: Stat, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_size(size);
    header.set_mode(u32::from(stat.mode));
    header.set_uid(0);
    header.set_gid(0);
    // At most 32 bits: the field's digits hold 33.
    header.set_mtime(u64::from(stat.mtime));
    header.set_entry_type(kind);
    header.set_cksum();
    header
}

/// `"<length> key=value\n"`, where the length counts itself (POSIX pax, extended header).
fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [format!(" {key}=").as_bytes(), value, b"\n"].concat();
    let mut len = rest.len() + 1;
    while len != rest.len() + len.to_string().len() {
        len = rest.len() + len.to_string().len();
    }
    [len.to_string().into_bytes(), rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_its_own_digits() {
        for value in 0..300 {
            let record = pax_record("path", "v".repeat(value).as_bytes());
            assert!(record.starts_with(format!("{} path=", record.len()).as_bytes()));
        }
    }

    #[test]
    fn a_member_ends_at_a_whole_block() {
        for (size, zeroes) in [(0, 0), (1, 511), (511, 1), (512, 0), (513, 511)] {
            assert_eq!(padding(size).len(), zeroes, "{size}");
        }
    }
}
