//! Guarantees of the archive writers, checked by independent readers.
#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Read};

use forebay_archive::{Limits, read_index};
use proptest::prelude::*;

use super::*;

const ALL: [ArchiveFormat; 5] = [
    ArchiveFormat::Tar,
    ArchiveFormat::TarGz,
    ArchiveFormat::TarLz4,
    ArchiveFormat::TarZst,
    ArchiveFormat::Zip,
];

type Members = Vec<(String, Vec<u8>)>;

fn write(format: ArchiveFormat, members: &Members, step: usize) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(format).unwrap();
    let mut out = Vec::new();
    for (name, data) in members {
        writer.begin(name, data.len() as u64, None).unwrap();
        for chunk in data.chunks(step) {
            writer.data(chunk).unwrap();
            out.extend_from_slice(&writer.take());
        }
        writer.end().unwrap();
    }
    out.extend_from_slice(&writer.finish().unwrap());
    out
}

/// Reads an archive with independent readers.
fn read(format: ArchiveFormat, bytes: Vec<u8>) -> Members {
    let mut plain = Vec::new();
    match format {
        ArchiveFormat::Tar => plain = bytes,
        ArchiveFormat::TarGz => {
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).map(drop).unwrap();
        }
        ArchiveFormat::TarLz4 => {
            let mut decoder = lz4_flex::frame::FrameDecoder::new(&bytes[..]);
            decoder.read_to_end(&mut plain).map(drop).unwrap();
        }
        ArchiveFormat::TarZst => plain = zstd::decode_all(&bytes[..]).unwrap(),
        ArchiveFormat::Zip => {
            let mut archive = ::zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
            return (0..archive.len())
                .map(|i| {
                    let mut file = archive.by_index(i).unwrap();
                    let mut data = Vec::new();
                    file.read_to_end(&mut data).unwrap();
                    assert_eq!(file.unix_mode(), Some(0o100_644));
                    assert_eq!(file.last_modified(), Some(::zip::DateTime::default()));
                    assert!(!has_time(&file), "it would not be that of an object");
                    (file.name().unwrap().into_owned(), data)
                })
                .collect();
        }
    }
    let mut reader = ::tar::Archive::new(&plain[..]);
    reader
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mode().unwrap(), 0o644);
            assert_eq!(entry.header().mtime().unwrap(), 0);
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut data = Vec::new();
            entry.read_to_end(&mut data).unwrap();
            (name, data)
        })
        .collect()
}

fn has_time<R: Read>(file: &::zip::read::ZipFile<'_, R>) -> bool {
    file.extra_data_fields().any(|f| matches!(f, ::zip::ExtraField::ExtendedTimestamp(_)))
}

