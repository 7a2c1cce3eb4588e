//! Tests of the TAR readers, compared with the `tar` crate.
#![allow(clippy::unwrap_used)]

use std::io::Read;

use forebay_core::error::{Error, ErrorCode};
use forebay_core::shard::{ArchiveFormat, Stat, names};
use proptest::prelude::*;

use super::*;
use crate::{Member, read_index};

fn small_limits() -> Limits {
    Limits { members: 1000, header_bytes: 4096, index_bytes: 1 << 20, ..Limits::default() }
}

/// An entry as one header and its data, padded.
fn entry(kind: u8, name: &str, size: u64, data: &[u8]) -> Vec<u8> {
    let mut header = ::tar::Header::new_ustar();
    header.set_size(size);
    header.as_old_mut().linkflag[0] = kind;
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    let mut out = [header.as_bytes().as_slice(), data].concat();
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    entry(b'0', name, data.len() as u64, data)
}

fn pax(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut records = String::new();
    for (key, value) in pairs {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        records += &format!("{len} {key}={value}\n");
    }
    entry(b'x', "pax", records.len() as u64, records.as_bytes())
}

fn whole(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = parts.concat();
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

/// Reads an archive in all three ways, which must agree on the members or on the failure.
fn read_all_ways(bytes: &[u8], limits: &Limits, step: usize) -> Result<Vec<(Member, Vec<u8>)>> {
    let by_headers = read_index(ArchiveFormat::Tar, &bytes, limits);
    let mut indexer = TarIndexer::new(ArchiveFormat::Tar, limits.clone());
    let fed = bytes.chunks(step).try_for_each(|piece| indexer.feed(piece));
    let pushed = fed.and_then(|()| indexer.finish());
    let mut reader = TarReader::new(bytes, limits.clone());
    let mut pulled = Vec::new();
    let pull = loop {
        match reader.next_member() {
            Ok(None) => break Ok(()),
            Ok(Some(member)) => match reader.read_member(u64::MAX) {
                Ok(data) => pulled.push((member, data)),
                Err(e) => break Err(e),
            },
            Err(e) => break Err(e),
        }
    };
    match (by_headers, pushed, pull) {
        (Ok(a), Ok(b), Ok(())) => {
            assert_eq!(a, b);
            let members: Vec<_> = pulled.iter().map(|(m, _)| m.clone()).collect();
            assert_eq!(a.members, members);
            Ok(pulled)
        }
        (Err(a), Err(b), Err(c)) => {
            assert_eq!(a, b);
            assert_eq!(a, c);
            Err(a)
        }
        (a, b, c) => panic!("they disagree: {a:?} {b:?} {c:?}"),
    }
}

fn names(bytes: &[u8]) -> Vec<String> {
    let read = read_all_ways(bytes, &Limits::default(), 777).unwrap();
    read.into_iter().map(|(m, _)| m.name).collect()
}

fn refusal(bytes: &[u8]) -> Error {
    read_all_ways(bytes, &small_limits(), 1000).unwrap_err()
}

#[derive(Clone, Debug)]
struct Entry {
    kind: u8,
    gnu: bool,
    name: String,
    mtime: u64,
    mode: u32,
    data: Vec<u8>,
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let letter = prop_oneof![
        8 => proptest::char::range('a', 'z'),
        2 => Just('.'),
        1 => Just('/'),
        1 => proptest::char::range('à', 'ÿ'),
        1 => proptest::char::range('一', '丿'),
    ];
    let len = prop_oneof![4 => 1..30usize, 1 => 90..110usize, 1 => 150..400usize];
    let name = len.prop_flat_map(move |n| proptest::collection::vec(letter.clone(), n));
    let size = prop_oneof![3 => 0..1200usize, 1 => Just(512usize), 1 => 3000..20_000usize];
    let kind = prop_oneof![6 => Just(b'0'), 1 => Just(b'5'), 1 => Just(b'2')];
    // Covers the range of the header field, which is larger than the stored range.
    let mtime = prop_oneof![4 => 0..1u64 << 32, 1 => 0..1u64 << 33];
    let stat = (mtime, 0..0o10000u32);
    let one = (kind, any::<bool>(), name, size, any::<u8>(), stat).prop_map(
        |(kind, gnu, name, n, seed, (mtime, mode))| {
            // Names that the builder would clean up or refuse: empty components, dots, absolute
            // names, and components that begin with two dots, since it may cut a long name there.
            let clean =
                |part: &String| !part.trim_matches('.').is_empty() && !part.starts_with("..");
            let name: String = name.into_iter().collect();
            let parts: Vec<_> = name.split('/').map(str::to_owned).filter(clean).collect();
            let name = if parts.is_empty() { "x".into() } else { parts.join("/") };
            let data = (0..n).map(|i| seed.wrapping_add(i as u8)).collect();
            Entry { kind, gnu, name, mtime, mode, data }
        },
    );
    proptest::collection::vec(one, 0..12)
}

fn build(entries: &[Entry]) -> Vec<u8> {
    let mut tar = ::tar::Builder::new(Vec::new());
    for e in entries {
        let mut header = if e.gnu { ::tar::Header::new_gnu() } else { ::tar::Header::new_ustar() };
        header.set_entry_type(::tar::EntryType::new(e.kind));
        header.set_mode(e.mode);
        header.set_mtime(e.mtime);
        if e.kind == b'0' {
            header.set_size(e.data.len() as u64);
            tar.append_data(&mut header, &e.name, e.data.as_slice()).unwrap();
        } else {
            header.set_size(0);
            tar.append_link(&mut header, &e.name, "elsewhere").unwrap();
        }
    }
    tar.into_inner().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn members_are_those_that_another_reader_finds(entries in entries(), step in 1..5000usize) {
        let bytes = build(&entries);
        let mut theirs = Vec::new();
        for entry in ::tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let name = names::text(&entry.path_bytes());
                let (offset, size) = (entry.raw_file_position(), entry.size());
                let (mtime, mode) = (entry.header().mtime().unwrap(), entry.header().mode().unwrap());
                let stat = Stat::new(mtime as i64, mode);
                let mut data = Vec::new();
                entry.read_to_end(&mut data).unwrap();
                theirs.push((Member { name, offset, size, stat, is_sparse: false }, data));
            }
        }
        let ours = read_all_ways(&bytes, &Limits::default(), step).unwrap();
        prop_assert_eq!(&ours, &theirs);
        let wrote: Vec<_> = entries.iter().filter(|e| e.kind == b'0').map(|e| &e.name).collect();
        prop_assert_eq!(ours.iter().map(|(m, _)| &m.name).collect::<Vec<_>>(), wrote);
        let wrote = entries.iter().filter(|e| e.kind == b'0');
        let wrote: Vec<_> = wrote.map(|e| Stat::new(e.mtime as i64, e.mode)).collect();
        prop_assert_eq!(ours.iter().map(|(m, _)| m.stat).collect::<Vec<_>>(), wrote);
    }

    #[test]
    fn an_archive_cut_within_an_entry_is_an_error_that_says_where(
        entries in entries(),
        at in any::<u16>(),
    ) {
        let bytes = build(&entries);
        let end = bytes.len() - 2 * BLOCK;
        let whole = read_all_ways(&bytes, &Limits::default(), 1 << 16).unwrap();
        // The entry ends that the `tar` crate reports: extension headers belong to the entry they
        // precede.
        let mut ends = vec![];
        for entry in ::tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            let size = if entry.header().entry_type().is_file() { entry.size() } else { 0 };
            ends.push((entry.raw_file_position() + size).next_multiple_of(BLOCK as u64) as usize);
        }
        // At a random position, and at every block boundary.
        let cuts = (0..=end).step_by(BLOCK).chain([usize::from(at) % (end + 1)]);
        for cut in cuts {
            let read = read_all_ways(&bytes[..cut], &Limits::default(), 1 << 16);
            if ends.contains(&cut) {
                // Some writers omit the end marker.
                let members = read.unwrap();
                prop_assert_eq!(&members[..], &whole[..members.len()]);
                let files = whole.iter().filter(|(m, _)| m.offset + m.size <= cut as u64).count();
                prop_assert_eq!(members.len(), files);
                continue;
            }
            let error = read.unwrap_err();
            prop_assert_eq!(error.code, ErrorCode::InvalidArgument);
            let says = format!("the archive ends at byte {cut} ");
            prop_assert!(error.message.starts_with(&says), "{}", error);
        }
        // One block of zeros is enough as the end.
        prop_assert!(read_all_ways(&bytes[..end + BLOCK], &Limits::default(), 1 << 16).is_ok());
    }

    #[test]
    fn nothing_that_is_no_archive_panics(
        entries in entries(),
        changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 0..40),
        fix in any::<bool>(),
        noise in proptest::collection::vec(any::<u8>(), 0..3000),
        step in 1..3000usize,
    ) {
        let limits = small_limits();
        let _ = read_all_ways(&noise, &limits, step);
        let mut bytes = build(&entries);
        for (at, byte) in changes {
            let at = at as usize % bytes.len();
            bytes[at] = byte;
            if fix && at % BLOCK < 300 {
                // A wrong header with a valid checksum is worse than one that fails its checksum.
                let block = &mut bytes[at / BLOCK * BLOCK..][..BLOCK];
                block[148..156].fill(b' ');
                let sum: u64 = block.iter().map(|b| u64::from(*b)).sum();
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        let _ = read_all_ways(&bytes, &limits, step);
    }
}

#[test]
fn only_regular_files_come_out_and_names_stay_names() {
    let bytes = whole(&[
        file("../up", b"1"),
        file("/abs/x", b"2"),
        entry(b'5', "dir/", 0, b""),
        // No data follows these, whatever their size says.
        entry(b'2', "link", 700, b""),
        entry(b'1', "hard", 700, b""),
        entry(b'3', "device", 700, b""),
        entry(b'6', "fifo", 0, b""),
        entry(b'g', "global", 20, b"20 comment=whatever\n"),
        entry(b'V', "volume", 0, b""),
        entry(b'K', "longlink", 600, &[b'l'; 600]),
        entry(b'2', "link", 0, b""),
        entry(b'7', "contiguous", 1, b"3"),
        entry(0, "olddir/", 0, b""),
        entry(0, "old", 1, b"4"),
        file("empty", b""),
        file("", b"nameless"),
        entry(b'Z', "unknown", 3, b"abc"),
        file("last", b"5"),
    ]);
    let want = ["../up", "/abs/x", "contiguous", "old", "empty", "", "last"];
    assert_eq!(names(&bytes), want);
}

#[test]
fn long_names_and_large_sizes_are_honoured_in_every_dialect() {
    let long = "n".repeat(600);
    let wide = {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(3);
        header.as_old_mut().name[..4].copy_from_slice(b"wide");
        let field = &mut header.as_old_mut().size;
        *field = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
        header.set_cksum();
        let mut block = header.as_bytes().to_vec();
        block.extend(b"abc");
        block.resize(2 * BLOCK, 0);
        block
    };
    let prefixed = {
        let mut header = ::tar::Header::new_ustar();
        header.set_size(0);
        header.as_old_mut().name.fill(b'b');
        header.as_ustar_mut().unwrap().prefix.fill(b'a');
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let bytes = whole(&[
        pax(&[("path", &long), ("size", "5"), ("mtime", "1.5")]),
        entry(b'0', "short", 0, b"12345"),
        entry(b'L', "././@LongLink", 601, format!("{long}\0").as_bytes()),
        file("short", b"x"),
        pax(&[("path", "ünï")]),
        entry(b'L', "././@LongLink", 4, b"gnu\0"),
        file("short", b"y"),
        wide,
        prefixed,
        file("plain", b"z"),
    ]);
    let want = [
        long.clone(),
        long,
        "ünï".into(),
        "wide".into(),
        format!("{}/{}", "a".repeat(155), "b".repeat(100)),
        "plain".into(),
    ];
    assert_eq!(names(&bytes), want);
    let read = read_all_ways(&bytes, &Limits::default(), 100).unwrap();
    assert_eq!((read[0].1.as_slice(), read[3].1.as_slice()), (&b"12345"[..], &b"abc"[..]));
}

#[test]
fn the_time_of_a_pax_header_goes_before_that_of_the_header_and_ends_with_its_entry() {
    let times = ["1700000001.75", "-5", "4294967296", "never"];
    let mut parts = Vec::new();
    for time in times {
        parts.extend([pax(&[("mtime", time)]), file(time, b"x"), file("next", b"y")]);
    }
    let read = read_all_ways(&whole(&parts), &Limits::default(), 300).unwrap();
    let got: Vec<u32> = read.iter().map(|(m, _)| m.stat.mtime).collect();
    assert_eq!(got, [1_700_000_001, 0, 0, 0, u32::MAX, 0, 0, 0]);
}

#[test]
fn a_v7_archive_without_magic_is_read() {
    let mut header = ::tar::Header::new_old();
    header.set_size(2);
    header.as_old_mut().name[..3].copy_from_slice(b"old");
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(b"v7");
    bytes.resize(4 * BLOCK, 0);
    assert_eq!(names(&bytes), ["old"]);
    assert_eq!(crate::format_of(&bytes), Some(ArchiveFormat::Tar));
}

#[test]
fn the_rest_of_a_file_in_another_volume_is_refused_by_name() {
    let error = refusal(&whole(&[entry(b'M', "rest", 0, b"")]));
    assert_eq!(error.code, ErrorCode::Unsupported);
    assert!(error.message.contains("\"rest\""), "{error}");
}

/// A GNU sparse entry whose map has `blocks` blocks more than the header holds.
fn sparse(name: &str, blocks: usize, data: &[u8]) -> Vec<u8> {
    let mut out = entry(b'S', name, data.len() as u64, b"");
    if blocks > 0 {
        let mut header = ::tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(&out);
        header.as_mut_bytes()[482] = 1;
        header.set_cksum();
        out.copy_from_slice(header.as_bytes());
    }
    for block in 1..=blocks {
        let mut map = [0; BLOCK];
        map[..12].copy_from_slice(b"00000000017\0");
        map[504] = u8::from(block < blocks);
        out.extend(map);
    }
    out.extend(data);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

#[test]
fn a_sparse_member_is_refused_by_name_and_the_others_are_read() {
    let bytes = whole(&[
        file("first", b"1"),
        sparse("holes", 0, b"some"),
        sparse("more-holes", 3, &[7; 700]),
        pax(&[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")]),
        file("holey", b"x"),
        pax(&[("GNU.sparse.name", "real"), ("GNU.sparse.major", "1")]),
        file("GNUSparseFile.0/real", b"x"),
        file("last", b"2"),
    ]);
    let read = read_all_ways(&bytes, &Limits::default(), 321).unwrap();
    let got: Vec<_> = read.iter().map(|(m, _)| (m.name.as_str(), m.is_sparse)).collect();
    let want = [("first", false), ("holes", true), ("more-holes", true), ("holey", true)];
    assert_eq!(got[..4], want);
    assert_eq!(got[4..], [("real", true), ("last", false)]);
    assert_eq!((read[0].1.as_slice(), read[5].1.as_slice()), (&b"1"[..], &b"2"[..]));
    for (member, _) in read {
        let Err(error) = member.check_readable() else { continue };
        assert_eq!(error.code, ErrorCode::Unsupported);
        let says = format!("member \"{}\" is stored as a sparse file", member.name);
        assert!(error.message.starts_with(&says), "{error}");
    }
}

#[test]
fn names_that_are_not_utf8_stay_distinct() {
    let name = |bytes: &[u8]| {
        let mut header = ::tar::Header::new_ustar();
        header.set_size(0);
        header.as_old_mut().name[..bytes.len()].copy_from_slice(bytes);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let bytes = whole(&[name(b"caf\xe9.txt"), name(b"caf\xe8.txt"), name(b"\xc4\xe3")]);
    assert_eq!(names(&bytes), ["caf\u{efe9}.txt", "caf\u{efe8}.txt", "\u{efc4}\u{efe3}"]);
}

#[test]
fn an_archive_that_ends_between_an_extension_header_and_its_entry_is_cut_off() {
    for extension in [pax(&[("path", "name")]), entry(b'L', "long", 5, b"name\0")] {
        let error = refusal(&[file("a", b"x"), extension].concat());
        assert!(error.message.contains("without its end marker"), "{error}");
    }
    assert!(refusal(b"").message.contains("ends at byte 0"));
    let bytes = file("a", b"x");
    assert_eq!(names(&bytes), ["a"]);
    assert!(refusal(&bytes[..600]).message.contains("byte 600"));
}

#[test]
fn headers_that_promise_too_much_are_refused_before_memory_is_taken() {
    let huge = "9".repeat(18);
    for (bytes, says) in [
        (whole(&[entry(b'L', "l", 1 << 30, b"")]), "1073741824 bytes"),
        (whole(&[entry(b'x', "p", 1 << 30, b"")]), "1073741824 bytes"),
        (whole(&[pax(&[("size", &huge)]), file("a", b"")]), "the middle of member \"a\""),
        (whole(&[pax(&[("size", "9223372036854775807")]), file("a", b"")]), "impossible size"),
        (whole(&[pax(&[("size", "-1")]), file("a", b"")]), "PAX records"),
    ] {
        let error = refusal(&bytes);
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        assert!(error.message.contains(says), "{error}");
    }
    let name = "n".repeat(3000);
    let limits = Limits { name_bytes: 2999, ..Limits::default() };
    let bytes = whole(&[pax(&[("path", &name)]), file("a", b"")]);
    let error = read_all_ways(&bytes, &limits, 100).unwrap_err();
    assert!(error.message.contains("name before byte"), "{error}");
    let mut reader = TarReader::new(bytes.as_slice(), Limits::default());
    assert_eq!(reader.next_member().unwrap().unwrap().name, name);

    let mut bytes = whole(&[file("a", b"x")]);
    bytes[3] ^= 1;
    assert!(refusal(&bytes).message.contains("header at byte 0 fails its checksum"));
    let mut bytes = file("a", b"x");
    bytes.extend(b"rubbish".repeat(100));
    assert!(refusal(&bytes).message.contains("header at byte 1024"));
}

#[test]
fn a_pax_record_ends_within_its_header() {
    for record in ["99 path=a\n", "11 path=a\n"] {
        let header = entry(b'x', "p", record.len() as u64, record.as_bytes());
        let error = refusal(&whole(&[header, file("a", b"")]));
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        assert!(error.message.contains("the PAX records at byte"), "{error}");
    }
}

#[test]
fn too_many_members_are_refused_by_number_and_by_memory() {
    let bytes = whole(&vec![file("a", b""); 20]);
    let few = Limits { members: 19, ..Limits::default() };
    let error = read_all_ways(&bytes, &Limits { members: 20, ..few.clone() }, 99).map(|m| m.len());
    assert_eq!(error.unwrap(), 20);
    let index = |limits: &Limits| read_index(ArchiveFormat::Tar, &bytes.as_slice(), limits);
    assert!(index(&few).unwrap_err().message.contains("more than 19 members"));
    let small = Limits { index_bytes: 1000, ..Limits::default() };
    assert!(index(&small).unwrap_err().message.contains("too many for an index"));
    let mut reader = TarReader::new(bytes.as_slice(), few);
    let error = std::iter::from_fn(|| reader.next_member().transpose()).find_map(Result::err);
    assert!(error.unwrap().message.contains("more than 19 members"));
}

#[test]
fn a_member_larger_than_wanted_is_refused_and_the_next_one_read() {
    let bytes = whole(&[file("big", &[1; 5000]), file("small", b"ok")]);
    let mut reader = TarReader::new(bytes.as_slice(), Limits::default());
    reader.next_member().unwrap();
    assert!(reader.read_member(4999).unwrap_err().message.contains("5000 bytes"));
    let mut some = [0; 100];
    reader.read_exact(&mut some).unwrap();
    assert_eq!(reader.next_member().unwrap().unwrap().name, "small");
    assert_eq!(reader.read_member(2).unwrap(), b"ok");
    assert_eq!(reader.read_member(2).unwrap(), b"");
    assert!(reader.next_member().unwrap().is_none());
    assert!(reader.next_member().unwrap().is_none());
}
