//! Tests of the zip reader, compared with the `zip` crate.
#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Read, Write};

use ::zip::write::{FullFileOptions, SimpleFileOptions};
use ::zip::{CompressionMethod, DateTime, ZipWriter};
use forebay_core::error::ErrorCode;
use forebay_core::shard::{ArchiveFormat, Stat};
use proptest::prelude::*;

use super::*;
use crate::{Limits, Member, ReadAt, ShardIndex, from_io, read_index};

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
    // The declared size is not trusted.
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
        // As in a self-extracting archive.
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

/// The time and mode of one file whose headers contain 2020-01-02 03:04:06 and 0640, with these
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
fn an_extra_field_ends_within_its_entry() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut options = FullFileOptions::default();
    options.add_extra_field(0xbeef, b"1234", true).unwrap();
    zip.start_file("f", options).unwrap();
    let mut bytes = zip.finish().unwrap().into_inner();
    let entry = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let field = bytes.windows(2).rposition(|w| w == b"\xef\xbe").unwrap();
    // The size is in an extra field.
    bytes[entry + 24..][..4].fill(0xff);
    bytes[field + 2] = 5;
    assert_eq!(index(&bytes).unwrap_err().code, ErrorCode::InvalidArgument);
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

/// The archive of these files with other bytes in place of their names, which the entries do not
/// declare as UTF-8.
fn with_names(names: &[&[u8]]) -> Vec<u8> {
    let places = names.iter().zip('a'..).map(|(name, c)| c.to_string().repeat(name.len()));
    let files: Vec<_> = places.map(|name| (name.clone(), name.into_bytes(), true, false)).collect();
    let mut bytes = build(&files);
    for (place, name) in files.iter().zip(names) {
        let (mut at, from) = (0, place.0.as_bytes());
        while let Some(found) = bytes[at..].windows(from.len()).position(|w| w == from) {
            at += found;
            // Names follow zeros of their headers; the data follows the name.
            if bytes[..at].ends_with(&[0, 0]) {
                bytes[at..at + name.len()].copy_from_slice(name);
            }
            at += from.len();
        }
    }
    bytes
}

#[test]
fn names_without_an_encoding_are_utf8_if_all_are_and_code_page_437_otherwise() {
    let names = |names: &[&[u8]]| {
        let found = index(&with_names(names)).unwrap();
        found.members.into_iter().map(|m| m.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&["für.t".as_bytes(), "一.txt".as_bytes()]), ["für.t", "一.txt"]);
    assert_eq!(names(&[b"\x82.txt", b"\x81.txt", b"plain"]), ["é.txt", "ü.txt", "plain"]);
    // One name of each kind: both are read as the format's default.
    assert_eq!(names(&["é.txt".as_bytes(), b"\x82.text"]), ["├⌐.txt", "é.text"]);
    let found = index(&with_names(&[b"\x82.txt", b"\xc4\xe3.t"])).unwrap();
    assert_eq!(found.requested("é.txt"), found.members.first());
    assert_eq!(
        found.requested(&forebay_core::shard::names::text(b"\x82.txt")),
        found.members.first()
    );
    assert_eq!(found.requested(&forebay_core::shard::names::text(b"\x83.txt")), None);
}

#[test]
fn the_unicode_field_goes_before_a_name_in_another_encoding() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let crc = |name: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, name) as u32;
    let field = |crc: u32| [&[1][..], &crc.to_le_bytes(), "日本.txt".as_bytes()].concat();
    for (name, crc) in [("????.txt", crc(b"????.txt")), ("????.bin", 7)] {
        let mut options = FullFileOptions::default();
        options.add_extra_field(0x7075, field(crc), true).unwrap();
        zip.start_file(name, options).unwrap();
    }
    let mut bytes = zip.finish().unwrap().into_inner();
    let swap = |bytes: &mut Vec<u8>, from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).rposition(|w| w == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
    };
    // An ASCII name stays; an extra field of another name is ignored.
    assert_eq!(index(&bytes).unwrap().members[0].name, "????.txt");
    swap(&mut bytes, b"????.bin", b"\x82\x82\x82\x82.bin");
    assert_eq!(index(&bytes).unwrap().members[1].name, "éééé.bin");
    let (old, new) = (crc(b"????.txt").to_le_bytes(), crc(b"\x82\x82\x82\x82.txt").to_le_bytes());
    swap(&mut bytes, b"????.txt", b"\x82\x82\x82\x82.txt");
    swap(&mut bytes, &old, &new);
    assert_eq!(index(&bytes).unwrap().members[0].name, "日本.txt");
}

