//! Reads, writes and removals of objects at a target, step by step as the target's object service
//! does them. The real [`native`], [`placement`] and [`Stamp`] decide whether the target may act,
//! which nodes it queries and notifies, and which copy is newer.

use std::rc::Rc;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyLook, Stamp};
use forebay_core::native::WriteHistory;
use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, ErrorCode, NodeId, Result, native, placement};
use futures::future::{Either, join_all, select};

use crate::broken::Broken;
use crate::exec::{Micros, SECOND};
use crate::target::{Key, Record};
use crate::world::{At, W, World, at_of, info_in};

pub(crate) const ASKED_WITHIN: Micros = 5 * SECOND;

type Answer = (Node, Result<CopyLook>);

/// A change of an object.
#[derive(Clone, Copy)]
pub(crate) enum News {
    Written(Record),
    Removed(Stamp),
}

impl News {
    pub(crate) fn stamp(self) -> Stamp {
        match self {
            Self::Written(record) => record.stamp,
            Self::Removed(stamp) => stamp,
        }
    }
}

pub(crate) fn missing_info() -> Error {
    Error::unavailable("there is no such bucket yet")
}

impl World {
    pub(crate) fn info(&self, at: At, key: &Key) -> Result<Rc<BucketInfo>> {
        info_in(&self.target(at).map(), key.0).ok_or_else(missing_info)
    }

    fn check_owner(&self, at: At, info: &BucketInfo, name: &str) -> Result<()> {
        let state = self.target(at).map();
        if placement::owner(&state, info, name)?.id == self.target(at).id {
            return Ok(());
        }
        Err(Error::new(ErrorCode::WrongOwner, "the object belongs to another target"))
    }

