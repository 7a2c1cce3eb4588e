//! Transfers of copies and slices between targets: their bytes, and what comes with them.

use std::time::Duration;

use bytes::BytesMut;
use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::Checksum;
use forebay_core::copies::{COPY_HEADER, CopyHead};
use forebay_core::erasure::Slice;
use forebay_core::size::ByteRange;
use forebay_core::state::Node;
use forebay_core::{Error, Result, history};
use forebay_store::{Record, RecordMeta, WorkFile};
use forebay_v1::query::object_uri;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Replication;
use super::slices::{Layout, SLICE_CHECKSUM, SLICE_CHECKSUM_LEN};

/// Path of transfers of copies.
pub(super) const COPIES_PATH: &str = "/internal/v1/copies";
/// Timeout from the last byte of a copy to its response, and of a request to send one.
pub(super) const TRANSFER_TIMEOUT: Duration = Duration::from_secs(300);
/// Path component of a copy that is an older version of its object, in the bucket's history.
pub(crate) const OLDER: &str = "older";
/// Cost of moving an object in addition to its bytes, in bytes: many small ones are work, too.
pub(super) const OBJECT_COST_BYTES: u64 = 16 << 10;

/// A copy that is sent: of an object by name, or of an older version of one by its name in the
/// history.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) info: &'a BucketInfo,
    pub(super) name: &'a str,
    pub(super) older: bool,
}

/// A copy or slice that another target sends.
pub(super) struct IncomingTransfer {
    /// The id under which the store has its object, or older version.
    pub(super) bucket_id: u64,
    pub(super) name: String,
    /// The object's name for messages.
    pub(super) uri: String,
    pub(super) head: CopyHead,
    pub(super) body: BodyStream,
    /// Its bytes, once they are here and checked.
    pub(super) received: Option<Received>,
}

/// The checked bytes of a transfer.
pub(super) struct Received {
    pub(super) file: WorkFile,
    /// The checksum of a slice, and the id under which it is stored.
    pub(super) slice: Option<(Checksum, u64)>,
}

impl IncomingTransfer {
    /// Reads the rest of the bytes, which nobody needs.
    pub(super) async fn drain(&mut self) -> Result<()> {
        while self.body.next().await.transpose()?.is_some() {}
        Ok(())
    }

    fn take_received(&mut self) -> Result<Received> {
        self.received.take().ok_or_else(|| Error::internal("a copy is committed without its bytes"))
    }
}

