//! Transfers of copies of native objects between targets. The receiver compares stamps under the
//! object's lock: an older copy never replaces a newer one, nor restores an object that was removed
//! after the copy was written.

use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{COPY_HEADER, CopyHead, CopyLook, CopyRequest, Stamp};
use forebay_core::native::Arrival;
use forebay_core::size::ByteRange;
use forebay_core::state::{ClusterState, Node};
use forebay_core::v1::query::object_uri;
use forebay_core::{Error, ErrorCode, Result, history, native, placement, rebalance};
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Replication;
use crate::backend::BodyStream;
use crate::object::Key;
use crate::pace::Pace;
use crate::store::{Record, RecordMeta};

/// Path of a look: a target's state of an object, after writes in progress have ended.
pub(crate) const LOOK_PATH: &str = "/internal/v1/copy/look";
/// Path of a look that does not wait for writes in progress.
pub(super) const PEEK_PATH: &str = "/internal/v1/copy/peek";
/// Path of a request to send a copy.
pub(crate) const SEND_PATH: &str = "/internal/v1/copy/send";
/// Path of a notice that older copies were superseded or removed.
pub(crate) const REMOVE_PATH: &str = "/internal/v1/copy/remove";
/// Path of transfers of copies.
pub(super) const COPIES_PATH: &str = "/internal/v1/copies";
/// Path component of a copy that is an older version of its object, in the bucket's history.
pub(crate) const OLDER: &str = "older";
/// Timeout from the last byte of a copy to its response, and of a request to send one.
pub(crate) const SENT_WITHIN: Duration = Duration::from_secs(300);
/// Above this many bytes the sender first asks the receiver whether it needs the copy.
const LOOK_FIRST: u64 = 256 << 10;
/// Cost of moving an object in addition to its bytes, in bytes: many small ones are work, too.
pub(super) const COST_OF_ONE: u64 = 16 << 10;

/// A record of a bucket: an object by name, or an older version of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Which<'a> {
    pub(crate) info: &'a BucketInfo,
    /// The object's name, or that of the version in the history.
    pub(crate) name: &'a str,
    pub(crate) older: bool,
}

/// Why a copy is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// A write in progress; the receiver certainly does not have it.
    Written,
    /// It belongs there. `alone`: no look has shown whether the receiver has it already.
    Moved { alone: bool },
}

impl Which<'_> {
    /// The id under which the store has it.
    fn bucket_id(&self) -> u64 {
        if self.older { history::id(self.info.id) } else { self.info.id }
    }

    /// The name of the object that decides the owner.
    pub(super) fn object(&self) -> &str {
        match history::split(self.name) {
            Some((object, _)) if self.older => object,
            _ => self.name,
        }
    }

    pub(super) fn key(&self) -> Key {
        Key { bucket_id: self.bucket_id(), name: self.name.into() }
    }

    /// A request about it.
    pub(super) fn request(&self) -> CopyRequest {
        CopyRequest { older: self.older, ..CopyRequest::new(&self.info.bucket, self.name) }
    }

    pub(super) fn uri(&self) -> String {
        self.info.bucket.object_uri(self.name)
    }

    pub(super) fn belongs_elsewhere(&self) -> Error {
        native::belongs_elsewhere(self.info, self.name)
    }
}

impl Replication {
    /// The state of an object here, after writes in progress have ended.
    pub(crate) async fn look(&self, info: &BucketInfo, request: &CopyRequest) -> Result<CopyLook> {
        let which = Which { info, name: &request.name, older: request.older };
        let _guard = self.local().locks.lock(&which.key()).await;
        self.peek(info, request).await
    }

    /// The state of an object here at this moment.
    pub(crate) async fn peek(&self, info: &BucketInfo, request: &CopyRequest) -> Result<CopyLook> {
        let name = request.name.as_str();
        if request.older {
            let record = self.store().get(history::id(info.id), name).await?;
            if record.is_none() {
                self.store().check_absent(history::id(info.id), name)?;
            }
            let there = record.map(|record| record.stamp());
            let removed = self.version_tombstone(info, name).await?;
            return Ok(CopyLook { there, removed, ..CopyLook::default() });
        }
        let record = self.store().get(info.id, name).await?;
        if record.is_none() && !request.in_part {
            self.store().check_absent(info.id, name)?;
        }
        let damaged =
            record.as_ref().is_some_and(|now| self.0.mending.has(&Key::new(info, name), now));
        let there = record.map(|record| record.stamp());
        let removed = self.tombstone(info, name).await?;
        let slices = self.look_at_slices(info, name).await?;
        let may_lack = info.erasure.is_some() && self.may_lack();
        Ok(CopyLook { there, damaged, removed, slices, may_lack })
    }

