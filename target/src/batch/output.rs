//! A batch's archive for the client: written member by member, sent in chunks.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::shard::{ArchiveFormat, Stat};
use forebay_core::{Error, ErrorCode, Result};
use tokio::sync::mpsc;

use super::budget::Share;
use super::spool::Spool;
use crate::shard::write::ArchiveWriter;

/// Bytes that are sent as a chunk of their own.
const PIECE: usize = 256 << 10;
/// Parts from this size on are sent without a copy if the format allows it.
const UNCOPIED: usize = 32 << 10;
/// Compressing more than this at once would block other tasks of the thread.
const BLOCKING_COMPRESS_BYTES: usize = 32 << 10;

/// The destination of the archive.
pub(crate) enum Sink {
    /// To a client; the share of its batch, if it is one.
    Channel(mpsc::Sender<Result<Bytes>>, Option<Arc<Share>>),
    /// Nothing is sent before all results are known.
    Spool(Spool),
}

impl Sink {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match self {
            Self::Channel(sender, share) => {
                let send = sender.send(Ok(bytes));
                let sent = match share {
                    Some(share) => share.while_client_reads(send).await,
                    None => send.await,
                };
                sent.map_err(|_| Error::new(ErrorCode::Unavailable, "the client is gone"))
            }
            Self::Spool(spool) => spool.write(bytes).await,
        }
    }
}

/// One archive being written to a sink.
pub(crate) struct Output<'a> {
    /// `None` only while a thread compresses.
    writer: Option<ArchiveWriter>,
    sink: &'a mut Sink,
}

impl<'a> Output<'a> {
    pub(crate) fn new(format: ArchiveFormat, sink: &'a mut Sink) -> Result<Self> {
        Ok(Self { writer: Some(ArchiveWriter::new(format)?), sink })
    }

    /// Starts a member of exactly `size` bytes; `stat` is its entry in another archive.
    pub(crate) fn begin(&mut self, name: &str, size: u64, stat: Option<Stat>) -> Result<()> {
        self.writer()?.begin(name, size, stat)
    }

    pub(crate) async fn data(&mut self, bytes: Bytes) -> Result<()> {
        let writer = self.writer()?;
        if bytes.len() >= UNCOPIED && writer.pass(bytes.len() as u64)? {
            self.flush().await?;
            return self.sink.write(bytes).await;
        }
        if writer.compresses() && bytes.len() > BLOCKING_COMPRESS_BYTES {
            let Some(mut writer) = self.writer.take() else { return Err(lost()) };
            let written = tokio::task::spawn_blocking(move || {
                let done = writer.data(&bytes);
                (writer, done)
            });
            let (writer, done) = written.await.map_err(|_| lost())?;
            self.writer = Some(writer);
            done?;
        } else {
            writer.data(&bytes)?;
        }
        self.send_if_worth_it().await
    }

    pub(crate) async fn end(&mut self) -> Result<()> {
        self.writer()?.end()?;
        self.send_if_worth_it().await
    }

    /// Sends the ready bytes, however few.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let ready = self.writer()?.take();
        self.sink.write(ready).await
    }

    pub(crate) async fn finish(mut self) -> Result<()> {
        let rest = self.writer.take().ok_or_else(lost)?.finish()?;
        self.sink.write(rest).await
    }

    async fn send_if_worth_it(&mut self) -> Result<()> {
        if self.writer()?.ready() >= PIECE { self.flush().await } else { Ok(()) }
    }

    fn writer(&mut self) -> Result<&mut ArchiveWriter> {
        self.writer.as_mut().ok_or_else(lost)
    }
}

fn lost() -> Error {
    Error::internal("the archive's writer is lost")
}

/// Media type of an archive.
pub(crate) fn content_type(format: ArchiveFormat) -> &'static str {
    match format {
        ArchiveFormat::Tar => "application/x-tar",
        ArchiveFormat::TarGz => "application/gzip",
        ArchiveFormat::TarLz4 => "application/x-lz4",
        ArchiveFormat::TarZst => "application/zstd",
        ArchiveFormat::Zip => "application/zip",
    }
}
