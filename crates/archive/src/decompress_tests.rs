//! Tests of archives inside compressed streams.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};

use forebay_core::error::ErrorCode;

use super::*;
use crate::{ShardIndex, TarReader, read_index};

const COMPRESSED: [ArchiveFormat; 3] =
    [ArchiveFormat::TarGz, ArchiveFormat::TarLz4, ArchiveFormat::TarZst];

fn pack(format: ArchiveFormat, bytes: &[u8]) -> Vec<u8> {
    match format {
        ArchiveFormat::TarGz => {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(bytes).unwrap();
            gz.finish().unwrap()
        }
        ArchiveFormat::TarLz4 => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(bytes).unwrap();
            lz4.finish().unwrap()
        }
        _ => zstd::stream::encode_all(bytes, 1).unwrap(),
    }
}

fn tar_of(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut tar = ::tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        tar.append_data(&mut header, name, data.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

#[test]
fn the_index_of_a_compressed_tar_is_that_of_the_tar() {
    let tar = tar_of(&[("a", noise(100_000)), ("b", vec![]), ("c", noise(3))]);
    let plain = read_index(ArchiveFormat::Tar, &tar.as_slice(), &Limits::default()).unwrap();
    for format in COMPRESSED {
        // In one stream, and in several concatenated streams, as `cat` or parallel packers write
        // them.
        let (head, tail) = tar.split_at(70_001);
        for packed in [pack(format, &tar), [pack(format, head), pack(format, tail)].concat()] {
            let index = read_index(format, &packed.as_slice(), &Limits::default()).unwrap();
            assert_eq!(index.format, format);
            assert_eq!(index.members, plain.members);
            assert_eq!(ShardIndex::decode(&index.encode()).unwrap(), index);
            let input = decompress(format, packed.as_slice(), &Limits::default()).unwrap();
            let mut reader = TarReader::new(input, Limits::default());
            assert_eq!(reader.next_member().unwrap().unwrap().name, "a");
            assert_eq!(reader.read_member(1 << 20).unwrap(), noise(100_000));
        }
    }
}

#[test]
fn a_compressed_tar_that_is_cut_off_or_changed_is_an_error() {
    let tar = tar_of(&[("a", noise(50_000)), ("b", noise(50_000))]);
    for format in COMPRESSED {
        let packed = pack(format, &tar);
        for cut in [0, 1, 5, 20, 1000, packed.len() / 2, packed.len() * 9 / 10] {
            let error = read_index(format, &&packed[..cut], &Limits::default()).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{format:?} {cut} {error}");
            assert!(cut < 1000 || error.message.contains("archive ends at byte"), "{error}");
        }
        for at in (0..packed.len()).step_by(97) {
            let mut changed = packed.clone();
            changed[at] ^= 0x55;
            // The change may be detected or may be without effect; no panic in any case.
            let _ = read_index(format, &changed.as_slice(), &Limits::default());
        }
        let _ = read_index(format, &noise(5000).as_slice(), &Limits::default()).unwrap_err();
    }
}

#[test]
fn a_stream_out_of_proportion_is_refused_soon() {
    let bomb = vec![0; 100 << 20];
    // Deflate reaches a ratio of at most about 200, so that the default hardly limits it.
    let limits = Limits { ratio: 200, ..Limits::default() };
    for format in [ArchiveFormat::TarGz, ArchiveFormat::TarZst] {
        let packed = pack(format, &bomb);
        let mut input = decompress(format, packed.as_slice(), &limits).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut got = 0u64;
        let error = loop {
            match input.read(&mut buffer) {
                Ok(0) => panic!("{format:?}: all of the bomb came out"),
                Ok(n) => got += n as u64,
                Err(e) => break from_io(e),
            }
        };
        assert!(error.message.contains("more than 200 for one is refused"), "{error}");
        // Bytes that were read ahead count as consumed.
        assert!(got < 100 << 20, "{format:?} gave {got}");
    }
    let limits = Limits { unpacked: 1 << 20, ..Limits::default() };
    let packed = pack(ArchiveFormat::TarLz4, &bomb[..2 << 20]);
    let mut input = decompress(ArchiveFormat::TarLz4, packed.as_slice(), &limits).unwrap();
    let error = std::io::copy(&mut input, &mut std::io::sink()).unwrap_err();
    assert!(from_io(error).message.contains("unpacks to more than 1048576 bytes"));
}

#[test]
fn a_frame_that_wants_gigabytes_of_memory_is_refused() {
    // A zstd frame whose header asks for a window of 2 GiB.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
    let error =
        read_index(ArchiveFormat::TarZst, &frame.as_slice(), &Limits::default()).unwrap_err();
    assert!(error.message.contains("too much memory"), "{error}");
}

#[test]
fn bytes_behind_a_gzip_stream_cost_nothing_where_the_archive_is_whole() {
    let tar = tar_of(&[("a", noise(1000))]);
    let packed = pack(ArchiveFormat::TarGz, &tar);
    let read = |bytes: &[u8]| read_index(ArchiveFormat::TarGz, &bytes, &Limits::default());
    let whole = read(&packed).unwrap();
    for behind in [vec![0; 700], b"rubbish".to_vec()] {
        assert_eq!(read(&[&packed[..], &behind].concat()).unwrap(), whole);
        // They may be the rest of a longer archive.
        let unended = pack(ArchiveFormat::TarGz, &tar[..tar.len() - 1024]);
        assert_eq!(read(&unended).unwrap(), whole);
        let error = read(&[&unended[..], &behind].concat()).unwrap_err();
        assert!(error.message.contains("without its end marker"), "{error}");
    }
}

#[test]
fn a_compressed_tar_without_an_end_marker_is_read_unless_its_stream_is_cut_off() {
    let tar = tar_of(&[("a", noise(65_536 - 512)), ("b", noise(65_536 - 512))]);
    let (first, unended) = (&tar[..65_536], &tar[..131_072]);
    for format in COMPRESSED {
        let packed = pack(format, unended);
        let index = read_index(format, &packed.as_slice(), &Limits::default()).unwrap();
        assert_eq!(index.members.len(), 2);
        let cut = packed.len() - 4;
        assert!(read_index(format, &&packed[..cut], &Limits::default()).is_err(), "{format:?}");
        // A stream that ends exactly at the end of the first member, as blocks of LZ4 may.
        let head = pack(format, first);
        let cut = head.len() - 4;
        assert!(read_index(format, &&head[..cut], &Limits::default()).is_err(), "{format:?}");
    }
}

#[test]
fn the_content_says_the_format_where_it_is_clear() {
    use ArchiveFormat::*;
    let tar = tar_of(&[("a", noise(10))]);
    for named in [None, Some(Tar), Some(TarGz), Some(TarLz4), Some(TarZst)] {
        assert_eq!(crate::detect(named, &tar).unwrap(), Tar);
        for format in COMPRESSED {
            assert_eq!(crate::detect(named, &pack(format, &tar)).unwrap(), format);
        }
        assert_eq!(crate::detect(named, b"PK\x03\x04").unwrap(), Zip);
        for (head, says) in
            [(&b"BZh91AY"[..], "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"7z\xbc\xaf\x27\x1c", "7z")]
        {
            let error = crate::detect(named, head).unwrap_err();
            assert_eq!(error.code, ErrorCode::Unsupported);
            assert!(error.message.contains(says), "{error}");
        }
    }
    assert_eq!(crate::detect(Some(Zip), b"#!/bin/sh").unwrap(), Zip);
    assert_eq!(crate::detect(Some(Tar), &[0; 1024]).unwrap(), Tar);
    assert!(crate::detect(None, b"text").is_err());
}