    /// Handles another target's notice that copies older than the request's stamp were superseded
    /// or removed, by the node in the request.
    pub(crate) async fn overtaken(&self, info: &BucketInfo, request: &CopyRequest) -> Result<()> {
        let CopyRequest { name, stamp, by, replaced, undone, .. } = request;
        let (name, stamp) = (name.as_str(), *stamp);
        if request.older {
            let which = Which { info, name, older: true };
            return self.version_removed(which, request).await;
        }
        let _guard = self.local().locks.lock(&Key::new(info, name)).await;
        let state = self.state();
        if let Some(by) = by {
            native::check_writer(&state, info, name, by)?;
        }
        if *undone {
            return self.drop_slices(info, name, |of| of == stamp).await;
        }
        let found = self.store().get(info.id, name).await?;
        let gone = request.gone();
        if !*replaced
            && native::notes_removal(&state, info, name, self.me())
            && self.tombstone(info, name).await? < Some(gone)
        {
            self.bury(info, name, gone).await?;
        }
        if found.is_some_and(|record| record.stamp() < stamp) {
            self.store().remove(info.id, name).await?;
        }
        if self.may_have_slices(info) {
            self.drop_slices(info, name, |of| of < stamp).await?;
        }
        Ok(())
    }

    /// Removes the copy and slices of an object here that are older than `stamp`.
    pub(super) async fn remove_older(
        &self,
        info: &BucketInfo,
        name: &str,
        stamp: Stamp,
    ) -> Result<()> {
        let request = CopyRequest { stamp, ..CopyRequest::new(&info.bucket, name) };
        self.overtaken(info, &request).await
    }

    /// Sends a removal that was recorded here to the holders of the object.
    pub(crate) async fn spread_tombstone(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let state = self.state();
        let (stamp, older) = match self.tombstone(info, name).await? {
            None => (self.version_tombstone(info, name).await?, true),
            stamp => (stamp, false),
        };
        let Some(stamp) = stamp else { return Ok(()) };
        let which = Which { info, name, older };
        let others = rebalance::duty(&state, info, which.object(), self.me()).others;
        let request = CopyRequest { stamp, ..which.request() };
        for to in others.into_iter().filter(|n| n.alive) {
            let () = self.0.peer.post_json(&to.url, REMOVE_PATH, &request).await?;
        }
        Ok(())
    }

    /// Moves a copy to where it belongs: sends it to the holders that lack it, and drops it here
    /// when it is safe there, unless it belongs here, too. Returns the bytes sent or dropped;
    /// `None` if there was nothing to do.
    pub(crate) async fn spread(&self, which: Which<'_>, pace: &Pace) -> Result<Option<u64>> {
        let state = self.state();
        let duty = rebalance::duty(&state, which.info, which.object(), self.me());
        if duty.others.is_empty() {
            return Ok(None);
        }
        if let Some(dead) = duty.others.iter().find(|n| !n.alive && !duty.stays) {
            let text = format!("{} belongs to target {}, which is down", which.uri(), dead.id);
            return Err(Error::unavailable(text));
        }
        let Some(record) = self.record_at_rest(which).await? else { return Ok(None) };
        if which.info.erasure.is_some() {
            return self.spread_or_drop(which, &record, pace).await;
        }
        let mut bytes = None;
        for to in duty.others.iter().filter(|n| n.alive) {
            let why = Sent::Moved { alone: !which.info.has_copies() };
            if why == (Sent::Moved { alone: true }) || self.wants(to, which, &record).await? {
                pace.pass(usize::try_from(record.size + COST_OF_ONE).unwrap_or(usize::MAX)).await;
                self.send(to, which, &record, why).await?;
                bytes = Some(bytes.unwrap_or(0) + record.size);
            }
        }
        if !duty.stays {
            bytes = Some(bytes.unwrap_or(record.size));
            self.drop_this(which, &record).await?;
        }
        Ok(bytes)
    }

