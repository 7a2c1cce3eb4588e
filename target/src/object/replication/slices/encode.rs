//! Encodes objects in slices. An object is read once, stripe by stripe, and all its slices are sent
//! concurrently; only a few blocks of each are in memory.

use bytes::Bytes;
use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::Hasher;
use forebay_core::copies::CopyHead;
use forebay_core::erasure::{Form, Slice};
use forebay_core::replication::{Command, CommandId, LocalCopy};
use forebay_core::state::Node;
use forebay_core::{Error, NodeId, Result};
use forebay_store::Record;
use forebay_v1::query::object_uri;
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::coder::{Coder, Layout};
use super::{SLICE_CHECKSUM, SLICE_CHECKSUM_LEN};
use crate::object::replication::Replication;
use crate::object::replication::peer_commands::{done, refused};
use crate::object::replication::transfer::{COPIES_PATH, TRANSFER_TIMEOUT, headers_of};
use crate::object::replication::work::{Executed, Work};

/// Number of blocks of a slice that wait for its target.
const WAITING: usize = 2;

/// A command to send a slice.
pub(in crate::object::replication) struct SliceSend {
    pub(in crate::object::replication) id: CommandId,
    to: NodeId,
    copy: LocalCopy,
    slice: Slice,
    written: bool,
}

impl SliceSend {
    /// The command, if it is one to send a slice.
    pub(in crate::object::replication) fn of(id: CommandId, command: &Command) -> Option<Self> {
        match command {
            Command::Send { to, copy, form: Form::Slice(slice), written } => {
                let (copy, slice, written) = (*copy, *slice, *written);
                Some(Self { id, to: to.clone(), copy, slice, written })
            }
            _ => None,
        }
    }
}

/// The sends of slices, by command.
type Sends<'a> = Vec<(CommandId, BoxFuture<'a, Executed>)>;

/// The destination of one slice's blocks.
struct Way {
    number: usize,
    blocks: mpsc::Sender<Result<Bytes>>,
    sum: Hasher,
    /// The receiver still exists.
    open: bool,
}

impl Way {
    async fn send(&mut self, block: Result<Bytes>) {
        self.open = self.open && self.blocks.send(block).await.is_ok();
    }
}

