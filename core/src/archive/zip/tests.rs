//! Promises of the zip reader, with the `zip` crate as the other opinion.
#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Read, Write};

use ::zip::write::{FullFileOptions, SimpleFileOptions};
use ::zip::{CompressionMethod, DateTime, ZipWriter};
use proptest::prelude::*;

use super::*;
use crate::archive::{
    ArchiveFormat, Limits, Member, ReadAt, ShardIndex, Stat, from_io, read_index,
};
use crate::error::ErrorCode;

fn options(stored: bool) -> SimpleFileOptions {
    let method = if stored { CompressionMethod::Stored } else { CompressionMethod::Deflated };
    SimpleFileOptions::default().compression_method(method)
}

fn build(files: &[(String, Vec<u8>, bool, bool)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data, stored, large) in files {
        zip.start_file(name.as_str(), options(*stored).large_file(*large)).unwrap();
        zip.write_all(data).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn index(bytes: &[u8]) -> Result<ShardIndex> {
    read_index(ArchiveFormat::Zip, &bytes, &Limits::default())
}

fn data(bytes: &[u8], index: &ShardIndex, member: &Member) -> Result<Vec<u8>> {
    let packed = index.packed(member).unwrap();
    let range = data_range(&bytes, member, &packed)?;
    let part = &bytes[range.start as usize..range.end as usize];
    let mut out = Vec::new();
    // Nobody believes the size that is told.
    let mut input = unpack(member, &packed, part)?.take(1 << 20);
    input.read_to_end(&mut out).map_err(from_io)?;
    Ok(out)
}

fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let index = index(bytes)?;
    let each = index.members.iter().map(|m| Ok((m.name.clone(), data(bytes, &index, m)?)));
    each.collect()
}

fn files() -> impl Strategy<Value = Vec<(String, Vec<u8>, bool, bool)>> {
    let name = "[a-zà-ÿ一-丿./]{1,40}";
    let data = (0..3000usize, any::<u8>(), 1..300usize)
        .prop_map(|(n, seed, period)| (0..n).map(|i| seed ^ (i % period) as u8).collect());
    let one = (name, data, any::<bool>(), any::<bool>());
    proptest::collection::vec(one, 0..10).prop_map(|mut files| {
        for (i, file) in files.iter_mut().enumerate() {
            file.0 = format!("{i}{}", file.0.trim_end_matches('/'));
        }
        files
    })
}

proptest! {
    #[test]
    fn members_are_those_that_were_written(files in files(), before in 0..100usize) {
        let bytes = build(&files);
        let mut theirs = Vec::new();
        let mut archive = ::zip::ZipArchive::new(Cursor::new(bytes.as_slice())).unwrap();
        for i in 0..archive.len() {
            let mut file = archive.by_index(i).unwrap();
            let mut data = Vec::new();
            file.read_to_end(&mut data).unwrap();
            theirs.push((file.name().unwrap().into_owned(), data));
        }
        prop_assert_eq!(&read(&bytes).unwrap(), &theirs);
        // As of a program that unpacks itself.
        let prepended = [vec![b'#'; before], bytes].concat();
        prop_assert_eq!(&read(&prepended).unwrap(), &theirs);
        let found = index(&prepended).unwrap();
        prop_assert_eq!(&ShardIndex::decode(&found.encode()).unwrap(), &found);
    }

    #[test]
    fn an_archive_cut_off_is_an_error(files in files(), cut in any::<u32>()) {
        let bytes = build(&files);
        let cut = cut as usize % bytes.len();
        let error = index(&bytes[..cut]).unwrap_err();
        prop_assert_eq!(error.code, ErrorCode::InvalidArgument);
        prop_assert!(error.message.contains(&format!("ends at byte {cut} ")), "{}", error);
    }

    #[test]
    fn nothing_that_is_no_archive_panics(
        files in files(),
        changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..20),
        tail in any::<bool>(),
        mut noise in proptest::collection::vec(any::<u8>(), 0..500),
    ) {
        let mut bytes = build(&files);
        let whole = bytes.len();
        for (at, byte) in changes {
            let span = if tail { whole.min(300) } else { whole };
            bytes[whole - 1 - at as usize % span] = byte;
        }
        let _ = read(&bytes);
        noise.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0\x2e\0\0\0\0\0\0\0\0\0");
        let _ = read(&noise);
    }
}

#[test]
fn more_members_than_sixteen_bits_count_are_found() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for i in 0..70_000 {
        zip.start_file(i.to_string(), options(true)).unwrap();
    }
    let bytes = zip.finish().unwrap().into_inner();
    let found = index(&bytes).unwrap();
    assert_eq!(found.members.len(), 70_000);
    assert_eq!(data(&bytes, &found, found.get("69999").unwrap()).unwrap(), b"");
    let limits = Limits { members: 100, ..Limits::default() };
    let error = read_index(ArchiveFormat::Zip, &bytes.as_slice(), &limits).unwrap_err();
    assert!(error.message.contains("more than 100 members"), "{error}");
}

#[test]
fn folders_and_links_are_no_members() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.add_directory("dir", options(true)).unwrap();
    zip.add_symlink("dir/link", "/etc/passwd", options(true)).unwrap();
    zip.start_file("../dir/file", options(true).unix_permissions(0o600)).unwrap();
    zip.write_all(b"x").unwrap();
    let bytes = zip.finish().unwrap().into_inner();
    assert_eq!(read(&bytes).unwrap(), [("../dir/file".to_owned(), b"x".to_vec())]);
}