    /// Sends the copy of an object here to a target that requested it and where it belongs.
    pub(crate) async fn hand_over(&self, info: &BucketInfo, request: &CopyRequest) -> Result<()> {
        let CopyRequest { name, by, anew, .. } = request;
        let to = by.as_ref().ok_or_else(|| Error::invalid("no target for the copy is given"))?;
        let which = Which { info, name, older: false };
        let state = self.state();
        let duty = rebalance::duty(&state, info, name, self.me());
        let to = duty.others.iter().find(|n| n.id == *to && n.alive);
        let to = to.ok_or_else(|| which.belongs_elsewhere())?;
        let Some(record) = self.record_at_rest(which).await? else { return Ok(()) };
        self.send(to, which, &record, Sent::Moved { alone: !anew }).await?;
        if !duty.stays && duty.others.len() == 1 && info.erasure.is_none() {
            self.drop_this(which, &record).await?;
        }
        Ok(())
    }

    /// The record, after writers under an older state have ended.
    pub(super) async fn record_at_rest(&self, which: Which<'_>) -> Result<Option<Record>> {
        let _guard = self.local().locks.lock(&which.key()).await;
        self.store().get(which.bucket_id(), which.name).await
    }

    /// Drops a copy that is safe elsewhere, unless it was replaced meanwhile.
    pub(super) async fn drop_this(&self, which: Which<'_>, record: &Record) -> Result<()> {
        let _guard = self.local().locks.lock(&which.key()).await;
        let now = self.store().get(which.bucket_id(), which.name).await?;
        if now.is_some_and(|now| now.generation == record.generation) {
            self.store().remove(which.bucket_id(), which.name).await?;
        }
        Ok(())
    }

    /// Whether a target has neither this copy nor a later change. A removal that it knows of is
    /// one, too.
    pub(super) async fn wants(&self, to: &Node, which: Which<'_>, record: &Record) -> Result<bool> {
        let request = which.request();
        let look: CopyLook = self.0.peer.post_json(&to.url, LOOK_PATH, &request).await?;
        let stamp = record.stamp();
        if let Some(removed) = look.removed.filter(|r| *r > stamp && look.there < Some(*r)) {
            let request = CopyRequest { stamp: removed, ..request };
            self.overtaken(which.info, &request).await?;
        }
        Ok(!look.knows(stamp))
    }

