//! What other targets have of native objects. While the places of objects change, what belongs here may
//! still lie with a former owner; and a target that was away may have missed what those wrote that
//! have copies. Then others are asked before anything is said of an object, and hear of what becomes of
//! it before that is acknowledged.

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

use super::ObjectService;
use super::lock::KeyGuard;
use super::transfer::{LOOK_PATH, REMOVE_PATH, SEND_PATH, SENT_WITHIN, Sent, Which};
use crate::store::Record;

/// How long a write waits for a target that does not answer to be found dead.
pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(6);
/// Pause before such a target is asked again.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How often an object is looked for that is somewhere else each time.
const LOOKS: usize = 5;

/// What another target says of an object.
type Answer = (Node, Result<CopyLook>);

/// What the others know of an object.
pub(super) struct Elsewhere {
    /// Who has the newest copy, and when it was written.
    pub(super) there: Option<(Node, Stamp)>,
    /// The last removal.
    pub(super) removed: Option<Stamp>,
    /// Somebody has slices of it.
    cut: bool,
}

/// What became of an object here.
#[derive(Clone, Copy)]
pub(super) enum News<'a> {
    Written(&'a Record),
    /// All have what was written: what was before may go.
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

/// A failure of an owner that was one for a part of the change: not for the next one to do once more,
/// because some may have heard of it.
pub(super) fn for_others(e: Error) -> Error {
    match e.code {
        ErrorCode::WrongOwner => Error { code: ErrorCode::Unavailable, ..e },
        _ => e,
    }
}

impl ObjectService {
    /// The state by which an object is written now; [`ErrorCode::WrongOwner`] where a native one is
    /// another target's to write, and another error where it may be, because this one hears of no
    /// majority. Asked under the object's lock, so that whoever takes the lock later under a newer
    /// state knows that nothing is written here any more.
    pub(super) async fn may_write(
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

    /// An error when no leading gateway was heard for so long that others may answer for this
    /// target's objects.
    pub(super) async fn leased(&self) -> Result<()> {
        self.0.parts.maps.leased().await
    }

    /// Whether this target may have missed what became of objects that have copies.
    pub(super) fn lags(&self, state: &ClusterState) -> bool {
        native::lags(state, self.me())
    }

    /// Whether a copy here, looked up before, is the newest there is and may be shown, as far as this
    /// target can know alone.
    pub(super) fn knows_all(&self, info: &BucketInfo, name: &str) -> bool {
        !info.has_copies()
            || self.0.parts.maps.has_lease()
                && !self.is_unsettled(info, name)
                && !self.lags(&self.state())
    }

    /// An error unless this target may show what it has of an object that another one answers for,
    /// which is silent: the client waits for that one then.
    pub(crate) fn check_hedged(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let stands_by = self.0.parts.maps.has_lease()
            && placement::hedge_target(&self.state(), info, name)
                .is_some_and(|n| n.id == *self.me())
            && self.store().find(info.id, name)?.is_some();
        if stands_by {
            return Ok(());
        }
        let uri = info.bucket.object_uri(name);
        Err(Error::unavailable(format!("this target does not stand in for the owner of {uri}")))
    }

    /// Whether nobody may have an older state of any object than its owner knows of.
    pub(super) fn is_quiescent(&self, state: &ClusterState) -> bool {
        state.is_quiescent() && self.store().check_whole().is_ok()
    }

    /// The other targets that may know more of an object than this one.
    pub(super) fn lookup_peers(&self, info: &BucketInfo, name: &str) -> Vec<Node> {
        let state = self.state();
        native::lookup_peers(&state, info, name, self.me()).into_iter().cloned().collect()
    }

    /// The other targets that may have an object which is not here. What has copies may be missing
    /// here because a disk is, or was: those are asked who surely have it then. An error where only a
    /// disk that is not in use could tell.
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

    /// Has a native object come here from whoever has it. `None` only when all others were asked.
    pub(super) async fn adopt_from_neighbor(
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

    /// What is to be shown of an object now; nothing where it moved on, or was removed, between the
    /// look at who has it and its fetch.
    async fn adopt_what_is_there(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<ControlFlow<Option<Record>>> {
        let others = self.who_has_what_is_missing(info, name)?;
        let gone = self.tombstone(info, name).await?;
        let last = |gone| native::is_last_word(&self.state(), info, gone, self.me());
        if others.is_empty() || gone.is_some_and(last) {
            // It may have come just before all was found to be in its place.
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

    /// Has those drop what they have of an object who did not hear that it was removed, because who
    /// removed it gave up: a listing would show it.
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
                let () = self.0.parts.peer.post_json(&node.url, REMOVE_PATH, &request).await?;
            }
        }
        Ok(())
    }

    /// The newest state of an object of which a copy lies here, where others may have a newer one.
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

    /// What those know of an object who may know more of it than this target.
    pub(super) async fn newest_elsewhere(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Elsewhere> {
        let others = self.lookup_peers(info, name);
        self.elsewhere(info, &CopyRequest::new(&info.bucket, name), others).await
    }

    /// What others know of an object; an error where one of them does not say.
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

    /// Has a target send what it has of an object; `anew`: though it be no newer than what is here.
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

    /// The same; `None` where the object moved on, or was removed, meanwhile: the next look tells.
    async fn try_to_fetch(
        &self,
        info: &BucketInfo,
        name: &str,
        from: &Node,
        anew: bool,
    ) -> Result<Option<Record>> {
        let by = Some(self.me().clone());
        let request = CopyRequest { by, anew, ..CopyRequest::new(&info.bucket, name) };
        let peer = self.0.parts.peer.with_idle_timeout(SENT_WITHIN);
        let sent: Result<()> =
            peer.post_json(&from.url, SEND_PATH, &request).await.map_err(Error::from);
        match sent {
            // What came was not wanted here any more.
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

    /// What others say to a look.
    async fn ask_for(&self, look: &CopyRequest, others: Vec<Node>) -> Vec<Answer> {
        let asked = others.into_iter().map(async |node| {
            if !node.alive {
                return (node, Err(Error::unavailable("it is down")));
            }
            let answer = tokio::select! {
                answer = self.0.parts.peer.post_json(&node.url, LOOK_PATH, look) => answer,
                () = self.death_of(&node.id) => return (node, Err(Error::unavailable("it died"))),
            };
            (node, answer.map_err(Error::from))
        });
        join_all(asked).await
    }

    /// Tells others what became of an object: who has copies of it gets the new one, who may have
    /// had it drops what is older. Returns when all that live have heard (they have the state of
    /// this target then, too, and say nothing older any more); what a dead one has is found to be
    /// older when it is back. The caller has the object's lock.
    pub(super) async fn tell_others(
        &self,
        info: &BucketInfo,
        name: &str,
        news: News<'_>,
    ) -> Result<()> {
        self.tell_as_owner(info, name, news).await.map_err(for_others)
    }

    /// The same; [`ErrorCode::WrongOwner`] when another target is the owner of an object with copies
    /// before all have heard.
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
                // What took long to be written may be another's by now.
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
                            // It may hang, and then nobody waits for it any longer.
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
                        // Only now may what was before go: until all have the new one, that is what
                        // is left if this target dies.
                        let news = News::Replaced(record.stamp());
                        return Box::pin(self.tell_as_owner(info, name, news)).await;
                    }
                    if let News::Replaced(stamp) = news {
                        self.drop_slices(info, name, |of| of < stamp).await?;
                    }
                    self.is_rebalance_complete(info, name);
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

    /// Returns when a node does not count as alive any more.
    pub(super) async fn death_of(&self, id: &NodeId) {
        let mut changes = self.0.parts.maps.subscribe();
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
        Ok(self.0.parts.peer.post_json(&node.url, REMOVE_PATH, &request).await?)
    }

    /// Removes a native object, wherever it lies; whether there was one. `guard` is the object's lock.
    pub(super) async fn erase(
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
        // What lies here may be removed already, and only who does not answer knows.
        if info.has_copies()
            && self.lags(&state)
            && let Some(e) = silent(info, name, &answers).filter(|_| here.is_some())
        {
            return Err(e);
        }
        let gone = removed.max(self.tombstone(info, name).await?);
        if !native::is_there(here.as_ref().map(Record::stamp), there, gone) {
            if here.is_some() {
                // Removed while this target was away.
                self.store().remove(info.id, name).await?;
                if self.may_have_slices(info) {
                    self.drop_slices(info, name, |of| Some(of) <= gone).await?;
                }
            }
            // Unless that removal is the last word, a silent target may have it.
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
            // Somebody went away just now and may not have heard.
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

/// Whether somebody has slices of an object.
fn is_cut(answers: &[Answer]) -> bool {
    answers.iter().any(|(_, answer)| answer.as_ref().is_ok_and(|look| !look.slices.is_empty()))
}

/// What is to be said where nobody has an object and somebody did not answer.
pub(super) fn silent(info: &BucketInfo, name: &str, answers: &[Answer]) -> Option<Error> {
    let (node, e) =
        answers.iter().find_map(|(node, answer)| Some((node, answer.as_ref().err()?)))?;
    let uri = info.bucket.object_uri(name);
    // One that has no such bucket has nothing of it.
    (e.code != ErrorCode::BucketNotFound).then(|| {
        Error::unavailable(format!(
            "{uri} may lie with target {}, which does not answer: {}",
            node.id, e.message
        ))
    })
}
