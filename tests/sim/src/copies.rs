//! Copies between targets: send, accept, supersede and fetch. The real [`CopyLook`], [`native`] and
//! [`rebalance::duty`] decide which copy is newer and which may be accepted.

use forebay_core::copies::{CopyLook, CopyRequest, Stamp};
use forebay_core::native::{self, Arrival};
use forebay_core::state::Node;
use forebay_core::{Error, Result, rebalance};
use futures::future::try_join_all;

use crate::broken::Broken;
use crate::exec::{Micros, SECOND};
use crate::object::ASKED_WITHIN;
use crate::target::{Key, Record};
use crate::world::{At, W, World, at_of, info_in};

/// Rest after a loss of objects, and pause before a retry of those that could not be fetched.
const LOST_SETTLING: Micros = 10 * SECOND;

/// Why a copy is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A client writes it now.
    Written,
    /// It belongs on the receiver.
    Moved,
}

impl World {
    /// Commits an object on the disks of a target.
    pub(crate) async fn commit(&self, at: At, key: &Key, stamp: Stamp, value: u64) -> Record {
        self.disk().await;
        let record = Record { stamp, value, commit: self.seen.next_commit() };
        self.target(at).records.borrow_mut().insert(key.clone(), record);
        self.note(|| format!("target {at} commits {key:?} as {stamp:?}: {value}"));
        self.check_kept(key);
        self.moment().await;
        record
    }

    pub(crate) async fn remove(&self, at: At, key: &Key) {
        self.disk().await;
        if self.target(at).records.borrow_mut().remove(key).is_some() {
            self.note(|| format!("target {at} removes {key:?}"));
            self.check_kept(key);
        }
        self.moment().await;
    }

    /// Writes a tombstone.
    pub(crate) async fn bury(&self, at: At, key: &Key, stamp: Stamp) {
        self.disk().await;
        let target = self.target(at);
        target.tombstones.borrow_mut().insert(key.clone(), stamp);
        self.note(|| format!("target {at} notes that {key:?} was removed: {stamp:?}"));
        if target.map().is_quiescent() {
            target.process().late_tombstones.ring();
        }
    }

    /// Drops tombstones whenever no node has an older copy any more.
    pub(crate) async fn watch_tombstones(self: W, at: At) {
        let target = self.target(at);
        let late = target.process().late_tombstones.clone();
        loop {
            let (changed, noted) = (target.changed.rung(), late.rung());
            let state = target.map();
            let quiescent = state.is_quiescent() || self.is_broken(Broken::TombstonesTooEarly);
            if state.version > 0 && quiescent {
                let all: Vec<Key> = target.tombstones.borrow().keys().cloned().collect();
                for key in all {
                    let _guard = target.process().locks.lock(&key).await;
                    let stamp = target.tombstone(&key);
                    if stamp.is_some_and(|stamp| native::may_forget(stamp, state.version)) {
                        self.moment().await;
                        target.tombstones.borrow_mut().remove(&key);
                    }
                }
            }
            futures::future::select(Box::pin(changed), Box::pin(noted)).await;
        }
    }

    /// Returns what a target has of an object, after changes in progress have ended.
    pub(crate) async fn look(&self, at: At, key: Key, version: u64) -> Result<CopyLook> {
        self.caught_up(at, version).await?;
        self.info(at, &key)?;
        let _guard = self.target(at).process().locks.lock(&key).await;
        self.moment().await;
        Ok(self.peek(at, &key))
    }

    fn peek(&self, at: At, key: &Key) -> CopyLook {
        let target = self.target(at);
        let there = target.get(key).map(|record| record.stamp);
        CopyLook { there, removed: target.tombstone(key), ..CopyLook::default() }
    }

    /// Another target reports that a copy older than the request's stamp was superseded or removed.
    pub(crate) async fn overtaken(&self, at: At, key: &Key, request: &CopyRequest) -> Result<()> {
        let target = self.target(at);
        let _guard = target.process().locks.lock(key).await;
        let (state, info) = (target.map(), self.info(at, key)?);
        if let Some(by) = &request.by {
            native::check_writer(&state, &info, &key.1, by)?;
        }
        self.moment().await;
        let gone = request.gone();
        if native::notes_removal(&state, &info, &key.1, &target.id)
            && target.tombstone(key) < Some(gone)
        {
            self.bury(at, key, gone).await;
        }
        if target.get(key).is_some_and(|record| record.stamp < request.stamp) {
            self.remove(at, key).await;
        }
        Ok(())
    }