/// The time and mode of one file, of 2020-01-02 03:04:06 and 0640 as its headers have it, with these
/// extra fields.
fn stat(extra: &[(u16, &[u8])]) -> Stat {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let time = DateTime::from_date_and_time(2020, 1, 2, 3, 4, 6).unwrap();
    let mut options = FullFileOptions::default().last_modified_time(time).unix_permissions(0o640);
    for (id, data) in extra {
        options.add_extra_field(*id, data, true).unwrap();
    }
    zip.start_file("f", options).unwrap();
    let bytes = zip.finish().unwrap().into_inner();
    index(&bytes).unwrap().members[0].stat
}

#[test]
fn the_extended_timestamp_goes_before_the_time_of_dos() {
    let dos = Stat { mtime: 1_577_934_246, mode: 0o640, local: true };
    assert_eq!(stat(&[]), dos);
    let exact = |mtime| Stat { mtime, local: false, ..dos };
    let times = |flags: u8, at: i32| [&[flags][..], &at.to_le_bytes()].concat();
    assert_eq!(stat(&[(0x5455, &times(1, 1_700_000_001))]), exact(1_700_000_001));
    let behind = stat(&[(0xbeef, b"other"), (0x5455, &times(3, 7)), (0xbeef, b"")]);
    assert_eq!(behind, exact(7));
    assert_eq!(stat(&[(0x5455, &times(1, -7))]), exact(0), "before 1970");
    assert_eq!(stat(&[(0x5455, &times(2, 7))]), dos, "the time of the last access");
    for short in [&b""[..], b"\x01", b"\x01\0\0\0"] {
        assert_eq!(stat(&[(0x5455, short)]), dos);
    }
    assert_eq!(stat(&[(0xbeef, b""), (0xbeef, b"\x55")]), dos);
}

#[test]
fn a_member_made_elsewhere_than_on_unix_has_no_mode_of_its_own() {
    let bytes = altered(true, 5, &[0]);
    assert_eq!(index(&bytes).unwrap().members[0].stat.mode, 0o644);
    let bytes = altered(true, 40, &[0, 0]);
    assert_eq!(index(&bytes).unwrap().members[0].stat.mode, 0o644);
    // Python writes no type beside the mode.
    let bytes = altered(true, 40, &0o600u16.to_le_bytes());
    assert_eq!(index(&bytes).unwrap().members[0].stat.mode, 0o600);
    // A date of zeroes.
    let bytes = altered(true, 12, &[0; 4]);
    assert_eq!(index(&bytes).unwrap().members[0].stat.mtime, 0);
}

/// The archive of one file with a field of its directory entry changed.
fn altered(stored: bool, at: usize, field: &[u8]) -> Vec<u8> {
    let content = b"some text, some text, some text".to_vec();
    let mut bytes = build(&[("f".into(), content, stored, false)]);
    let entry = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    bytes[entry + at..][..field.len()].copy_from_slice(field);
    bytes
}

#[test]
fn what_cannot_be_unpacked_is_refused_by_name() {
    for (at, field, says) in [
        (8, [1u8, 0], "\"f\" is encrypted"),
        (10, [12, 0], "\"f\" is compressed by bzip2"),
        (10, [93, 0], "\"f\" is compressed by zstd"),
        (10, [77, 0], "\"f\" is compressed by method 77"),
        (8, [0, 0x20], "directory is encrypted"),
    ] {
        let error = read(&altered(false, at, &field)).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported);
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn what_the_directory_says_is_checked_against_the_data() {
    for stored in [true, false] {
        let error = read(&altered(stored, 16, &[1, 2, 3, 4])).unwrap_err();
        assert!(error.message.contains("\"f\" fails its checksum"), "{error}");
        assert!(read(&altered(stored, 24, &[30, 0, 0, 0])).is_err());
        assert!(read(&altered(stored, 24, &[40, 0, 0, 0])).is_err());
        assert!(read(&altered(stored, 42, &[0, 0, 1, 0])).is_err());
        assert!(read(&altered(stored, 42, &[1, 0, 0, 0])).is_err());
    }
    let error = index(&altered(false, 24, &[0, 0, 0, 64])).unwrap_err();
    assert!(error.message.contains("member \"f\" unpacks"), "{error}");
}

#[test]
fn members_that_claim_the_same_bytes_again_and_again_are_refused() {
    let zeros = vec![0; 900_000];
    let bytes = build(&[("f".into(), zeros, false, false)]);
    let at = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let end = bytes.windows(4).rposition(|w| w == b"PK\x05\x06").unwrap();
    let (entry, mut record) = (&bytes[at..end], bytes[end..].to_vec());
    let count = 20_000u16;
    let len = entry.len() as u32 * u32::from(count);
    record[8..10].copy_from_slice(&count.to_le_bytes());
    record[10..12].copy_from_slice(&count.to_le_bytes());
    record[12..16].copy_from_slice(&len.to_le_bytes());
    let bomb = [&bytes[..at], &entry.repeat(usize::from(count)), &record].concat();
    assert!(bomb.len() < 2_000_000);
    let error = index(&bomb).unwrap_err();
    assert!(error.message.contains("for one is refused"), "{error}");
    assert_eq!((&bomb.as_slice()).size(), bomb.len() as u64);
}