    pub(crate) async fn may_write(
        &self,
        at: At,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Rc<ClusterState>> {
        self.leased(at).await?;
        let state = self.target(at).map();
        if native::writes(&state, info, name, &self.target(at).id)? {
            return Ok(state);
        }
        Err(Error { code: ErrorCode::WrongOwner, ..native::belongs_elsewhere(info, name) })
    }

    pub(crate) fn is_unsettled(&self, at: At, key: &Key) -> bool {
        let shows = self.is_broken(Broken::ShownTooEarly);
        !shows && self.target(at).process().unsettled.borrow().contains_key(key)
    }

    fn unsettle(&self, at: At, info: &BucketInfo, key: &Key, removal: Option<Stamp>) {
        if info.has_copies() {
            let unsettled = self.target(at).process().unsettled;
            let known = unsettled.borrow().get(key).copied().flatten();
            unsettled.borrow_mut().insert(key.clone(), removal.or(known));
        }
    }

    fn untold_removal(&self, at: At, key: &Key) -> Option<Stamp> {
        self.target(at).process().unsettled.borrow().get(key).copied().flatten()
    }

    fn knows_all(&self, at: At, info: &BucketInfo, key: &Key) -> bool {
        let target = self.target(at);
        let lags = target.lags(&target.map()) && !self.is_broken(Broken::LaggingAnswers);
        !info.has_copies() || self.has_lease(at) && !self.is_unsettled(at, key) && !lags
    }

    /// A read by a client, at the owner of the object.
    pub(crate) async fn get(self: W, at: At, key: Key, version: u64) -> Result<Option<u64>> {
        self.caught_up(at, version).await?;
        let info = self.info(at, &key)?;
        self.check_owner(at, &info, &key.1)?;
        self.moment().await;
        if let Some(record) = self.target(at).get(&key) {
            if self.knows_all(at, &info, &key) {
                return Ok(Some(record.value));
            }
            if let Some(record) = self.newest_copy(at, &info, &key, record).await? {
                return Ok(Some(record.value));
            }
        }
        Ok(self.adopt(at, &info, &key).await?.map(|record| record.value))
    }

    /// A hedged read by a client, at the second holder.
    pub(crate) async fn stand_by(self: W, at: At, key: Key, version: u64) -> Result<Option<u64>> {
        self.caught_up(at, version).await?;
        let info = self.info(at, &key)?;
        let state = self.target(at).map();
        let stands = self.has_lease(at)
            && placement::hedge_target(&state, &info, &key.1).is_some_and(|n| at_of(&n.id) == at);
        let record = self.target(at).get(&key).filter(|_| stands);
        let record = record.ok_or_else(|| Error::unavailable("this target does not stand in"))?;
        self.moment().await;
        if self.knows_all(at, &info, &key) {
            return Ok(self.target(at).get(&key).map(|now| now.value));
        }
        Ok(self.newest_copy(at, &info, &key, record).await?.map(|record| record.value))
    }

    /// A write by a client.
    pub(crate) async fn put(self: W, at: At, key: Key, value: u64, version: u64) -> Result<()> {
        self.caught_up(at, version).await?;
        let info = self.info(at, &key)?;
        self.check_owner(at, &info, &key.1)?;
        self.moment().await;
        let guard = self.target(at).process().locks.lock(&key).await;
        let state = self.may_write(at, &info, &key.1).await?;
        let here = self.target(at).get(&key);
        let mut past = WriteHistory {
            here: here.map(|record| record.stamp),
            unreplicated: self.untold_removal(at, &key),
            tombstone: self.target(at).tombstone(&key),
            elsewhere: None,
        };
        if here.is_none() && info.has_copies() && self.target(at).may_have_lost() {
            let others = forebay_core::rebalance::duty(&state, &info, &key.1, &self.target(at).id);
            let others = others.others.into_iter().filter(|n| n.alive).cloned().collect();
            let (there, removed) = self.told_by(at, &key, others, true).await?;
            past.elsewhere = there.map(|(_, stamp)| stamp).max(removed);
        }
        let stamp = past.next(&state);
        self.unsettle(at, &info, &key, None);
        let record = self.commit(at, &key, stamp, value).await;
        self.acknowledge(at, &info, &key, News::Written(record), guard).await
    }

    /// A removal by a client; returns whether the object existed.
    pub(crate) async fn delete(self: W, at: At, key: Key, version: u64) -> Result<bool> {
        self.caught_up(at, version).await?;
        let info = self.info(at, &key)?;
        self.check_owner(at, &info, &key.1)?;
        let target = self.target(at);
        let guard = target.process().locks.lock(&key).await;
        let state = self.may_write(at, &info, &key.1).await?;
        let here = target.get(&key);
        if let Some(stamp) = self.untold_removal(at, &key).filter(|_| here.is_none()) {
            self.tell_others(at, &info, &key, News::Removed(stamp)).await?;
        }
        let others = match here {
            Some(_) => self.lookup_peers(at, &info, &key),
            None => self.who_has_what_is_missing(at, &info, &key)?,
        };
        if others.is_empty() && !info.has_copies() {
            let there = here.is_some();
            self.remove(at, &key).await;
            return Ok(there);
        }
        let answers = self.ask(at, &key, others, false).await;
        let (there, removed) = newest(&answers);
        let there = there.map(|(_, stamp)| stamp);
        if info.has_copies()
            && target.lags(&state)
            && let Some(e) = silent(&answers).filter(|_| here.is_some())
        {
            return Err(e);
        }
        let gone = removed.max(target.tombstone(&key));
        if !native::is_there(here.map(|record| record.stamp), there, gone) {
            if here.is_some() {
                self.remove(at, &key).await;
            }
            let last =
                gone.is_some_and(|gone| native::is_last_word(&state, &info, gone, &target.id));
            return match silent(&answers).filter(|_| !last) {
                Some(e) => Err(e),
                None => self.tell_of_removal(at, &key, &answers, gone).await.map(|()| false),
            };
        }
        let last = here.map(|record| record.stamp).max(there).max(gone);
        let stamp = last.unwrap_or_default().next(state.version);
        let noted = !state.is_quiescent();
        if noted {
            self.bury(at, &key, stamp).await;
        }
        self.unsettle(at, &info, &key, Some(stamp));
        self.remove(at, &key).await;
        self.acknowledge(at, &info, &key, News::Removed(stamp), guard).await?;
        if !noted && !target.map().is_quiescent() {
            // A target died meanwhile and may have missed the removal.
            self.bury(at, &key, stamp).await;
        }
        Ok(true)
    }

    fn lookup_peers(&self, at: At, info: &BucketInfo, key: &Key) -> Vec<Node> {
        let (target, state) = (self.target(at), self.target(at).map());
        native::lookup_peers(&state, info, &key.1, &target.id).into_iter().cloned().collect()
    }

    fn who_has_what_is_missing(&self, at: At, info: &BucketInfo, key: &Key) -> Result<Vec<Node>> {
        let (target, mut others) = (self.target(at), self.lookup_peers(at, info, key));
        let lost = target.may_have_lost() && !self.is_broken(Broken::LossForgotten);
        if info.has_copies() && others.is_empty() && lost {
            let state = target.map();
            let all = native::who_has_copies(&state, info, &key.1, &target.id);
            others = all.into_iter().cloned().collect();
        }
        if info.has_copies() && others.is_empty() && lost {
            return Err(Error::unavailable("it may have been on a disk that was lost"));
        }
        Ok(others)
    }

    /// Fetches an object from another holder; `None` only if all other holders were asked.
    pub(crate) async fn adopt(
        self: &W,
        at: At,
        info: &BucketInfo,
        key: &Key,
    ) -> Result<Option<Record>> {
        if info.has_copies() {
            self.leased(at).await?;
            self.settle(at, info, key).await?;
        }
        let others = self.who_has_what_is_missing(at, info, key)?;
        let (target, gone) = (self.target(at), self.target(at).tombstone(key));
        let last = |gone| native::is_last_word(&target.map(), info, gone, &target.id);
        if others.is_empty() || gone.is_some_and(last) {
            return Ok(target.get(key));
        }
        let answers = self.ask(at, key, others, false).await;
        let (there, removed) = newest(&answers);
        let removed = removed.max(gone);
        let there = there.filter(|(_, stamp)| removed.is_none_or(|removed| removed < *stamp));
        match (there, silent(&answers)) {
            (Some((node, _)), Some(e)) if native::may_be_older(info, &node) => Err(e),
            (Some((node, _)), _) => self.fetch_copy(at, key, at_of(&node.id)).await.map(Some),
            (None, Some(e)) => Err(e),
            (None, None) => {
                self.tell_of_removal(at, key, &answers, removed).await?;
                Ok(target.get(key))
            }
        }
    }

    async fn tell_of_removal(
        self: &W,
        at: At,
        key: &Key,
        answers: &[Answer],
        removed: Option<Stamp>,
    ) -> Result<()> {
        let Some(stamp) = removed else { return Ok(()) };
        for (node, look) in answers {
            if look.as_ref().is_ok_and(|look| look.there < removed && look.there.is_some()) {
                let (world, to, key) = (self.clone(), at_of(&node.id), key.clone());
                let version = self.target(at).map().version;
                let observed = async move {
                    world.caught_up(to, version).await?;
                    world.remove_older(to, &key, stamp).await
                };
                self.call_within(ASKED_WITHIN, (at, to), observed).await?;
            }
        }
        Ok(())
    }

    async fn newest_copy(
        self: &W,
        at: At,
        info: &BucketInfo,
        key: &Key,
        mut record: Record,
    ) -> Result<Option<Record>> {
        self.leased(at).await?;
        if self.is_unsettled(at, key) {
            self.settle(at, info, key).await?;
            match self.target(at).get(key) {
                Some(now) => record = now,
                None => return Ok(None),
            }
        }
        let others = self.lookup_peers(at, info, key);
        let (there, removed) = self.told_by(at, key, others, false).await?;
        let newest = there.as_ref().map(|(_, stamp)| *stamp);
        if let Some(removed) = removed.filter(|r| *r > record.stamp && newest < Some(*r)) {
            self.remove_older(at, key, removed).await?;
            return Ok(None);
        }
        match there.filter(|(_, stamp)| *stamp > record.stamp) {
            Some((node, _)) => self.fetch_copy(at, key, at_of(&node.id)).await.map(Some),
            None => Ok(Some(record)),
        }
    }

    /// The other holders' copies and tombstones of an object; an error if one does not respond.
    async fn told_by(
        self: &W,
        at: At,
        key: &Key,
        others: Vec<Node>,
        in_part: bool,
    ) -> Result<(Option<(Node, Stamp)>, Option<Stamp>)> {
        let answers = self.ask(at, key, others, in_part).await;
        match silent(&answers) {
            Some(e) => Err(e),
            None => Ok(newest(&answers)),
        }
    }

    async fn ask(self: &W, at: At, key: &Key, others: Vec<Node>, _in_part: bool) -> Vec<Answer> {
        let version = self.target(at).map().version;
        let asked = others.into_iter().map(async |node| {
            if !node.alive {
                return (node, Err(Error::unavailable("it is down")));
            }
            let (world, to, key) = (self.clone(), at_of(&node.id), key.clone());
            let look = async move { world.look(to, key, version).await };
            let looked = self.call_within(ASKED_WITHIN, (at, to), look);
            let answer = match select(Box::pin(looked), Box::pin(self.death_of(at, &node.id))).await
            {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => Err(Error::unavailable("it died")),
            };
            (node, answer)
        });
        join_all(asked).await
    }

    /// Returns when this target's map has the node dead or removed.
    pub(crate) async fn death_of(&self, at: At, id: &NodeId) {
        let target = self.target(at);
        while target.map().node(id).is_some_and(|node| node.alive) {
            target.changed.rung().await;
        }
    }
}

/// The newest copy that was found, and the last removal.
fn newest(answers: &[Answer]) -> (Option<(Node, Stamp)>, Option<Stamp>) {
    let looks = || answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?)));
    let there = looks().filter_map(|(node, look)| Some((node.clone(), look.there?)));
    let removed = looks().filter_map(|(_, look)| look.removed).max();
    (there.max_by_key(|(node, stamp)| (*stamp, !node.lagging)), removed)
}

/// The error if no target has the object and one did not respond.
fn silent(answers: &[Answer]) -> Option<Error> {
    answers.iter().find_map(|(_, answer)| answer.as_ref().err()).cloned()
}
