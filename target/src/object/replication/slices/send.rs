//! Sends slices. An object is read once, stripe by stripe, and all its slices are sent
//! concurrently; only a few blocks of each are in memory.

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::Hasher;
use forebay_core::copies::CopyHead;
use forebay_core::erasure::{Form, Slice};
use forebay_core::state::{ClusterState, Node};
use forebay_core::v1::query::object_uri;
use forebay_core::{Error, NodeId, Result, rebalance};
use futures::StreamExt;
use futures::future::{join, join_all};
use tokio::sync::mpsc;

use super::coder::{Coder, Layout};
use super::{SUM, SUM_LEN};
use crate::backend::BodyStream;
use crate::object::replication::Replication;
use crate::object::replication::transfer::{COPIES_PATH, SENT_WITHIN, Sent, Which, headers_of};
use crate::store::Record;

/// Number of blocks of a slice that wait for its target.
const WAITING: usize = 2;

/// The result of a transfer to a target; `None`: the target died.
pub(in crate::object) type Told<'a> = (&'a NodeId, Option<Result<()>>);

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
    /// Sends each of `others` its form of an object that was written here just now.
    pub(in crate::object) async fn tell_forms<'a>(
        &self,
        state: &ClusterState,
        info: &BucketInfo,
        record: &Record,
        others: Vec<&'a Node>,
    ) -> Vec<Told<'a>> {
        let forms = rebalance::forms(state, info, &record.name, record.size);
        let (mut whole, mut slices, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for node in others {
            match forms.iter().find(|(due, _)| due.id == node.id) {
                Some((_, Form::Whole)) => whole.push(node),
                Some((_, Form::Slice(slice))) => slices.push((node, *slice)),
                // It gets the change when all holders have it.
                None => told.push((&node.id, Some(Ok(())))),
            }
        }
        let which = Which { info, name: &record.name, older: false };
        let copies = whole.into_iter().map(async |node| {
            let sent = tokio::select! {
                sent = self.send(node, which, record, Sent::Written) => Some(sent),
                () = self.death_of(&node.id) => None,
            };
            (&node.id, sent)
        });
        let sent = self.send_slices(info, record, slices, true);
        let (copies, sent) = join(join_all(copies), sent).await;
        told.extend(copies);
        told.extend(sent);
        told
    }

    /// Sends each target its slice of an object that is stored here. `written`: it was written just
    /// now.
    pub(in crate::object) async fn send_slices<'a>(
        &self,
        info: &BucketInfo,
        record: &Record,
        wanted: Vec<(&'a Node, Slice)>,
        written: bool,
    ) -> Vec<Told<'a>> {
        let Some((_, first)) = wanted.first() else { return Vec::new() };
        let layout = Layout::of(*first, record.size);
        let mut ways = Vec::with_capacity(wanted.len());
        let mut sends = Vec::with_capacity(wanted.len());
        for (node, slice) in wanted {
            let (blocks, taken) = mpsc::channel(WAITING);
            ways.push(Way { number: slice.number.into(), blocks, sum: SUM.hasher(), open: true });
            sends.push(async move {
                let sent = tokio::select! {
                    sent = self.send_slice(info, record, (node, slice), written, taken) => Some(sent),
                    () = self.death_of(&node.id) => None,
                };
                (&node.id, sent)
            });
        }
        join(self.cut(record, layout, ways), join_all(sends)).await.1
    }

    /// Reads an object once and sends the blocks of its slices to their destinations.
    async fn cut(&self, record: &Record, layout: Layout, mut ways: Vec<Way>) {
        if let Err(e) = self.cut_to_end(record, layout, &mut ways).await {
            for way in &mut ways {
                way.send(Err(e.clone())).await;
            }
        }
    }

    async fn cut_to_end(&self, record: &Record, layout: Layout, ways: &mut [Way]) -> Result<()> {
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
            let sum = std::mem::replace(&mut way.sum, SUM.hasher()).finish();
            let sum = sum.ok_or_else(|| Error::internal("a slice has no checksum"))?;
            way.send(Ok(Bytes::from(sum.value))).await;
        }
        Ok(())
    }

    async fn send_slice(
        &self,
        info: &BucketInfo,
        record: &Record,
        (to, slice): (&Node, Slice),
        written: bool,
        blocks: mpsc::Receiver<Result<Bytes>>,
    ) -> Result<()> {
        let head = CopyHead {
            meta: record.object_meta(),
            epoch: record.meta.epoch,
            from: Some(self.me().clone()),
            written,
            slice: Some(slice),
            slice_sum: None,
        };
        let headers = headers_of(&head)?;
        let path = object_uri(&info.bucket, &record.name);
        let path = path.replacen("/v1/objects", COPIES_PATH, 1);
        let len = Layout::of(slice, record.size).slice_len() + SUM_LEN;
        let body: BodyStream = futures::stream::unfold(blocks, async |mut blocks| {
            Some((blocks.recv().await?, blocks))
        })
        .boxed();
        let peer = self.0.peer.with_idle_timeout(SENT_WITHIN);
        peer.put_stream(&to.url, &path, headers, body, Some(len)).await?;
        Ok(())
    }
}