fn members() -> Members {
    let long = "d/".repeat(400) + "x";
    let names = ["a", "b/ünï", "../c", &"n".repeat(100), &"n".repeat(101), &long, "__404__/b"];
    let mut all: Members =
        names.iter().enumerate().map(|(i, n)| ((*n).to_owned(), vec![7u8; i * 300])).collect();
    all.push(("large".into(), (0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect()));
    all
}

#[test]
fn every_format_is_read_back_by_other_readers_with_any_name_and_size() {
    for format in ALL {
        assert!(read(format, write(format, &members(), 100_000)) == members(), "{format:?}");
    }
}

#[test]
fn the_bytes_do_not_depend_on_how_the_data_came() {
    for format in [ArchiveFormat::Tar, ArchiveFormat::TarGz, ArchiveFormat::Zip] {
        let small_member = write(format, &members(), usize::MAX);
        assert!(write(format, &members(), 77_777) == small_member, "{format:?}");
    }
}

#[test]
fn what_is_passed_by_the_writer_of_a_tar_is_a_part_of_it() {
    let mut out = Vec::new();
    let mut writer = ArchiveWriter::new(ArchiveFormat::Tar).unwrap();
    writer.begin("x", 5, None).unwrap();
    writer.data(b"12").unwrap();
    assert!(writer.pass(3).unwrap());
    out.extend_from_slice(&writer.take());
    out.extend_from_slice(b"345");
    assert!(writer.pass(1).is_err(), "more than was announced");
    writer.end().unwrap();
    out.extend_from_slice(&writer.finish().unwrap());
    assert_eq!(read(ArchiveFormat::Tar, out), [("x".to_owned(), b"12345".to_vec())]);
    let mut zip = ArchiveWriter::new(ArchiveFormat::Zip).unwrap();
    zip.begin("x", 5, None).unwrap();
    assert!(!zip.pass(5).unwrap());
}

/// An archive of these members, "0" and on, of a few bytes each or (`large`) of more than are held.
fn write_stats(format: ArchiveFormat, stats: &[Stat], large: bool) -> Vec<u8> {
    let data = vec![7; if large { 1_500_000 } else { 9 }];
    let mut writer = ArchiveWriter::new(format).unwrap();
    for (i, stat) in stats.iter().enumerate() {
        writer.begin(&i.to_string(), data.len() as u64, Some(*stat)).unwrap();
        writer.data(&data).unwrap();
        writer.end().unwrap();
    }
    writer.finish().unwrap().to_vec()
}

fn read_stats(format: ArchiveFormat, bytes: &[u8]) -> Vec<Stat> {
    let index = read_index(format, &bytes, &Limits::default()).unwrap();
    index.members.iter().map(|m| m.stat).collect()
}

#[test]
fn a_member_of_another_archive_keeps_its_time_and_mode_in_every_format() {
    let exact = |mtime, mode| Stat { mtime, mode, local: false };
    let stats = [
        exact(1_700_000_001, 0o600),
        exact(0, 0o644),
        exact(1, 0o4755),
        exact(315_532_799, 0),
        exact(i32::MAX as u32, 0o7777),
    ];
    for format in ALL {
        for large in [false, true] {
            let bytes = write_stats(format, &stats, large);
            assert_eq!(read_stats(format, &bytes), stats, "{format:?}");
        }
    }
    // Beyond the range of the extended timestamp the time of DOS is used, with a resolution of two
    // seconds.
    let late = [exact((1 << 31) + 1, 0o600), exact(u32::MAX, 0o600)];
    for format in ALL {
        let read = read_stats(format, &write_stats(format, &late, false));
        if format == ArchiveFormat::Zip {
            let even = |s: Stat| Stat { mtime: s.mtime & !1, local: true, ..s };
            assert_eq!(read, late.map(even));
        } else {
            assert_eq!(read, late, "{format:?}");
        }
    }
}

#[test]
fn the_time_of_a_zone_that_nobody_knows_stays_so_in_a_zip() {
    let local = Stat { mtime: 1_700_000_002, mode: 0o640, local: true };
    for format in ALL {
        let read = read_stats(format, &write_stats(format, &[local], false));
        assert_eq!(read, [Stat { local: format == ArchiveFormat::Zip, ..local }], "{format:?}");
    }
}

#[test]
fn other_readers_find_the_same_times_and_modes() {
    let stats = [Stat::new(1_577_934_247, 0o711), Stat::new(7, 0o600)];
    let tar = write_stats(ArchiveFormat::Tar, &stats, false);
    for (entry, stat) in ::tar::Archive::new(&tar[..]).entries().unwrap().zip(stats) {
        let entry = entry.unwrap();
        assert_eq!(entry.header().mtime().unwrap(), u64::from(stat.mtime));
        assert_eq!(entry.header().mode().unwrap(), u32::from(stat.mode));
    }
    for large in [false, true] {
        let zip = write_stats(ArchiveFormat::Zip, &stats, large);
        let mut zip = ::zip::ZipArchive::new(Cursor::new(zip)).unwrap();
        let dos = ::zip::DateTime::from_date_and_time(2020, 1, 2, 3, 4, 6).unwrap();
        for (i, dos) in [dos, ::zip::DateTime::default()].into_iter().enumerate() {
            let mut file = zip.by_index(i).unwrap();
            assert_eq!(file.last_modified(), Some(dos));
            assert_eq!(file.unix_mode(), Some(0o100_000 | u32::from(stats[i].mode)));
            let exact = file.extra_data_fields().find_map(|f| match f {
                ::zip::ExtraField::ExtendedTimestamp(times) => times.mod_time(),
                _ => None,
            });
            assert_eq!(exact, Some(stats[i].mtime));
            let mut data = Vec::new();
            file.read_to_end(&mut data).unwrap();
            assert!(data.iter().all(|b| *b == 7));
        }
    }
}

#[test]
fn a_name_twice_is_two_members() {
    for format in ALL {
        let archive = write(format, &vec![("x".into(), vec![1]), ("x".into(), vec![2; 5])], 9);
        if format == ArchiveFormat::Zip {
            // Readers that keep a repeated name once still find both in the directory.
            let headers = archive.windows(4).filter(|w| *w == b"PK\x01\x02").count();
            assert_eq!(headers, 2);
        } else {
            assert_eq!(read(format, archive).len(), 2, "{format:?}");
        }
    }
}

#[test]
fn a_member_of_another_size_than_announced_is_refused() {
    for format in ALL {
        let mut writer = ArchiveWriter::new(format).unwrap();
        writer.begin("x", 3, None).unwrap();
        assert!(writer.data(&[0; 4]).is_err());
        writer.data(&[0; 2]).unwrap();
        assert!(writer.begin("y", 0, None).is_err());
        assert!(writer.end().is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_members_come_back(
        members in prop::collection::vec(
            ("[a-zé/._]{1,120}", prop::collection::vec(any::<u8>(), 0..1200)), 0..12),
        step in 1usize..700,
    ) {
        let mut seen = std::collections::HashSet::new();
        let members: Members =
            members.into_iter().filter(|(n, _)| seen.insert(n.clone())).collect();
        for format in ALL {
            prop_assert_eq!(&read(format, write(format, &members, step)), &members);
        }
    }
}
