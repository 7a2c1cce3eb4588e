//! Archives as they go out, member by member, into memory that the caller drains.
//!
//! The bytes depend on the members' names and content alone: no time, no owner, mode 0644. Names
//! go in as they are, as often as they come: a member's name is a key here, not a path.

mod tar;
mod zip;

use std::io::Write;

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_core::archive::ArchiveFormat;
use forebay_core::{Error, Result};
use lz4_flex::frame::FrameEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

use self::zip::ZipWriter;

/// Fast above small: archives are mostly of data that is compressed already.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

/// Room made at once for a tar: growing step by step would copy it as often.
const ROOM: usize = 288 << 10;

/// Writes one archive.
pub(crate) struct ArchiveWriter {
    packing: Packing,
    /// The member being written.
    member: Option<Open>,
}

struct Open {
    name: String,
    size: u64,
    left: u64,
}

enum Packing {
    Tar(BytesMut),
    Gzip(GzEncoder<Vec<u8>>),
    Lz4(Box<FrameEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Zip(Box<ZipWriter>),
}

impl ArchiveWriter {
    pub(crate) fn new(format: ArchiveFormat) -> Result<Self> {
        let packing = match format {
            ArchiveFormat::Tar => Packing::Tar(BytesMut::new()),
            ArchiveFormat::TarGz => {
                Packing::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL)))
            }
            ArchiveFormat::TarLz4 => Packing::Lz4(Box::new(FrameEncoder::new(Vec::new()))),
            ArchiveFormat::TarZst => {
                Packing::Zstd(ZstdEncoder::new(Vec::new(), ZSTD_LEVEL).map_err(Error::from)?)
            }
            ArchiveFormat::Zip => Packing::Zip(Box::default()),
        };
        Ok(Self { packing, member: None })
    }

    /// Whether writing costs time beyond a copy.
    pub(crate) fn compresses(&self) -> bool {
        matches!(self.packing, Packing::Gzip(_) | Packing::Lz4(_) | Packing::Zstd(_))
    }

    /// Starts a member of exactly `size` bytes.
    pub(crate) fn begin(&mut self, name: &str, size: u64) -> Result<()> {
        if let Some(open) = &self.member {
            return Err(Error::internal(format!("member \"{}\" is not ended", open.name)));
        }
        match &mut self.packing {
            Packing::Zip(zip) => zip.begin(name, size)?,
            _ => self.put(&tar::header(name, size))?,
        }
        self.member = Some(Open { name: name.to_owned(), size, left: size });
        Ok(())
    }

    /// Whether the next `len` bytes of the member begun are in the archive as they are. Then they are
    /// the caller's to write, behind what [`Self::take`] gives now.
    pub(crate) fn pass(&mut self, len: u64) -> Result<bool> {
        let passes = matches!(self.packing, Packing::Tar(_));
        if passes {
            self.advance(len)?;
        }
        Ok(passes)
    }

    fn advance(&mut self, len: u64) -> Result<()> {
        let open = self.member.as_mut().ok_or_else(|| Error::internal("no member is begun"))?;
        let Some(left) = open.left.checked_sub(len) else {
            return Err(Error::internal(format!(
                "member \"{}\" is longer than its {} bytes",
                open.name, open.size
            )));
        };
        open.left = left;
        Ok(())
    }

    /// Adds to the member begun.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<()> {
        self.advance(bytes.len() as u64)?;
        match &mut self.packing {
            Packing::Zip(zip) => {
                zip.data(bytes);
                Ok(())
            }
            _ => self.put(bytes),
        }
    }

    /// Ends the member begun, which must have all its bytes.
    pub(crate) fn end(&mut self) -> Result<()> {
        let open = self.member.take().ok_or_else(|| Error::internal("no member is begun"))?;
        if open.left > 0 {
            return Err(Error::internal(format!(
                "member \"{}\" lacks {} of its {} bytes",
                open.name, open.left, open.size
            )));
        }
        match &mut self.packing {
            Packing::Zip(zip) => {
                zip.end();
                Ok(())
            }
            _ => self.put(tar::padding(open.size)),
        }
    }

    /// What is ready to go out.
    pub(crate) fn take(&mut self) -> Bytes {
        match &mut self.packing {
            Packing::Tar(out) => out.split().freeze(),
            Packing::Gzip(encoder) => std::mem::take(encoder.get_mut()).into(),
            Packing::Lz4(encoder) => std::mem::take(encoder.get_mut()).into(),
            Packing::Zstd(encoder) => std::mem::take(encoder.get_mut()).into(),
            Packing::Zip(zip) => zip.take(),
        }
    }

    /// How many bytes [`Self::take`] would give now.
    pub(crate) fn ready(&self) -> usize {
        match &self.packing {
            Packing::Tar(out) => out.len(),
            Packing::Gzip(encoder) => encoder.get_ref().len(),
            Packing::Lz4(encoder) => encoder.get_ref().len(),
            Packing::Zstd(encoder) => encoder.get_ref().len(),
            Packing::Zip(zip) => zip.ready(),
        }
    }

    /// The end of the archive, with what was not taken yet.
    pub(crate) fn finish(mut self) -> Result<Bytes> {
        if let Some(open) = &self.member {
            return Err(Error::internal(format!("member \"{}\" is not ended", open.name)));
        }
        if !matches!(self.packing, Packing::Zip(_)) {
            self.put(&tar::END)?;
        }
        Ok(match self.packing {
            Packing::Tar(out) => out.freeze(),
            Packing::Gzip(encoder) => encoder.finish()?.into(),
            Packing::Lz4(encoder) => {
                encoder.finish().map_err(|e| Error::internal(format!("lz4: {e}")))?.into()
            }
            Packing::Zstd(encoder) => encoder.finish()?.into(),
            Packing::Zip(zip) => zip.finish(),
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.packing {
            Packing::Tar(out) => {
                if out.capacity() - out.len() < bytes.len() {
                    out.reserve(bytes.len().max(ROOM));
                }
                out.extend_from_slice(bytes);
            }
            Packing::Gzip(encoder) => encoder.write_all(bytes)?,
            Packing::Lz4(encoder) => encoder.write_all(bytes)?,
            Packing::Zstd(encoder) => encoder.write_all(bytes)?,
            Packing::Zip(_) => return Err(Error::internal("a zip has no stream of its own")),
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Cursor, Read};

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
            writer.begin(name, data.len() as u64).unwrap();
            for chunk in data.chunks(step) {
                writer.data(chunk).unwrap();
                out.extend_from_slice(&writer.take());
            }
            writer.end().unwrap();
        }
        out.extend_from_slice(&writer.finish().unwrap());
        out
    }

    /// Read back by other people's readers.
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

    fn members() -> Members {
        let long = "d/".repeat(400) + "x";
        let names = ["a", "b/ünï", "../c", &"n".repeat(100), &"n".repeat(101), &long, "__404__/b"];
        let mut all: Members =
            names.iter().enumerate().map(|(i, n)| ((*n).to_owned(), vec![7u8; i * 300])).collect();
        all.push((
            "large".into(),
            (0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect(),
        ));
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
            let at_once = write(format, &members(), usize::MAX);
            assert!(write(format, &members(), 77_777) == at_once, "{format:?}");
        }
    }

    #[test]
    fn what_is_passed_by_the_writer_of_a_tar_is_a_part_of_it() {
        let mut out = Vec::new();
        let mut writer = ArchiveWriter::new(ArchiveFormat::Tar).unwrap();
        writer.begin("x", 5).unwrap();
        writer.data(b"12").unwrap();
        assert!(writer.pass(3).unwrap());
        out.extend_from_slice(&writer.take());
        out.extend_from_slice(b"345");
        assert!(writer.pass(1).is_err(), "more than was announced");
        writer.end().unwrap();
        out.extend_from_slice(&writer.finish().unwrap());
        assert_eq!(read(ArchiveFormat::Tar, out), [("x".to_owned(), b"12345".to_vec())]);
        let mut zip = ArchiveWriter::new(ArchiveFormat::Zip).unwrap();
        zip.begin("x", 5).unwrap();
        assert!(!zip.pass(5).unwrap());
    }

    #[test]
    fn a_name_twice_is_two_members() {
        for format in ALL {
            let archive = write(format, &vec![("x".into(), vec![1]), ("x".into(), vec![2; 5])], 9);
            if format == ArchiveFormat::Zip {
                // Readers that keep one name once still find both in the directory.
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
            writer.begin("x", 3).unwrap();
            assert!(writer.data(&[0; 4]).is_err());
            writer.data(&[0; 2]).unwrap();
            assert!(writer.begin("y", 0).is_err());
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
}