    pub(crate) async fn remove_older(&self, at: At, key: &Key, stamp: Stamp) -> Result<()> {
        let info = self.info(at, key)?;
        let request = CopyRequest { stamp, ..CopyRequest::new(&info.bucket, &key.1) };
        self.overtaken(at, key, &request).await
    }

    /// Requests a target's copy of an object, to be sent to `at`.
    pub(crate) async fn fetch_copy(self: &W, at: At, key: &Key, from: At) -> Result<Record> {
        let (world, asked, version) = (self.clone(), key.clone(), self.target(at).map().version);
        let sent = async move {
            world.caught_up(from, version).await?;
            world.hand_over(from, at, &asked).await
        };
        self.call_within(ASKED_WITHIN, (at, from), sent).await?;
        self.target(at).get(key).ok_or_else(|| Error::unavailable("it is being moved"))
    }

    async fn hand_over(self: &W, at: At, to: At, key: &Key) -> Result<()> {
        let (target, info) = (self.target(at), self.info(at, key)?);
        let state = target.map();
        let duty = rebalance::duty(&state, &info, &key.1, &target.id);
        let node = duty.others.iter().find(|n| at_of(&n.id) == to && n.alive);
        node.ok_or_else(|| native::belongs_elsewhere(&info, &key.1))?;
        let Some(record) = self.at_rest(at, key).await else { return Ok(()) };
        self.send(at, to, key, record, Sent::Moved).await?;
        if !duty.stays && duty.others.len() == 1 {
            self.drop_this(at, key, record).await;
        }
        Ok(())
    }

    pub(crate) async fn at_rest(&self, at: At, key: &Key) -> Option<Record> {
        let _guard = self.target(at).process().locks.lock(key).await;
        self.target(at).get(key)
    }

    /// Drops a copy that other targets hold, unless it was replaced meanwhile.
    pub(crate) async fn drop_this(&self, at: At, key: &Key, record: Record) {
        let _guard = self.target(at).process().locks.lock(key).await;
        if self.target(at).get(key).is_some_and(|now| now.commit == record.commit) {
            self.remove(at, key).await;
        }
    }

    /// Returns when `to` has the copy, or a newer one.
    pub(crate) async fn send(
        self: &W,
        at: At,
        to: At,
        key: &Key,
        record: Record,
        why: Sent,
    ) -> Result<()> {
        let (world, key, version) = (self.clone(), key.clone(), self.target(at).map().version);
        let taken = async move {
            world.caught_up(to, version).await?;
            world.accept(to, at, &key, record, why).await
        };
        self.call_within(ASKED_WITHIN, (at, to), taken).await
    }

    /// Accepts a copy that belongs here, unless this target has one as new.
    async fn accept(
        self: &W,
        at: At,
        from: At,
        key: &Key,
        record: Record,
        why: Sent,
    ) -> Result<()> {
        let (target, info) = (self.target(at), self.info(at, key)?);
        self.check_arrival(at, from, key, why)?;
        // The bytes arrive.
        self.moment().await;
        let _guard = target.process().locks.lock(key).await;
        self.check_arrival(at, from, key, why)?;
        let look = self.peek(at, key);
        let known = match self.is_broken(Broken::NoEpochs) {
            true => look.there.is_some_and(|there| there.version >= record.stamp.version),
            false => look.knows(record.stamp),
        };
        if known {
            return Ok(());
        }
        let (state, sender) = (target.map(), self.target(from).id.clone());
        let written = why == Sent::Written;
        let gone = || Error::unavailable("the copy is not wanted any more");
        let arrival = native::arrival(&state, &info, &key.1, &target.id, Some(&sender), written);
        match arrival {
            Arrival::Take => {}
            Arrival::Refuse => return Err(gone()),
            Arrival::IfStillAt(node) => {
                if self.peek_at(at, node, key).await?.there != Some(record.stamp) {
                    return Err(gone());
                }
            }
            Arrival::IfNewest(others) => {
                let looks = others.into_iter().map(|node| self.peek_at(at, node, key));
                let looks = try_join_all(looks).await?;
                if looks.iter().any(|look| look.is_after(record.stamp)) {
                    return Err(gone());
                }
            }
        }
        self.commit(at, key, record.stamp, record.value).await;
        Ok(())
    }