/// Adds 64-bit end records that are not needed.
fn with_large_end(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.len() - 22;
    let record = &bytes[end..];
    let number = |at: usize, len: usize| {
        let mut wide = [0; 8];
        wide[..len].copy_from_slice(&record[at..at + len]);
        wide
    };
    let mut out = bytes[..end].to_vec();
    out.extend(b"PK\x06\x06");
    out.extend(44u64.to_le_bytes());
    out.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (at, len) in [(8, 2), (10, 2), (12, 4), (16, 4)] {
        out.extend(number(at, len));
    }
    out.extend(b"PK\x06\x07");
    out.extend(0u32.to_le_bytes());
    out.extend((end as u64).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(record);
    out
}

#[test]
fn archives_with_records_and_bytes_that_nothing_needs_are_read() {
    let files =
        [("a".to_owned(), b"first".to_vec(), true, true), ("b".into(), vec![7; 500], false, false)];
    let plain = build(&files);
    let want: Vec<_> = files.iter().map(|f| (f.0.clone(), f.1.clone())).collect();
    let large = with_large_end(&plain);
    for bytes in [&plain, &large] {
        for before in [&b""[..], b"#!/bin/sh\n"] {
            for behind in [&b""[..], b"\0", b"\r\n", &[0; 3000], b"PK\x05\x06 no record"] {
                let all = [before, bytes, behind].concat();
                assert_eq!(read(&all).unwrap(), want, "{before:?} {behind:?}");
            }
        }
    }
    // A comment, whole and cut off.
    let mut commented = plain.clone();
    let at = commented.len() - 2;
    commented[at] = 9;
    commented.extend(b"a comment");
    assert_eq!(read(&commented).unwrap(), want);
    assert_eq!(read(&commented[..commented.len() - 3]).unwrap(), want);
}

#[test]
fn an_archive_within_one_that_was_cut_off_is_not_taken_for_it() {
    let inner = build(&[("inner".into(), b"x".to_vec(), true, false)]);
    let outer = build(&[
        ("first".into(), b"1".to_vec(), true, false),
        ("inner.zip".into(), inner, true, false),
        ("last".into(), b"2".to_vec(), true, false),
    ]);
    let last = outer.windows(4).position(|w| w == b"last").unwrap();
    let error = index(&outer[..last + 3]).unwrap_err();
    assert!(error.message.contains("without its directory"), "{error}");
}

#[test]
fn what_zip_reads_from_a_pipe_is_a_member() {
    // The type of a pipe beside the mode, as `zip` writes it for its standard input.
    let bytes = altered(true, 40, &0o010_600u16.to_le_bytes());
    assert_eq!(read(&bytes).unwrap().len(), 1);
    for other in [0o040_755u16, 0o120_777, 0o020_600, 0o060_600, 0o140_600] {
        assert!(read(&altered(true, 40, &other.to_le_bytes())).unwrap().is_empty());
    }
}

#[test]
fn a_directory_of_more_or_fewer_entries_than_its_end_record_says_is_damaged() {
    let bytes = build(&[("f".into(), b"x".to_vec(), true, false)]);
    let end = bytes.len() - 22;
    for count in [0u16, 2] {
        let mut bytes = bytes.clone();
        bytes[end + 10..end + 12].copy_from_slice(&count.to_le_bytes());
        let error = index(&bytes).unwrap_err();
        assert!(error.message.contains(&format!("claims {count} members and has 1")), "{error}");
    }
}
