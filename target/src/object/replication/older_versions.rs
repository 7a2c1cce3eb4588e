//! Older versions of objects while objects move, or a target is unavailable: the owner fetches them
//! before it reports a version as missing, and removals include other targets.

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::requests::{LookRequest, Reason, RemoveRequest, SendVersionsRequest};
use forebay_core::copies::{CopyHead, CopyLook, Stamp};
use forebay_core::native::Arrival;
use forebay_core::object::ObjectMeta;
use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, ErrorCode, Result, history, native, placement, rebalance};
use forebay_node::pace::Pace;
use forebay_store::Record;
use futures::future::{join_all, try_join_all};

use super::Replication;
use super::peer_commands::{LOOK_PATH, PEEK_PATH, REMOVE_PATH};
use super::transfer::{IncomingTransfer, OBJECT_COST_BYTES, Outgoing, TRANSFER_TIMEOUT};
use crate::object::versions::{keeps_versions, older, version_of};

/// Path of the request to send all older versions of an object.
pub(crate) const SEND_VERSIONS_PATH: &str = "/internal/v1/copy/send-versions";

/// Attempts to find a version that moves between the look-up and the open.
const LOOKS: usize = 5;

/// Counts look-ups of a version. Its location may change before it is opened there: its object is
/// replaced, or it moves to another target.
#[derive(Debug, Default)]
pub(crate) struct VersionLooks(usize);

impl VersionLooks {
    /// Whether the opened record is not the requested version, so that it has to be looked up
    /// again. An error after too many attempts.
    pub(crate) fn again(
        &mut self,
        info: &BucketInfo,
        version: Option<&str>,
        opened: Result<&ObjectMeta, &Error>,
    ) -> Result<bool> {
        let Some(version) = version.filter(|_| keeps_versions(info)) else { return Ok(false) };
        let moved = match opened {
            Ok(object) => version_of(&object.custom) != version,
            Err(e) => e.code == ErrorCode::ObjectNotFound,
        };
        self.0 += 1;
        if moved && self.0 == LOOKS {
            let text = format!("version {version} in {} is being moved", info.bucket);
            return Err(Error::unavailable(text).retry_after(1));
        }
        Ok(moved)
    }
}

impl Replication {
    /// Whether the object that is about to become an older version may be on a former owner: the new
    /// write would supersede it there, so it has to be fetched first.
    pub(in crate::object) fn may_lack_replaced(&self, info: &BucketInfo) -> bool {
        keeps_versions(info) && !self.state().is_in_place(info)
    }

