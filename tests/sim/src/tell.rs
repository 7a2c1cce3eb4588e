//! Replication of a change to the other holders of an object, step by step as the target's object
//! service does it. The real [`native::replica_set`] decides which targets these are.

use std::collections::BTreeSet;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::CopyRequest;
use forebay_core::{Error, ErrorCode, Result, native, placement, rebalance};
use futures::future::{Either, join_all, select, try_join_all};

use crate::broken::Broken;
use crate::copies::Sent;
use crate::exec::{Locked, MS, Micros, SECOND};
use crate::object::{ASKED_WITHIN, News};
use crate::target::Key;
use crate::world::{At, W, World, at_of};

/// How long a write waits for a target that does not respond to count as dead.
const HEARD_WITHIN: Micros = 6 * SECOND;
const AGAIN_AFTER: Micros = 100 * MS;
/// How long a read waits for a write in progress.
const WRITTEN_WITHIN: Micros = 7 * SECOND;

/// Makes the failure one that the next owner does not retry: some holders may have the change.
fn for_others(e: Error) -> Error {
    match e.code {
        ErrorCode::WrongOwner => Error { code: ErrorCode::Unavailable, ..e },
        _ => e,
    }
}

impl World {
    /// Replicates a change to the other holders; returns when all living ones have it.
    pub(crate) async fn tell_others(
        self: &W,
        at: At,
        info: &BucketInfo,
        key: &Key,
        news: News,
    ) -> Result<()> {
        if self.is_broken(Broken::AckTooEarly) {
            let (world, info, key) = (self.clone(), info.clone(), key.clone());
            self.exec.spawn(at, async move { drop(world.tell(at, &info, &key, news).await) });
            self.target(at).process().unsettled.borrow_mut().clear();
            return Ok(());
        }
        self.tell(at, info, key, news).await.map_err(for_others)
    }

    /// As [`Self::tell_others`], but completes also if ownership moves meanwhile. The lock is
    /// released while another target is the owner.
    pub(crate) async fn acknowledge(
        self: &W,
        at: At,
        info: &BucketInfo,
        key: &Key,
        news: News,
        guard: Locked<Key>,
    ) -> Result<()> {
        if self.is_broken(Broken::AckTooEarly) {
            return self.tell_others(at, info, key, news).await;
        }
        let lost = match self.tell(at, info, key, news).await {
            Err(e) if e.code == ErrorCode::WrongOwner => for_others(e),
            observed => return observed,
        };
        drop(guard);
        let started = self.exec.now();
        loop {
            self.leased(at).await?;
            match self.pass_on(at, info, key, news).await {
                Ok(true) => break,
                Ok(false) => return Err(lost),
                Err(_) if self.exec.now() - started > HEARD_WITHIN => return Err(lost),
                Err(_) => self.exec.sleep(AGAIN_AFTER).await,
            }
        }
        self.seen.passed_on.set(self.seen.passed_on.get() + 1);
        let process = self.target(at).process();
        let _guard = process.locks.lock(key).await;
        if self.target(at).get(key).is_none_or(|here| here.stamp <= news.stamp()) {
            process.unsettled.borrow_mut().remove(key);
        }
        Ok(())
    }

    /// Forwards a change to where the object belongs by the current state.
    async fn pass_on(self: &W, at: At, info: &BucketInfo, key: &Key, news: News) -> Result<bool> {
        let target = self.target(at);
        let state = target.map();
        let owner = placement::owner(&state, info, &key.1)?.id.clone();
        if owner == target.id {
            self.settle(at, info, key).await?;
            return Ok(!matches!(news, News::Removed(_)));
        }
        match news {
            News::Written(record) => {
                let mut others = rebalance::duty(&state, info, &key.1, &target.id).others;
                others.sort_by_key(|node| node.id == owner);
                for node in others.into_iter().filter(|node| node.alive) {
                    let to = at_of(&node.id);
                    if self.wants(at, to, key, record).await? {
                        self.send(at, to, key, record, Sent::Moved).await?;
                    }
                }
            }
            News::Removed(stamp) => {
                if !state.is_quiescent() {
                    let _guard = target.process().locks.lock(key).await;
                    if target.tombstone(key) < Some(stamp) {
                        self.bury(at, key, stamp).await;
                    }
                }
            }
        }
        let written = matches!(news, News::Written(_));
        let owner_at = at_of(&owner);
        let (stamp, by) = (news.stamp(), Some(owner));
        let request = CopyRequest { stamp, by, written, ..CopyRequest::new(&info.bucket, &key.1) };
        let replica_set = native::replica_set(&state, info, &key.1, &target.id);
        let observed = replica_set.all.into_iter().map(|node| {
            let (world, key, version) = (self.clone(), key.clone(), state.version);
            let (to, request) = (at_of(&node.id), request.clone());
            let observed = async move {
                world.caught_up(to, version).await?;
                world.overtaken(to, &key, &request).await
            };
            self.call_within(ASKED_WITHIN, (at, to), observed)
        });
        try_join_all(observed).await?;
        let News::Removed(stamp) = news else { return Ok(true) };
        // If the object has changed since, nobody can decide which of several removals was applied.
        let (world, key, to) = (self.clone(), key.clone(), owner_at);
        let look = async move { world.look(to, key, state.version).await };
        Ok(!self.call_within(ASKED_WITHIN, (at, to), look).await?.is_after(stamp))
    }

