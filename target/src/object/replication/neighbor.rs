//! Look-ups of native objects on other targets. While objects move, an object may still be on a
//! former owner; and a target that was unavailable may have missed writes of objects with copies.
//! Then this target asks the other targets before it answers for an object, and replicates its
//! changes to them before it acknowledges these.

use std::collections::BTreeSet;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyLook, CopyRequest, Stamp};
use forebay_core::native::ReplicaSet;
use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, ErrorCode, NodeId, Result, history, native, placement};
use futures::future::join_all;

use super::Replication;
use super::transfer::{LOOK_PATH, REMOVE_PATH, SEND_PATH, SENT_WITHIN, Sent, Which};
use crate::object::lock::KeyGuard;
use crate::store::Record;

/// Timeout of a write for a target that does not respond and is not found dead.
pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(6);
/// Pause before a retry at such a target.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Attempts to find an object that moves between the look and the fetch.
const LOOKS: usize = 5;

/// Another target's response to a look.
type Answer = (Node, Result<CopyLook>);

/// The other targets' state of an object.
pub(super) struct Elsewhere {
    /// The node with the newest copy, and the stamp of that copy.
    pub(super) there: Option<(Node, Stamp)>,
    /// The stamp of the last removal.
    pub(super) removed: Option<Stamp>,
    /// Some target has slices of it.
    cut: bool,
}

/// A change of an object on this target.
#[derive(Clone, Copy)]
pub(super) enum News<'a> {
    Written(&'a Record),
    /// All holders have the new version: older ones may be dropped.
    Replaced(Stamp),
    Removed(Stamp),
}

impl News<'_> {
    pub(super) fn stamp(self) -> Stamp {
        match self {
            Self::Written(record) => record.stamp(),
            Self::Replaced(stamp) | Self::Removed(stamp) => stamp,
        }
    }
}

/// Makes the failure one that the next owner does not retry: the change is made in part, and some
/// targets may have it.
pub(super) fn for_others(e: Error) -> Error {
    match e.code {
        ErrorCode::WrongOwner => Error { code: ErrorCode::Unavailable, ..e },
        _ => e,
    }
}