impl Replication {
    /// Returns when `to` has the copy, or a newer one. `written`: this target writes it at this
    /// moment.
    pub(super) async fn send(
        &self,
        to: &Node,
        outgoing: Outgoing<'_>,
        record: &Record,
        written: bool,
    ) -> Result<()> {
        let head = CopyHead {
            meta: record.object_meta(),
            epoch: record.meta.epoch,
            from: Some(self.me().clone()),
            written,
            ..CopyHead::default()
        };
        let mut path = object_uri(&outgoing.info.bucket, outgoing.name);
        path = path.replacen("/v1/objects", COPIES_PATH, 1);
        if outgoing.older {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&format!("{OLDER}=true"));
        }
        let reader = self.store().reader(record).await?;
        let body = reader.stream(ByteRange::whole(record.size)).boxed();
        let peer = self.0.peer.with_idle_timeout(TRANSFER_TIMEOUT);
        peer.put_stream(&to.url, &path, headers_of(&head)?, body, Some(record.size)).await?;
        Ok(())
    }

    /// Receives the bytes of a copy or slice, and checks them.
    pub(super) async fn receive_bytes(&self, transfer: &mut IncomingTransfer) -> Result<()> {
        let received = match transfer.head.slice {
            Some(slice) => self.receive_slice(transfer, slice).await?,
            None => self.receive_copy(transfer).await?,
        };
        transfer.received = Some(received);
        Ok(())
    }

    async fn receive_copy(&self, transfer: &mut IncomingTransfer) -> Result<Received> {
        let IncomingTransfer { bucket_id, name, uri, head, body, .. } = transfer;
        let meta = &head.meta;
        let mut file = self.store().begin(*bucket_id, name, Some(meta.size)).await?;
        let mut hasher = meta.checksum.as_ref().map(|sum| sum.kind.hasher());
        while let Some(chunk) = body.next().await {
            let chunk = chunk?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&chunk);
            }
            file.write(chunk).await?;
        }
        if file.written() != meta.size {
            let (came, size) = (file.written(), meta.size);
            return Err(Error::invalid(format!("{uri}: {came} of {size} bytes of a copy came")));
        }
        if let (Some(Some(got)), Some(sent)) = (hasher.map(|h| h.finish()), &meta.checksum) {
            got.expect(sent, uri)?;
        }
        Ok(Received { file, slice: None })
    }

    /// Receives a slice, which its checksum follows.
    async fn receive_slice(
        &self,
        transfer: &mut IncomingTransfer,
        slice: Slice,
    ) -> Result<Received> {
        let IncomingTransfer { bucket_id, name, uri, head, body, .. } = transfer;
        if !slice.is_valid() {
            return Err(Error::invalid(format!("{uri}: there is no slice {slice:?}")));
        }
        let len = Layout::of(slice, head.meta.size).slice_len();
        let id = slice.id(*bucket_id, self.free_place(*bucket_id, name, slice).await?);
        let mut file = self.store().begin(id, name, Some(len)).await?;
        let (mut hasher, mut sent) = (SLICE_CHECKSUM.hasher(), BytesMut::new());
        while let Some(mut chunk) = body.next().await.transpose()? {
            let rest = usize::try_from(len - file.written()).unwrap_or(usize::MAX);
            if rest < chunk.len() {
                sent.extend_from_slice(&chunk.split_off(rest));
            }
            if sent.len() as u64 > SLICE_CHECKSUM_LEN {
                return Err(Error::invalid(format!("{uri}: too much came of a slice")));
            }
            hasher.update(&chunk);
            if !chunk.is_empty() {
                file.write(chunk).await?;
            }
        }
        let came = file.written() + sent.len() as u64;
        if came != len + SLICE_CHECKSUM_LEN {
            let text =
                format!("{uri}: {came} of {} bytes of a slice came", len + SLICE_CHECKSUM_LEN);
            return Err(Error::invalid(text));
        }
        let value = String::from_utf8_lossy(&sent).into_owned();
        let got = hasher.finish().ok_or_else(|| Error::internal("a slice has no checksum"))?;
        got.expect(&Checksum { kind: SLICE_CHECKSUM, value }, uri)?;
        Ok(Received { file, slice: Some((got, id)) })
    }

    /// Commits a copy whose bytes are here.
    pub(super) async fn commit_copy(
        &self,
        info: &BucketInfo,
        transfer: &mut IncomingTransfer,
    ) -> Result<Record> {
        let received = transfer.take_received()?;
        let CopyHead { meta, epoch, .. } = transfer.head.clone();
        self.store().commit(received.file, RecordMeta::of_object(meta, epoch, info.class)).await
    }

    /// Commits a slice whose bytes are here.
    pub(super) async fn commit_slice(
        &self,
        info: &BucketInfo,
        slice: Slice,
        transfer: &mut IncomingTransfer,
    ) -> Result<()> {
        let received = transfer.take_received()?;
        let (sum, id) =
            received.slice.ok_or_else(|| Error::internal("a copy is committed as a slice"))?;
        let IncomingTransfer { bucket_id, name, uri, head, .. } = transfer;
        let place = self.free_place(*bucket_id, name, slice).await?;
        if slice.id(*bucket_id, place) != id && self.store().get(id, name).await?.is_some() {
            // Another version arrived meanwhile; it must stay, in case this write fails.
            let text = format!("{uri}: two slices came at once");
            return Err(Error::unavailable(text).retry_after(1));
        }
        self.store_slice(info, head, (sum, id), received.file).await
    }
}

/// The id under which the store has the records of a bucket, or its older versions.
pub(super) fn stored_id(info: &BucketInfo, older: bool) -> u64 {
    if older { history::id(info.id) } else { info.id }
}

/// The headers of a transfer of a copy or a slice.
pub(crate) fn headers_of(head: &CopyHead) -> Result<HeaderMap> {
    let value = HeaderValue::from_str(&head.to_header()?)
        .map_err(|_| Error::internal("a copy's metadata cannot stand in a header"))?;
    Ok(HeaderMap::from_iter([(HeaderName::from_static(COPY_HEADER), value)]))
}