    async fn tell(self: &W, at: At, info: &BucketInfo, key: &Key, news: News) -> Result<()> {
        let (started, mut know) = (self.exec.now(), BTreeSet::new());
        let me = self.target(at).id.clone();
        loop {
            let state = match info.has_copies() {
                true => self.may_write(at, info, &key.1).await?,
                false => {
                    self.leased(at).await?;
                    self.target(at).map()
                }
            };
            let replica_set = native::replica_set(&state, info, &key.1, &me);
            let others = replica_set.all.iter().filter(|n| !know.contains(&n.id));
            let observed = others.map(async |node| {
                let has_copy = replica_set.holders.iter().any(|holder| holder.id == node.id);
                let tell = self.tell_one(at, at_of(&node.id), info, key, news, has_copy);
                let observed =
                    match select(Box::pin(tell), Box::pin(self.death_of(at, &node.id))).await {
                        Either::Left((observed, _)) => Some(observed),
                        Either::Right(_) => None,
                    };
                (node.id.clone(), observed)
            });
            let (mut failed, mut died) = (None, false);
            for (id, observed) in join_all(observed).await {
                match observed {
                    Some(Ok(())) => drop(know.insert(id)),
                    Some(Err(e)) => failed = Some(e),
                    None => died = true,
                }
            }
            match failed {
                None if died => {}
                None => {
                    self.target(at).process().unsettled.borrow_mut().remove(key);
                    return Ok(());
                }
                Some(e) if self.exec.now() - started > HEARD_WITHIN => {
                    return Err(Error::unavailable(e.message));
                }
                Some(_) => self.exec.sleep(AGAIN_AFTER).await,
            }
        }
    }

    async fn tell_one(
        self: &W,
        at: At,
        to: At,
        info: &BucketInfo,
        key: &Key,
        news: News,
        has_copy: bool,
    ) -> Result<()> {
        let (stamp, written) = match news {
            News::Written(record) if has_copy => {
                return self.send(at, to, key, record, Sent::Written).await;
            }
            News::Written(record) => (record.stamp, true),
            News::Removed(stamp) => (stamp, false),
        };
        let by = info.has_copies().then(|| self.target(at).id.clone());
        let request = CopyRequest { stamp, by, written, ..CopyRequest::new(&info.bucket, &key.1) };
        let (world, key, version) = (self.clone(), key.clone(), self.target(at).map().version);
        let observed = async move {
            world.caught_up(to, version).await?;
            world.overtaken(to, &key, &request).await
        };
        self.call_within(ASKED_WITHIN, (at, to), observed).await
    }

    /// Before a read returns an object: waits for a write in progress, and completes the
    /// replication of a write whose writer gave up.
    pub(crate) async fn settle(self: &W, at: At, info: &BucketInfo, key: &Key) -> Result<()> {
        if !info.has_copies() || !self.is_unsettled(at, key) {
            return Ok(());
        }
        let process = self.target(at).process();
        let lock = self.exec.within(WRITTEN_WITHIN, process.locks.lock(key)).await;
        let _guard = lock.ok_or_else(|| Error::unavailable("it is being written"))?;
        let unsettled = process.unsettled.borrow().get(key).copied();
        let Some(removal) = unsettled else { return Ok(()) };
        match (self.target(at).get(key), removal) {
            (Some(record), _) => self.tell_others(at, info, key, News::Written(record)).await,
            (None, Some(stamp)) => self.tell_others(at, info, key, News::Removed(stamp)).await,
            (None, None) => {
                process.unsettled.borrow_mut().remove(key);
                Ok(())
            }
        }
    }
}