impl Replication {
    /// Sends slices of one copy. Returns the work that reads the copy for all of them, and the work of
    /// each.
    pub(in crate::object::replication) fn send_slices<'a>(
        &'a self,
        work: &'a Work<'_>,
        sends: Vec<SliceSend>,
    ) -> (BoxFuture<'a, Executed>, Sends<'a>) {
        let (mut ways, mut sending) = (Vec::new(), Sends::new());
        let first = sends.first().map(|send| (send.copy, send.slice));
        for send in sends {
            let (blocks, taken) = mpsc::channel(WAITING);
            let (number, sum) = (send.slice.number.into(), SLICE_CHECKSUM.hasher());
            ways.push(Way { number, blocks, sum, open: true });
            let id = send.id;
            let sent = async move {
                let request = async |node: &Node| self.send_slice(work, node, &send, taken).await;
                let sent = self.until_death(&send.to, request).await;
                Executed::Answered(id, sent.map_or_else(refused, done))
            };
            sending.push((id, Box::pin(sent) as BoxFuture<'a, Executed>));
        }
        let reading = async move {
            if let Some((copy, slice)) = first {
                self.read_for_slices(work, copy, slice, ways).await;
            }
            Executed::Shared
        };
        (Box::pin(reading), sending)
    }

    async fn read_for_slices(
        &self,
        work: &Work<'_>,
        copy: LocalCopy,
        slice: Slice,
        mut ways: Vec<Way>,
    ) {
        let read = match self.record_of(work, copy).await {
            Ok(record) => {
                let layout = Layout::of(slice, record.size);
                self.cut(&record, layout, &mut ways).await
            }
            Err(e) => Err(e),
        };
        if let Err(e) = read {
            for way in &mut ways {
                way.send(Err(e.clone())).await;
            }
        }
    }

    /// Encodes a slice of a copy here, and commits it here.
    pub(in crate::object::replication) async fn keep_slice(
        &self,
        info: &BucketInfo,
        record: &Record,
        slice: Slice,
    ) -> Result<()> {
        let layout = Layout::of(slice, record.size);
        let place = self.free_place(info.id, &record.name, slice).await?;
        let id = slice.id(info.id, place);
        let mut file = self.store().begin(id, &record.name, Some(layout.slice_len())).await?;
        let (blocks, mut taken) = mpsc::channel(WAITING);
        let number = slice.number.into();
        let mut ways = [Way { number, blocks, sum: SLICE_CHECKSUM.hasher(), open: true }];
        let mut hasher = SLICE_CHECKSUM.hasher();
        let writing = async {
            let mut rest = layout.slice_len();
            while rest > 0 {
                let block = taken.recv().await.unwrap_or_else(|| {
                    Err(Error::internal("a slice ends before its last block"))
                })?;
                rest = rest.saturating_sub(block.len() as u64);
                hasher.update(&block);
                file.write(block).await?;
            }
            // The checksum follows, which the encoder waits to hand over.
            drop(taken.recv().await);
            Ok::<(), Error>(())
        };
        let (cut, written) =
            futures::future::join(self.cut(record, layout, &mut ways), writing).await;
        cut?;
        written?;
        let sum = hasher.finish().ok_or_else(|| Error::internal("a slice has no checksum"))?;
        let (meta, epoch) = (record.object_meta(), record.meta.epoch);
        let head = CopyHead { meta, epoch, ..CopyHead::default() };
        self.store_slice(info, &head, (sum, id), file).await
    }

    /// Reads an object once and sends the blocks of its slices to their destinations.
    async fn cut(&self, record: &Record, layout: Layout, ways: &mut [Way]) -> Result<()> {
        let reader = self.store().reader(record).await?;
        let mut coder = Coder::new(layout);
        for stripe in layout.stripes() {
            let blocks = coder.encode(stripe, &reader.read(stripe.range).await?)?;
            for way in ways.iter_mut().filter(|way| way.open) {
                way.sum.update(&blocks[way.number]);
                way.send(Ok(blocks[way.number].clone())).await;
            }
            if ways.iter().all(|way| !way.open) {
                return Ok(());
            }
        }
        for way in ways.iter_mut() {
            let sum = std::mem::replace(&mut way.sum, SLICE_CHECKSUM.hasher()).finish();
            let sum = sum.ok_or_else(|| Error::internal("a slice has no checksum"))?;
            way.send(Ok(Bytes::from(sum.value))).await;
        }
        Ok(())
    }

    async fn send_slice(
        &self,
        work: &Work<'_>,
        to: &Node,
        send: &SliceSend,
        blocks: mpsc::Receiver<Result<Bytes>>,
    ) -> Result<()> {
        let record = self.record_of(work, send.copy).await?;
        let slice = send.slice;
        let head = CopyHead {
            meta: record.object_meta(),
            epoch: record.meta.epoch,
            from: Some(self.me().clone()),
            written: send.written,
            slice: Some(slice),
            slice_sum: None,
        };
        let headers = headers_of(&head)?;
        let path = object_uri(&work.info().bucket, &record.name);
        let path = path.replacen("/v1/objects", COPIES_PATH, 1);
        let len = Layout::of(slice, record.size).slice_len() + SLICE_CHECKSUM_LEN;
        let body: BodyStream = futures::stream::unfold(blocks, async |mut blocks| {
            Some((blocks.recv().await?, blocks))
        })
        .boxed();
        let peer = self.0.peer.with_idle_timeout(TRANSFER_TIMEOUT);
        peer.put_stream(&to.url, &path, headers, body, Some(len)).await?;
        Ok(())
    }
}
