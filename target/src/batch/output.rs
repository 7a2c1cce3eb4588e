//! TAR as it goes out: headers before members, padding behind them, two empty blocks at the end.

use bytes::{Bytes, BytesMut};

const BLOCK: usize = 512;
/// Longest name that the header itself holds.
const NAME_FIELD: usize = 100;

/// Header of a regular file (ustar, mode 0644); names that do not fit get a PAX header before it.
pub(crate) fn tar_header(name: &str, size: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(BLOCK);
    if name.len() > NAME_FIELD {
        let record = pax_record("path", name);
        out.extend_from_slice(
            header(b"pax", record.len() as u64, tar::EntryType::XHeader).as_bytes(),
        );
        out.extend_from_slice(record.as_bytes());
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let short = &name.as_bytes()[..name.len().min(NAME_FIELD)];
    out.extend_from_slice(header(short, size, tar::EntryType::Regular).as_bytes());
    out.freeze()
}

/// Zeroes that fill a member of `size` bytes up to a whole block.
pub(crate) fn tar_padding(size: u64) -> Bytes {
    static ZEROES: [u8; BLOCK] = [0; BLOCK];
    let rest = (size % BLOCK as u64) as usize;
    Bytes::from_static(if rest == 0 { &[] } else { &ZEROES[rest..] })
}

/// The end of an archive.
pub(crate) fn tar_end() -> Bytes {
    Bytes::from_static(&[0; 2 * BLOCK])
}

fn header(name: &[u8], size: u64, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // The name's bytes go in as they are: a member's name is a key here, not a path.
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_entry_type(kind);
    header.set_cksum();
    header
}

/// `"<length> key=value\n"`, where the length counts itself (POSIX pax, extended header).
fn pax_record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut len = rest.len() + 1;
    while len != rest.len() + len.to_string().len() {
        len = rest.len() + len.to_string().len();
    }
    format!("{len}{rest}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_tar_crate_reads_back_any_name_and_size() {
        let long = "d/".repeat(400) + "x";
        let names = ["a", "b/ünï", &"n".repeat(100), &"n".repeat(101), &long, "__404__/b/none"];
        let mut archive = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let data = vec![7u8; i * 300];
            archive.extend_from_slice(&tar_header(name, data.len() as u64));
            archive.extend_from_slice(&data);
            archive.extend_from_slice(&tar_padding(data.len() as u64));
        }
        archive.extend_from_slice(&tar_end());
        let mut reader = tar::Archive::new(&archive[..]);
        for (i, entry) in reader.entries().unwrap().enumerate() {
            let mut entry = entry.unwrap();
            assert_eq!(entry.path_bytes(), names[i].as_bytes());
            let mut data = Vec::new();
            entry.read_to_end(&mut data).unwrap();
            assert_eq!(data, vec![7u8; i * 300]);
        }
    }
}
