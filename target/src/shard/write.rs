//! Writes archives, member by member, into memory that the caller drains.
//!
//! For a member made of an object the bytes depend on its name and content alone: time 1970 (zip:
//! 1980, its first), no owner, mode 0644. A member of another archive keeps its time and mode.
//! Names are written unchanged and may repeat: a member's name is a key here, not a path.

mod tar;
#[cfg(test)]
mod tests;
mod zip;

use std::io::Write;

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_core::shard::{ArchiveFormat, Stat};
use forebay_core::{Error, Result};
use lz4_flex::frame::FrameEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

use self::zip::ZipWriter;

/// Speed over size: archives mostly contain data that is compressed already.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

/// Capacity allocated at once for a tar: growing step by step would copy it as often.
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

    /// Whether writing costs CPU time beyond a copy.
    pub(crate) fn compresses(&self) -> bool {
        matches!(self.packing, Packing::Gzip(_) | Packing::Lz4(_) | Packing::Zstd(_))
    }

    /// Starts a member of exactly `size` bytes; `stat` is its entry in another archive, if it is
    /// from one.
    pub(crate) fn begin(&mut self, name: &str, size: u64, stat: Option<Stat>) -> Result<()> {
        if let Some(open) = &self.member {
            return Err(Error::internal(format!("member \"{}\" is not ended", open.name)));
        }
        match &mut self.packing {
            Packing::Zip(zip) => zip.begin(name, size, stat)?,
            _ => self.put(&tar::header(name, size, stat.unwrap_or_default()))?,
        }
        self.member = Some(Open { name: name.to_owned(), size, left: size });
        Ok(())
    }

    /// Whether the archive contains the next `len` bytes of the current member unchanged. Then the
    /// caller sends them itself, behind the result of [`Self::take`].
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

    /// Adds bytes to the current member.
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

    /// Ends the current member, which must be complete.
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

    /// Takes the bytes that are ready to be sent.
    pub(crate) fn take(&mut self) -> Bytes {
        match &mut self.packing {
            Packing::Tar(out) => out.split().freeze(),
            Packing::Gzip(encoder) => std::mem::take(encoder.get_mut()).into(),
            Packing::Lz4(encoder) => std::mem::take(encoder.get_mut()).into(),
            Packing::Zstd(encoder) => std::mem::take(encoder.get_mut()).into(),
            Packing::Zip(zip) => zip.take(),
        }
    }

    /// How many bytes [`Self::take`] would return now.
    pub(crate) fn ready(&self) -> usize {
        match &self.packing {
            Packing::Tar(out) => out.len(),
            Packing::Gzip(encoder) => encoder.get_ref().len(),
            Packing::Lz4(encoder) => encoder.get_ref().len(),
            Packing::Zstd(encoder) => encoder.get_ref().len(),
            Packing::Zip(zip) => zip.ready(),
        }
    }

    /// The end of the archive, with the bytes not taken yet.
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