    /// Fetches all older versions of an object. An error if a target, or a disk, that may have some
    /// is unavailable.
    pub(in crate::object) async fn gather_versions(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<()> {
        let state = self.state();
        let others = native::who_may_have_versions(&state, info, name, self.me());
        let (bucket, by) = (info.bucket.clone(), self.me().clone());
        let request = SendVersionsRequest { bucket, name: name.to_owned(), by };
        let peer = self.0.peer.with_idle_timeout(TRANSFER_TIMEOUT);
        let asked = others.into_iter().map(|node| {
            let (peer, request) = (&peer, &request);
            async move {
                let sent: Result<()> = match node.alive {
                    false => Err(Error::unavailable("it is down")),
                    true => tokio::select! {
                        sent = peer.post_json(&node.url, SEND_VERSIONS_PATH, request) => {
                            sent.map_err(Error::from)
                        }
                        () = self.death_of(&node.id) => Err(Error::unavailable("it died")),
                    },
                };
                (node, sent)
            }
        });
        for (node, sent) in join_all(asked).await {
            match sent {
                // A target without that bucket has nothing of the object.
                Err(e) if e.code != ErrorCode::BucketNotFound => {
                    let uri = info.bucket.object_uri(name);
                    return Err(Error::unavailable(format!(
                        "versions of {uri} may lie with target {}, which does not send them: {}",
                        node.id, e.message
                    )));
                }
                _ => {}
            }
        }
        // Any of them may be on a disk that is not in use.
        self.store().check_whole()
    }

    /// Sends the older versions of an object here to the object's owner.
    pub(crate) async fn hand_over_versions(
        &self,
        info: &BucketInfo,
        request: &SendVersionsRequest,
    ) -> Result<()> {
        let SendVersionsRequest { name, by, .. } = request;
        let state = self.state();
        let duty = rebalance::duty(&state, info, name, self.me());
        let to = duty.others.iter().find(|n| n.id == *by && n.alive);
        let to = to.ok_or_else(|| native::belongs_elsewhere(info, name))?;
        self.store().check_whole()?;
        let leaves = !duty.stays && duty.others.len() == 1 && info.erasure.is_none();
        for older in older(self.store(), info, name).await? {
            let Some(record) = self.version_at_rest(info, &older.name).await? else { continue };
            if self.is_version_needed_at(to, info, &record).await? {
                self.send_version(to, info, &record).await?;
            }
            if leaves {
                self.drop_version(info, &record).await?;
            }
        }
        Ok(())
    }

    /// Removes a version for good that this target, the owner, has found. All living targets that
    /// may have it remove it first; a tombstone keeps dead ones from restoring it. The caller holds
    /// the object's lock.
    pub(in crate::object) async fn forget_version(
        &self,
        info: &BucketInfo,
        name: &str,
        older: &str,
        found: &Record,
    ) -> Result<()> {
        let state = self.state();
        let stamp = found.stamp().next(state.version);
        if !self.is_quiescent(&state) {
            self.write_tombstone(info, older, stamp, true).await?;
        }
        let by = Some(self.me().clone());
        let request = RemoveRequest { by, ..version_removal(info, older, stamp) };
        let removals =
            native::replica_set(&state, info, name, self.me()).all.into_iter().map(|node| {
                let request = &request;
                async move { self.remove_version_at(node, info, request).await }
            });
        try_join_all(removals).await?;
        self.store().remove(history::id(info.id), older).await.map(drop)
    }

    async fn remove_version_at(
        &self,
        node: &Node,
        info: &BucketInfo,
        request: &RemoveRequest,
    ) -> Result<()> {
        let removed = tokio::select! {
            removed = self.0.peer.post_json::<_, ()>(&node.url, REMOVE_PATH, request) => removed,
            // The tombstone here reaches that target when it is back.
            () = self.death_of(&node.id) => return Ok(()),
        };
        let removed = removed.map_err(Error::from);
        removed.map_err(|e| match e.code {
            ErrorCode::WrongOwner | ErrorCode::Unavailable => e,
            _ => {
                let uri = info.bucket.object_uri(&request.name);
                let text = format!("target {} does not remove a version of {uri}: {e}", node.id);
                Error::unavailable(text)
            }
        })
    }

    /// The object's owner, another target, removed this version.
    pub(super) async fn version_removed(
        &self,
        info: &BucketInfo,
        request: &RemoveRequest,
    ) -> Result<()> {
        let (id, name) = (history::id(info.id), request.name.as_str());
        let _guard = self.local().lock_key(id, name).await;
        let state = self.state();
        if let Some(by) = &request.by {
            native::check_writer(&state, info, object_of(name), by)?;
        }
        let is_whole = self.store().check_whole().is_ok();
        if native::notes_removal(&state, info, object_of(name), self.me(), is_whole)
            && self.version_tombstone(info, name).await? < Some(request.stamp)
        {
            self.write_tombstone(info, name, request.stamp, true).await?;
        }
        self.store().remove(id, name).await.map(drop)
    }

    /// The state of a version here. `at_rest`: after changes in progress have ended.
    pub(super) async fn look_at_version(
        &self,
        info: &BucketInfo,
        name: &str,
        at_rest: bool,
    ) -> Result<CopyLook> {
        let id = history::id(info.id);
        let _guard = match at_rest {
            true => Some(self.local().lock_key(id, name).await),
            false => None,
        };
        let record = self.store().get(id, name).await?;
        if record.is_none() {
            self.store().check_absent(id, name)?;
        }
        let there = record.map(|record| record.stamp());
        let removed = self.version_tombstone(info, name).await?;
        Ok(CopyLook { there, removed, ..CopyLook::default() })
    }

    /// Sends the removal of a version, which was recorded here, to the holders of its object.
    pub(super) async fn relocate_version_tombstone(
        &self,
        info: &BucketInfo,
        name: &str,
        stamp: Stamp,
    ) -> Result<()> {
        let state = self.state();
        let others = rebalance::duty(&state, info, object_of(name), self.me()).others;
        let request = version_removal(info, name, stamp);
        for to in others.into_iter().filter(|node| node.alive) {
            let () = self.0.peer.post_json(&to.url, REMOVE_PATH, &request).await?;
        }
        Ok(())
    }

    /// Moves a version to where its object belongs. Returns the bytes sent or dropped; `None` if
    /// there was nothing to do.
    pub(crate) async fn relocate_version(
        &self,
        info: &BucketInfo,
        name: &str,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let state = self.state();
        let duty = rebalance::duty(&state, info, object_of(name), self.me());
        if duty.others.is_empty() {
            return Ok(None);
        }
        if let Some(dead) = duty.others.iter().find(|node| !node.alive && !duty.stays) {
            let uri = info.bucket.object_uri(name);
            let text = format!("{uri} belongs to target {}, which is down", dead.id);
            return Err(Error::unavailable(text));
        }
        let Some(record) = self.version_at_rest(info, name).await? else { return Ok(None) };
        let mut bytes = None;
        for to in duty.others.iter().filter(|node| node.alive) {
            if !info.has_copies() || self.is_version_needed_at(to, info, &record).await? {
                let cost = record.size.saturating_add(OBJECT_COST_BYTES);
                pace.pass(usize::try_from(cost).unwrap_or(usize::MAX)).await;
                self.send_version(to, info, &record).await?;
                bytes = Some(bytes.unwrap_or(0) + record.size);
            }
        }
        if !duty.stays {
            bytes = Some(bytes.unwrap_or(record.size));
            self.drop_version(info, &record).await?;
        }
        Ok(bytes)
    }

    /// The version here, after changes in progress have ended.
    async fn version_at_rest(&self, info: &BucketInfo, name: &str) -> Result<Option<Record>> {
        let _guard = self.local().lock_key(history::id(info.id), name).await;
        self.store().get(history::id(info.id), name).await
    }

    /// Drops a version that is safe elsewhere, unless it was replaced meanwhile.
    async fn drop_version(&self, info: &BucketInfo, record: &Record) -> Result<()> {
        let (id, name) = (history::id(info.id), record.name.as_str());
        let _guard = self.local().lock_key(id, name).await;
        let now = self.store().get(id, name).await?;
        if now.is_some_and(|now| now.generation == record.generation) {
            self.store().remove(id, name).await?;
        }
        Ok(())
    }

    /// Whether a target has neither this version nor knows of its removal. In that case the version
    /// here is removed, too.
    async fn is_version_needed_at(
        &self,
        to: &Node,
        info: &BucketInfo,
        record: &Record,
    ) -> Result<bool> {
        let request = version_look(info, &record.name);
        let look: CopyLook = self.0.peer.post_json(&to.url, LOOK_PATH, &request).await?;
        let stamp = record.stamp();
        if let Some(removed) = look.removed.filter(|r| *r > stamp && look.there < Some(*r)) {
            self.version_removed(info, &version_removal(info, &record.name, removed)).await?;
        }
        Ok(!look.knows(stamp))
    }

    async fn send_version(&self, to: &Node, info: &BucketInfo, record: &Record) -> Result<()> {
        let outgoing = Outgoing { info, name: &record.name, older: true };
        self.send(to, outgoing, record, false).await
    }

    /// Accepts a version whose object belongs here. A version is never written a second time, nor
    /// after it was removed for good.
    pub(super) async fn receive_version(
        &self,
        info: &BucketInfo,
        mut transfer: IncomingTransfer,
    ) -> Result<()> {
        self.check_version_belongs_here(&self.state(), info, &transfer)?;
        if self.is_version_known(info, &transfer.name).await? {
            return transfer.drain().await;
        }
        self.receive_bytes(&mut transfer).await?;
        let _guard = self.local().lock_key(history::id(info.id), &transfer.name).await;
        let state = self.state();
        self.check_version_belongs_here(&state, info, &transfer)?;
        if self.is_version_known(info, &transfer.name).await? {
            return Ok(());
        }
        let IncomingTransfer { head, name, uri, .. } = &transfer;
        self.check_version_not_removed(&state, info, (head, name, uri)).await?;
        self.commit_copy(info, &mut transfer).await.map(drop)
    }

    fn check_version_belongs_here(
        &self,
        state: &ClusterState,
        info: &BucketInfo,
        transfer: &IncomingTransfer,
    ) -> Result<()> {
        let (head, object) = (&transfer.head, object_of(&transfer.name));
        if let Some(writer) = head.from.as_ref().filter(|_| head.written) {
            native::check_writer(state, info, object, writer)?;
        }
        let stays = rebalance::duty(state, info, object, self.me()).stays;
        let digest = placement::digest_in(&info.bucket, object);
        let may_own = || {
            let holders = placement::holders(state, info, digest);
            let holders = placement::metadata_holders(info, &holders);
            holders.iter().any(|node| node.id == *self.me())
        };
        let belongs = stays && (info.erasure.is_none() || may_own());
        belongs.then_some(()).ok_or_else(|| native::belongs_elsewhere(info, &transfer.name))
    }

    async fn is_version_known(&self, info: &BucketInfo, name: &str) -> Result<bool> {
        let here = self.store().get(history::id(info.id), name).await?;
        Ok(here.is_some() || self.version_tombstone(info, name).await?.is_some())
    }

    /// An error if a removal of the version since it was sent could not be detected.
    async fn check_version_not_removed(
        &self,
        state: &ClusterState,
        info: &BucketInfo,
        (head, name, uri): (&CopyHead, &str, &str),
    ) -> Result<()> {
        if head.written {
            return Ok(());
        }
        if !info.has_copies() {
            self.store().check_absent(history::id(info.id), name)?;
        }
        let from = head.from.as_ref();
        // Versions are taken from all targets: none is written a second time.
        let (object, complete) = (object_of(name), u64::MAX);
        let arrival = native::arrival(state, info, object, self.me(), from, false, complete);
        let accepted = match arrival {
            Arrival::Take | Arrival::IfNewest(_) => true,
            Arrival::Refuse => false,
            Arrival::IfStillAt(from) if !from.alive => {
                return Err(Error::unavailable(format!("target {} is down", from.id)));
            }
            Arrival::IfStillAt(from) => {
                let request = version_look(info, name);
                let look: CopyLook = self.0.peer.post_json(&from.url, PEEK_PATH, &request).await?;
                look.there == Some(head.stamp())
            }
        };
        let text = || format!("{uri}: the copy is not wanted any more");
        accepted.then_some(()).ok_or_else(|| Error::new(ErrorCode::Conflict, text()))
    }
}

/// The name of the object that a name in the history belongs to.
fn object_of(name: &str) -> &str {
    history::split(name).map_or(name, |(object, _)| object)
}

fn version_look(info: &BucketInfo, name: &str) -> LookRequest {
    let (bucket, name) = (info.bucket.clone(), name.to_owned());
    LookRequest { bucket, name, in_part: false, older: true }
}

/// A removal of a version that is complete.
fn version_removal(info: &BucketInfo, name: &str, stamp: Stamp) -> RemoveRequest {
    let (bucket, name) = (info.bucket.clone(), name.to_owned());
    RemoveRequest { bucket, name, stamp, by: None, reason: Reason::Deleted, older: true }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::bucket::Versioning;
    use forebay_core::history::VERSION;
    use forebay_core::{Bucket, Provider};

    use super::*;

    #[test]
    fn what_replaced_a_version_is_not_taken_for_it_and_a_version_that_moves_is_not_missing() {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        let mut newer = ObjectMeta::default();
        newer.custom.insert(VERSION.into(), "b".into());
        let missing = Error::new(ErrorCode::ObjectNotFound, "none");
        let mut looks = VersionLooks::default();
        assert!(!looks.again(&info, Some("null"), Err(&missing)).unwrap(), "there are none");
        info.s3.versioning = Versioning::Enabled;
        assert!(!looks.again(&info, None, Ok(&newer)).unwrap());
        assert!(!looks.again(&info, Some("b"), Ok(&newer)).unwrap());
        assert!(looks.again(&info, Some("a"), Ok(&newer)).unwrap());
        assert!(looks.again(&info, Some("a"), Err(&missing)).unwrap());
        let mut looks = VersionLooks::default();
        let again = (0..LOOKS).map(|_| looks.again(&info, Some("a"), Err(&missing))).last();
        assert_eq!(again.unwrap().unwrap_err().code, ErrorCode::Unavailable);
    }
}
