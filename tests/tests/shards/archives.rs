//! Archives for the tests, made by other people's writers, and read back by their readers.

use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;

/// Ends of names of the formats that are served.
pub(super) const FORMATS: [&str; 6] = [".tar", ".tgz", ".tar.gz", ".tar.lz4", ".tar.zst", ".zip"];

pub(super) type Members = Vec<(String, Vec<u8>)>;

pub(super) fn tar(members: &Members) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        // Straight into the field: the crate refuses names that climb, which are wanted here.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, data.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn archive(format: &str, members: &Members) -> Vec<u8> {
    match format {
        ".tar" => tar(members),
        ".tgz" | ".tar.gz" => gzip(&tar(members)),
        ".tar.lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(&tar(members)).unwrap();
            encoder.finish().unwrap()
        }
        ".tar.zst" => zstd::encode_all(&tar(members)[..], 3).unwrap(),
        ".zip" => {
            let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
            for (i, (name, data)) in members.iter().enumerate() {
                let method = match i % 2 {
                    0 => zip::CompressionMethod::Deflated,
                    _ => zip::CompressionMethod::Stored,
                };
                let options = SimpleFileOptions::default().compression_method(method);
                writer.start_file(name.as_str(), options).unwrap();
                writer.write_all(data).unwrap();
            }
            writer.finish().unwrap().into_inner()
        }
        other => panic!("no format {other}"),
    }
}

pub(super) fn read(format: &str, bytes: &[u8]) -> Members {
    let mut plain = Vec::new();
    match format {
        ".tar" => plain.extend_from_slice(bytes),
        ".tgz" | ".tar.gz" => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).map(drop).unwrap();
        }
        ".tar.lz4" => {
            let mut decoder = lz4_flex::frame::FrameDecoder::new(bytes);
            decoder.read_to_end(&mut plain).map(drop).unwrap();
        }
        ".tar.zst" => plain = zstd::decode_all(bytes).unwrap(),
        ".zip" => {
            let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
            let count = archive.len();
            let member = |i| {
                let mut file = archive.by_index(i).unwrap();
                let mut data = Vec::new();
                file.read_to_end(&mut data).unwrap();
                (file.name().unwrap().into_owned(), data)
            };
            return (0..count).map(member).collect();
        }
        other => panic!("no format {other}"),
    }
    let mut archive = tar::Archive::new(&plain[..]);
    let member = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry: tar::Entry<'_, &[u8]> = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        (name, data)
    };
    archive.entries().unwrap().map(member).collect()
}