impl Replication {
    /// The state under which an object is written. [`ErrorCode::WrongOwner`] if another target
    /// writes this native object; another error if that is possible, because this target has no
    /// contact to a majority of the gateways. The caller holds the object's lock, so that a later
    /// holder of the lock, under a newer state, can rely on no more writes here.
    pub(in crate::object) async fn may_write(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Arc<ClusterState>> {
        if !info.has_backend() {
            self.leased().await?;
        }
        let state = self.state();
        let known = state.bucket(&info.bucket).ok();
        let known = known.filter(|b| b.id == history::bucket_id(info.id));
        // An older version is written where its object is.
        let is_older = known.is_some_and(|bucket| bucket.id != info.id);
        let version = if is_older { history::split(name) } else { None };
        let name = version.map_or(name, |(object, _)| object);
        let Some(info) = known.filter(|b| !b.has_backend()) else { return Ok(state) };
        if native::writes(&state, info, name, self.me())? {
            return Ok(state);
        }
        Err(Error { code: ErrorCode::WrongOwner, ..native::belongs_elsewhere(info, name) })
    }

    /// An error if this target had no contact to a leading gateway for so long that other targets
    /// may answer for its objects.
    pub(super) async fn leased(&self) -> Result<()> {
        self.local().maps.leased().await
    }

    /// Whether this target may have missed changes of objects that have copies.
    pub(super) fn lags(&self, state: &ClusterState) -> bool {
        native::lags(state, self.me())
    }

    /// Whether a copy here is known to be the newest without asking other targets, so that it may
    /// be served.
    pub(in crate::object) fn knows_all(&self, info: &BucketInfo, name: &str) -> bool {
        !info.has_copies()
            || self.local().maps.has_lease()
                && !self.is_unsettled(info, name)
                && !self.lags(&self.state())
    }

    /// For a hedged read, when the owner does not respond: an error unless this target may serve
    /// its copy; then the client waits for the owner.
    pub(crate) fn check_hedged(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let stands_by = self.local().maps.has_lease()
            && placement::hedge_target(&self.state(), info, name)
                .is_some_and(|n| n.id == *self.me())
            && self.store().find(info.id, name)?.is_some();
        if stands_by {
            return Ok(());
        }
        let uri = info.bucket.object_uri(name);
        Err(Error::unavailable(format!("this target does not stand in for the owner of {uri}")))
    }

    /// Whether no target can have an older version of an object without the owner's knowledge.
    pub(super) fn is_quiescent(&self, state: &ClusterState) -> bool {
        state.is_quiescent() && self.store().check_whole().is_ok()
    }

    /// The other targets that may have newer information about an object.
    pub(super) fn lookup_peers(&self, info: &BucketInfo, name: &str) -> Vec<Node> {
        let state = self.state();
        native::lookup_peers(&state, info, name, self.me()).into_iter().cloned().collect()
    }

    /// The other targets that may have an object which is missing here. An object with copies may
    /// be missing because a disk is out of use or was lost; then these are the other holders. An
    /// error if only a disk that is out of use could have it.
    pub(super) fn who_has_what_is_missing(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Vec<Node>> {
        let mut others = self.lookup_peers(info, name);
        if info.has_copies() && others.is_empty() && self.may_lack() {
            let state = self.state();
            let all = native::who_has_copies(&state, info, name, self.me());
            others = all.into_iter().cloned().collect();
        }
        if !info.has_copies() || others.is_empty() {
            self.store().check_absent(info.id, name)?;
            self.check_never_lost(info, name)?;
        }
        Ok(others)
    }

    /// Fetches a native object from another target. `None` only if all candidates were asked.
    pub(in crate::object) async fn adopt_from_neighbor(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        if info.has_copies() {
            self.leased().await?;
            self.settle(info, name).await?;
        }
        if info.erasure.is_some() || self.told_by_slices(info, name).await?.is_some() {
            return Box::pin(self.newest_form(info, name)).await;
        }
        for _ in 0..LOOKS {
            if let Break(found) = self.adopt_what_is_there(info, name).await? {
                return Ok(found);
            }
        }
        Err(is_being_moved(info, name))
    }

    /// The record to serve now; `Continue` if the object moved, or was removed, between the look
    /// and its fetch.
    async fn adopt_what_is_there(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<ControlFlow<Option<Record>>> {
        let others = self.who_has_what_is_missing(info, name)?;
        let gone = self.tombstone(info, name).await?;
        let last = |gone| native::is_last_word(&self.state(), info, gone, self.me());
        if others.is_empty() || gone.is_some_and(last) {
            // It may have arrived just before the rebalance was complete.
            return self.store().get(info.id, name).await.map(Break);
        }
        let answers = self.look_elsewhere(info, name, others).await;
        if is_cut(&answers) {
            return Box::pin(self.newest_form(info, name)).await.map(Break);
        }
        let (there, removed) = newest(&answers);
        let removed = removed.max(gone);
        match (
            there.filter(|(_, stamp)| removed.is_none_or(|r| r < *stamp)),
            silent(info, name, &answers),
        ) {
            (Some((node, _)), Some(e)) if native::may_be_older(info, node) => Err(e),
            (Some((node, _)), _) => {
                let fetched = self.try_to_fetch(info, name, node, false).await?;
                Ok(fetched.map_or(Continue(()), |record| Break(Some(record))))
            }
            (None, Some(e)) => Err(e),
            (None, None) => {
                self.tell_of_removal(info, name, &answers, removed).await?;
                self.store().get(info.id, name).await.map(Break)
            }
        }
    }

    /// Removes older copies on targets that missed a removal because the removing target gave up;
    /// listings would show them otherwise.
    async fn tell_of_removal(
        &self,
        info: &BucketInfo,
        name: &str,
        answers: &[Answer],
        removed: Option<Stamp>,
    ) -> Result<()> {
        let Some(stamp) = removed else { return Ok(()) };
        let request = CopyRequest { stamp, ..CopyRequest::new(&info.bucket, name) };
        for (node, look) in answers {
            let newest = look.as_ref().ok().and_then(CopyLook::newest);
            if newest.is_some_and(|newest| newest < stamp) {
                let () = self.0.peer.post_json(&node.url, REMOVE_PATH, &request).await?;
            }
        }
        Ok(())
    }

    /// The newest version of an object that has a copy here, if other targets may have a newer one.
    pub(super) async fn newest_copy(
        &self,
        info: &BucketInfo,
        record: Record,
    ) -> Result<Option<Record>> {
        self.leased().await?;
        let name = record.name.clone();
        let record = match self.settled(info, &name, record).await? {
            Some(record) => record,
            None => return Ok(None),
        };
        if info.erasure.is_some() {
            return if self.lags(&self.state()) {
                self.newest_form(info, &name).await
            } else {
                Ok(Some(record))
            };
        }
        let Elsewhere { there, removed, cut } = self.newest_elsewhere(info, &name).await?;
        if cut {
            return self.newest_form(info, &name).await;
        }
        if let Some(removed) = removed.filter(|removed| {
            *removed > record.stamp() && there.as_ref().is_none_or(|(_, stamp)| stamp < removed)
        }) {
            self.remove_older(info, &name, removed).await?;
            return Ok(None);
        }
        match there.filter(|(_, stamp)| *stamp > record.stamp()) {
            Some((node, _)) => match self.try_to_fetch(info, &name, &node, false).await? {
                Some(record) => Ok(Some(record)),
                None => Box::pin(self.adopt_from_neighbor(info, &name)).await,
            },
            None => Ok(Some(record)),
        }
    }

    /// The state of an object on the targets that may know more than this one.
    pub(super) async fn newest_elsewhere(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Elsewhere> {
        let others = self.lookup_peers(info, name);
        self.elsewhere(info, &CopyRequest::new(&info.bucket, name), others).await
    }

    /// The other targets' state of an object; an error if one does not respond.
    pub(super) async fn elsewhere(
        &self,
        info: &BucketInfo,
        look: &CopyRequest,
        others: Vec<Node>,
    ) -> Result<Elsewhere> {
        let answers = self.ask_for(look, others).await;
        if let Some(e) = silent(info, &look.name, &answers) {
            return Err(e);
        }
        let (there, removed) = newest(&answers);
        let there = there.map(|(node, stamp)| (node.clone(), stamp));
        Ok(Elsewhere { there, removed, cut: is_cut(&answers) })
    }

    /// Requests a copy of an object from a target; `anew`: even if it is no newer than the copy
    /// here.
    pub(super) async fn fetch_copy(
        &self,
        info: &BucketInfo,
        name: &str,
        from: &Node,
        anew: bool,
    ) -> Result<Record> {
        let fetched = self.try_to_fetch(info, name, from, anew).await?;
        fetched.ok_or_else(|| is_being_moved(info, name))
    }

    /// The same; `None` if the object moved, or was removed, meanwhile: the caller looks again.
    async fn try_to_fetch(
        &self,
        info: &BucketInfo,
        name: &str,
        from: &Node,
        anew: bool,
    ) -> Result<Option<Record>> {
        let by = Some(self.me().clone());
        let request = CopyRequest { by, anew, ..CopyRequest::new(&info.bucket, name) };
        let peer = self.0.peer.with_idle_timeout(SENT_WITHIN);
        let sent: Result<()> =
            peer.post_json(&from.url, SEND_PATH, &request).await.map_err(Error::from);
        match sent {
            // The copy arrived and was not accepted any more.
            Err(e) if e.code == ErrorCode::Conflict => Ok(None),
            Err(e) => Err(e),
            Ok(()) => self.store().get(info.id, name).await,
        }
    }

    pub(super) async fn look_elsewhere(
        &self,
        info: &BucketInfo,
        name: &str,
        others: Vec<Node>,
    ) -> Vec<Answer> {
        self.ask_for(&CopyRequest::new(&info.bucket, name), others).await
    }

    /// Sends a look to other targets; returns their responses.
    async fn ask_for(&self, look: &CopyRequest, others: Vec<Node>) -> Vec<Answer> {
        let asked = others.into_iter().map(async |node| {
            if !node.alive {
                return (node, Err(Error::unavailable("it is down")));
            }
            let answer = tokio::select! {
                answer = self.0.peer.post_json(&node.url, LOOK_PATH, look) => answer,
                () = self.death_of(&node.id) => return (node, Err(Error::unavailable("it died"))),
            };
            (node, answer.map_err(Error::from))
        });
        join_all(asked).await
    }

    /// Replicates a change: holders of copies get the new one, all others that may have the object
    /// drop older copies. Returns when all living targets have it; they also have this target's
    /// state then, and return no older copies any more. A dead target's copy is found to be older
    /// when the target is back. The caller holds the object's lock.
    pub(super) async fn tell_others(
        &self,
        info: &BucketInfo,
        name: &str,
        news: News<'_>,
    ) -> Result<()> {
        self.tell_as_owner(info, name, news).await.map_err(for_others)
    }

    /// The same; [`ErrorCode::WrongOwner`] if another target becomes the owner of an object with
    /// copies before the replication is complete.
    pub(super) async fn tell_as_owner(
        &self,
        info: &BucketInfo,
        name: &str,
        news: News<'_>,
    ) -> Result<()> {
        let (started, mut know) = (Instant::now(), BTreeSet::new());
        loop {
            let state = match info.has_copies() {
                true => self.may_write(info, name).await?,
                // Ownership may have moved during a long write.
                false => {
                    self.leased().await?;
                    self.state()
                }
            };
            let ReplicaSet { holders, all: mut others } =
                native::replica_set(&state, info, name, self.me());
            others.retain(|n| !know.contains(&n.id));
            let told = match news {
                News::Written(record) if info.erasure.is_some() => {
                    self.tell_forms(&state, info, record, others).await
                }
                _ => {
                    let told = others.into_iter().map(async |node| {
                        let has_copy = holders.iter().any(|h| h.id == node.id);
                        let told = tokio::select! {
                            told = self.tell(node, info, name, news, has_copy) => Some(told),
                            // The target may hang; its death ends the wait.
                            () = self.death_of(&node.id) => None,
                        };
                        (&node.id, told)
                    });
                    join_all(told).await
                }
            };
            let (mut failed, mut died) = (None, false);
            for (id, told) in told {
                match told {
                    Some(Ok(())) => drop(know.insert(id.clone())),
                    Some(Err(e)) => failed = Some((id, e)),
                    None => died = true,
                }
            }
            match failed {
                None if died => {}
                None => {
                    if let News::Written(record) = news
                        && info.erasure.is_some()
                        && (record.stamp().version > 1 || !state.is_in_place(info))
                    {
                        // Older versions may be dropped only now: until all holders have the new
                        // one, they are what is left if this target dies.
                        let news = News::Replaced(record.stamp());
                        return Box::pin(self.tell_as_owner(info, name, news)).await;
                    }
                    if let News::Replaced(stamp) = news {
                        self.drop_slices(info, name, |of| of < stamp).await?;
                    }
                    self.complete_replication(info, name);
                    return Ok(());
                }
                Some((id, e)) if started.elapsed() > HEARD_WITHIN => {
                    let uri = info.bucket.object_uri(name);
                    let text = format!("{uri}: target {id} does not take the change: {e}");
                    return Err(Error::unavailable(text));
                }
                Some(_) => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }

    /// Returns when the map has a node dead or removed.
    pub(super) async fn death_of(&self, id: &NodeId) {
        let mut changes = self.local().maps.subscribe();
        while self.state().node(id).is_some_and(|node| node.alive) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    async fn tell(
        &self,
        node: &Node,
        info: &BucketInfo,
        name: &str,
        news: News<'_>,
        has_copy: bool,
    ) -> Result<()> {
        let (stamp, written) = match news {
            News::Written(record) if has_copy => {
                let which = Which { info, name, older: false };
                return self.send(node, which, record, Sent::Written).await.map(drop);
            }
            News::Written(record) => (record.stamp(), true),
            News::Removed(stamp) | News::Replaced(stamp) => (stamp, false),
        };
        let by = info.has_copies().then(|| self.me().clone());
        let replaced = matches!(news, News::Replaced(_));
        let new = CopyRequest::new(&info.bucket, name);
        let request = CopyRequest { stamp, by, written, replaced, ..new };
        Ok(self.0.peer.post_json(&node.url, REMOVE_PATH, &request).await?)
    }

    /// Removes a native object wherever it is stored; returns whether it existed. `guard` is the
    /// object's lock.
    pub(in crate::object) async fn erase(
        &self,
        info: &BucketInfo,
        name: &str,
        guard: KeyGuard,
    ) -> Result<(bool, KeyGuard)> {
        let state = self.may_write(info, name).await?;
        let mut here = self.store().get(info.id, name).await?;
        if here.is_none() {
            here = self.told_by_slices(info, name).await?;
        }
        if let Some(stamp) = self.untold_removal(info, name).filter(|_| here.is_none()) {
            self.tell_others(info, name, News::Removed(stamp)).await?;
        }
        let others = match here {
            Some(_) => self.lookup_peers(info, name),
            None => self.who_has_what_is_missing(info, name)?,
        };
        if others.is_empty() && !info.has_copies() {
            return Ok((self.store().remove(info.id, name).await?.is_some(), guard));
        }
        let answers = self.look_elsewhere(info, name, others).await;
        let (there, removed) = newest(&answers);
        let there = there.map(|(_, stamp)| stamp);
        // The copy here may be removed already, and only the unreachable target has that
        // information.
        if info.has_copies()
            && self.lags(&state)
            && let Some(e) = silent(info, name, &answers).filter(|_| here.is_some())
        {
            return Err(e);
        }
        let gone = removed.max(self.tombstone(info, name).await?);
        if !native::is_there(here.as_ref().map(Record::stamp), there, gone) {
            if here.is_some() {
                // Removed while this target was unavailable.
                self.store().remove(info.id, name).await?;
                if self.may_have_slices(info) {
                    self.drop_slices(info, name, |of| Some(of) <= gone).await?;
                }
            }
            // Unless that removal is final, an unreachable target may have the object.
            let last = gone.is_some_and(|g| native::is_last_word(&state, info, g, self.me()));
            return match silent(info, name, &answers).filter(|_| !last) {
                Some(e) => Err(e),
                None => {
                    let told = self.tell_of_removal(info, name, &answers, gone).await;
                    told.map(|()| (false, guard))
                }
            };
        }
        let last = here.as_ref().map(Record::stamp).max(there).max(gone);
        let stamp = last.unwrap_or_default().next(state.version);
        let noted = !self.is_quiescent(&state);
        if noted {
            self.bury(info, name, stamp).await?;
        }
        self.unsettle(info, name, Some(stamp));
        self.store().remove(info.id, name).await?;
        if self.may_have_slices(info) {
            self.drop_slices(info, name, |_| true).await?;
        }
        let guard = self.acknowledge(info, name, News::Removed(stamp), guard).await?;
        if !noted && !self.is_quiescent(&self.state()) {
            // A target died meanwhile and may have missed the removal.
            self.bury(info, name, stamp).await?;
        }
        Ok((true, guard))
    }
}

fn is_being_moved(info: &BucketInfo, name: &str) -> Error {
    let uri = info.bucket.object_uri(name);
    Error::unavailable(format!("{uri} is being moved")).retry_after(1)
}

/// The newest copy that was found, and the last removal.
fn newest(answers: &[Answer]) -> (Option<(&Node, Stamp)>, Option<Stamp>) {
    let looks = || answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?)));
    let there = looks().filter_map(|(node, look)| Some((node, look.newest()?)));
    let removed = looks().filter_map(|(_, look)| look.removed).max();
    (there.max_by_key(|(node, stamp)| (*stamp, !node.lagging)), removed)
}

/// Whether a target has slices of an object.
fn is_cut(answers: &[Answer]) -> bool {
    answers.iter().any(|(_, answer)| answer.as_ref().is_ok_and(|look| !look.slices.is_empty()))
}

/// The error if no target has an object and one did not respond.
pub(super) fn silent(info: &BucketInfo, name: &str, answers: &[Answer]) -> Option<Error> {
    let (node, e) =
        answers.iter().find_map(|(node, answer)| Some((node, answer.as_ref().err()?)))?;
    let uri = info.bucket.object_uri(name);
    // A target without that bucket has nothing of the object.
    (e.code != ErrorCode::BucketNotFound).then(|| {
        Error::unavailable(format!(
            "{uri} may lie with target {}, which does not answer: {}",
            node.id, e.message
        ))
    })
}