    /// Returns when `to` has the copy, or a newer one.
    pub(super) async fn send(
        &self,
        to: &Node,
        which: Which<'_>,
        record: &Record,
        why: Sent,
    ) -> Result<()> {
        if why == (Sent::Moved { alone: true })
            && record.size > LOOK_FIRST
            && !which.older
            && !self.wants(to, which, record).await?
        {
            return Ok(());
        }
        let head = CopyHead {
            meta: record.object_meta(),
            epoch: record.meta.epoch,
            from: Some(self.me().clone()),
            written: why == Sent::Written,
            ..CopyHead::default()
        };
        let headers = headers_of(&head)?;
        let mut path = object_uri(&which.info.bucket, which.name);
        path = path.replacen("/v1/objects", COPIES_PATH, 1);
        if which.older {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&format!("{OLDER}=true"));
        }
        let reader = self.store().reader(record).await?;
        let body = reader.stream(ByteRange::whole(record.size)).boxed();
        let peer = self.0.peer.with_idle_timeout(SENT_WITHIN);
        peer.put_stream(&to.url, &path, headers, body, Some(record.size)).await?;
        Ok(())
    }

    /// Accepts a copy that belongs here, unless the state here is as new. Its bytes are verified
    /// against its checksum.
    pub(crate) async fn accept_copy(
        &self,
        which: Which<'_>,
        head: CopyHead,
        mut body: BodyStream,
    ) -> Result<()> {
        let info = which.info;
        self.check_arrival(&self.state(), which, &head)?;
        if self.is_known(which, &head).await? {
            while body.next().await.transpose()?.is_some() {}
            return Ok(());
        }
        let uri = which.uri();
        let meta = head.meta.clone();
        let mut work = self.store().begin(which.bucket_id(), which.name, Some(meta.size)).await?;
        let mut hasher = meta.checksum.as_ref().map(|sum| sum.kind.hasher());
        while let Some(chunk) = body.next().await {
            let chunk = chunk?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&chunk);
            }
            work.write(chunk).await?;
        }
        if work.written() != meta.size {
            let (came, size) = (work.written(), meta.size);
            return Err(Error::invalid(format!("{uri}: {came} of {size} bytes of a copy came")));
        }
        if let (Some(Some(got)), Some(sent)) = (hasher.map(|h| h.finish()), &meta.checksum) {
            got.expect(sent, &uri)?;
        }
        let _guard = self.local().locks.lock(&which.key()).await;
        let state = self.state();
        self.check_arrival(&state, which, &head)?;
        if self.is_known(which, &head).await? {
            return Ok(());
        }
        self.check_not_removed(&state, which, &head).await?;
        let record = RecordMeta::of_object(meta, head.epoch, info.class);
        self.store().commit(work, record).await.map(drop)
    }

    /// An error if a copy does not belong here, or its writer may not write it any more.
    fn check_arrival(&self, state: &ClusterState, which: Which<'_>, head: &CopyHead) -> Result<()> {
        if let Some(writer) = head.from.as_ref().filter(|_| head.written) {
            native::check_writer(state, which.info, which.object(), writer)?;
        }
        let duty = rebalance::duty(state, which.info, which.object(), self.me());
        // A holder of a slice accepts the whole of a coded object only if it may have to serve it.
        let stays = duty.stays
            && (which.info.erasure.is_none() || self.tells(state, which.info, which.object()));
        stays.then_some(()).ok_or_else(|| which.belongs_elsewhere())
    }

    /// Whether this target may have to serve an object.
    fn tells(&self, state: &ClusterState, info: &BucketInfo, name: &str) -> bool {
        let holders = placement::holders(state, info, placement::digest_in(&info.bucket, name));
        placement::metadata_holders(info, &holders).iter().any(|node| node.id == *self.me())
    }

    /// An error if a removal of the object since this copy was sent could not be detected.
    pub(super) async fn check_not_removed(
        &self,
        state: &ClusterState,
        which: Which<'_>,
        head: &CopyHead,
    ) -> Result<()> {
        if head.written {
            return Ok(());
        }
        if !which.info.has_copies() {
            self.store().check_absent(which.bucket_id(), which.name)?;
        }
        let from = head.from.as_ref();
        let arrival = native::arrival(state, which.info, which.object(), self.me(), from, false);
        match arrival {
            Arrival::Take => return Ok(()),
            Arrival::Refuse => {}
            Arrival::IfStillAt(from) => {
                if self.peek_at(from, which).await?.there == Some(head.stamp()) {
                    return Ok(());
                }
            }
            // A version is never written a second time.
            Arrival::IfNewest(_) if which.older => return Ok(()),
            Arrival::IfNewest(others) => {
                let looks = others.into_iter().map(|node| self.peek_at(node, which));
                let looks = futures::future::try_join_all(looks).await?;
                if !looks.iter().any(|look| look.is_after(head.stamp())) {
                    return Ok(());
                }
            }
        }
        let text = format!("{}: the copy is not wanted any more", which.uri());
        Err(Error::new(ErrorCode::Conflict, text))
    }

    /// The current state of another target's copy, without waiting for writes in progress.
    async fn peek_at(&self, node: &Node, which: Which<'_>) -> Result<CopyLook> {
        if !node.alive {
            return Err(Error::unavailable(format!("target {} is down", node.id)));
        }
        Ok(self.0.peer.post_json(&node.url, PEEK_PATH, &which.request()).await?)
    }

    /// Whether this target has this copy, or a later change.
    async fn is_known(&self, which: Which<'_>, head: &CopyHead) -> Result<bool> {
        let here = self.store().get(which.bucket_id(), which.name).await?;
        if which.older {
            // A version is never written a second time, nor after it was removed for good.
            return Ok(
                here.is_some() || self.version_tombstone(which.info, which.name).await?.is_some()
            );
        }
        let damaged = here.as_ref().is_some_and(|now| self.0.mending.has(&which.key(), now));
        let there = here.map(|record| record.stamp());
        let removed = self.tombstone(which.info, which.name).await?;
        let slices = self.look_at_slices(which.info, which.name).await?;
        let look = CopyLook { there, removed, damaged, slices, may_lack: false };
        // A whole beside a newer slice would be served as the current object.
        Ok(look.knows(head.stamp()) || look.newest() > Some(head.stamp()))
    }

    /// Returns when all changes in progress have ended: later ones use the state that this target
    /// has now.
    pub(crate) async fn changes_under_way(&self) {
        self.local().locks.drained().await;
    }
}

/// The headers of a transfer of a copy or a slice.
pub(crate) fn headers_of(head: &CopyHead) -> Result<HeaderMap> {
    let value = HeaderValue::from_str(&head.to_header()?)
        .map_err(|_| Error::internal("a copy's metadata cannot stand in a header"))?;
    Ok(HeaderMap::from_iter([(HeaderName::from_static(COPY_HEADER), value)]))
}