    /// Returns what another target has at this moment, without waiting for a change in progress.
    async fn peek_at(self: &W, at: At, node: &Node, key: &Key) -> Result<CopyLook> {
        if !node.alive {
            return Err(Error::unavailable("it is down"));
        }
        let (world, asked, to) = (self.clone(), key.clone(), at_of(&node.id));
        let version = self.target(at).map().version;
        let peek = async move {
            world.caught_up(to, version).await?;
            Ok(world.peek(to, &asked))
        };
        self.call_within(ASKED_WITHIN, (at, to), peek).await
    }

    fn check_arrival(&self, at: At, from: At, key: &Key, why: Sent) -> Result<()> {
        let (target, info) = (self.target(at), self.info(at, key)?);
        let state = target.map();
        if why == Sent::Written {
            native::check_writer(&state, &info, &key.1, &self.target(from).id)?;
        }
        let stays = rebalance::duty(&state, &info, &key.1, &target.id).stays;
        stays.then_some(()).ok_or_else(|| native::belongs_elsewhere(&info, &key.1))
    }

    /// Fetches copies that were lost with a disk from other targets.
    pub(crate) async fn make_up_for_losses(self: W, at: At) {
        let target = self.target(at);
        let process = target.process();
        loop {
            let lost = process.lost.rung();
            if !target.may_have_lost() {
                lost.await;
                continue;
            }
            if self.exec.within(LOST_SETTLING, lost).await.is_some() {
                continue;
            }
            let losses = process.losses.get();
            if self.refill(at).await.unwrap_or(false) {
                process.refilled.set(losses);
            }
        }
    }

    async fn refill(self: &W, at: At) -> Result<bool> {
        let target = self.target(at);
        let (state, mut all) = (target.map(), true);
        for node in state.holding_targets().filter(|n| n.id != target.id) {
            if !node.alive {
                return Ok(false);
            }
            let (world, to, version) = (self.clone(), at_of(&node.id), state.version);
            let listed = async move {
                world.caught_up(to, version).await?;
                Ok(world.target(to).records.borrow().keys().cloned().collect::<Vec<Key>>())
            };
            for key in self.call_within(ASKED_WITHIN, (at, to), listed).await? {
                let info = self.info(at, &key)?;
                let belongs = rebalance::duty(&target.map(), &info, &key.1, &target.id).stays;
                if info.has_copies() && belongs && target.get(&key).is_none() {
                    all &= self.adopt(at, &info, &key).await.is_ok();
                }
            }
        }
        Ok(all)
    }

    /// A target's reply to a gateway that lists a bucket.
    pub(crate) async fn names_at(
        self: &W,
        at: At,
        bucket: usize,
        version: u64,
    ) -> Result<Vec<String>> {
        self.caught_up(at, version).await?;
        native::check_choice(&self.target(at).map(), version, &self.target(at).id)?;
        self.moment().await;
        let target = self.target(at);
        let keys: Vec<Key> =
            target.records.borrow().keys().filter(|key| key.0 == bucket).cloned().collect();
        let state = target.map();
        let mut names = Vec::with_capacity(keys.len());
        for key in keys {
            let info = self.info(at, &key)?;
            if info.has_copies() && target.lags(&state) && self.is_removed(at, &key).await? {
                continue;
            }
            names.push(key.1);
        }
        // If this target was paused, its list may have names that were removed meanwhile.
        if info_in(&state, bucket).is_some_and(|info| info.has_copies()) {
            self.leased(at).await?;
        }
        native::check_choice(&target.map(), version, &target.id)?;
        Ok(names)
    }

    /// Whether the newest change that others know of an object is its removal, after this target's
    /// copy.
    async fn is_removed(self: &W, at: At, key: &Key) -> Result<bool> {
        let (target, state) = (self.target(at), self.target(at).map());
        let mut removed = None;
        let mut there = target.get(key).map(|record| record.stamp);
        for node in state.holding_targets().filter(|n| n.alive && n.id != target.id) {
            let (world, to, asked) = (self.clone(), at_of(&node.id), key.clone());
            let version = state.version;
            let look = async move { world.look(to, asked, version).await };
            let look = self.call_within(ASKED_WITHIN, (at, to), look).await?;
            removed = removed.max(look.removed);
            there = there.max(look.there);
        }
        Ok(removed > there)
    }
}
