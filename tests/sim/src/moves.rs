//! A target's rebalance job, which moves objects and makes copies. The real [`rebalance::duty`]
//! decides where an object belongs.

use forebay_core::{Error, Result, rebalance};

use crate::broken::Broken;
use crate::copies::Sent;
use crate::exec::{MS, Micros};
use crate::object::ASKED_WITHIN;
use crate::target::{Key, Record};
use crate::world::{At, W, World, at_of};

/// Tries for one object of a rebalance.
const TRIES: u64 = 4;
const PAUSE: Micros = 250 * MS;

impl World {
    /// Runs a target's job: sends every object that it holds to where the object belongs.
    pub(crate) async fn rebalance(self: &W, at: At, version: u64) -> Result<()> {
        self.caught_up(at, version).await?;
        let target = self.target(at);
        let _turn = target.process().moving.lock(&()).await;
        target.process().locks.settled().await;
        let tombstone: Vec<Key> = target.tombstones.borrow().keys().cloned().collect();
        let mut failed = None;
        for key in tombstone {
            failed = self.spread_tombstone(at, &key).await.err().or(failed);
        }
        let here: Vec<Key> = target.records.borrow().keys().cloned().collect();
        for key in here {
            let mut tries = 0;
            loop {
                tries += 1;
                match self.spread(at, &key).await {
                    Err(_) if tries < TRIES => self.exec.sleep(PAUSE * tries).await,
                    Err(e) => break failed = Some(e),
                    Ok(()) => break,
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn spread_tombstone(self: &W, at: At, key: &Key) -> Result<()> {
        let (target, info) = (self.target(at), self.info(at, key)?);
        let state = target.map();
        let others = rebalance::duty(&state, &info, &key.1, &target.id).others;
        let Some(stamp) = target.tombstone(key) else { return Ok(()) };
        for node in others.into_iter().filter(|n| n.alive) {
            let (world, to, key) = (self.clone(), at_of(&node.id), key.clone());
            let version = state.version;
            let observed = async move {
                world.caught_up(to, version).await?;
                world.remove_older(to, &key, stamp).await
            };
            self.call_within(ASKED_WITHIN, (at, to), observed).await?;
        }
        Ok(())
    }

    /// Sends an object to where it belongs, and drops it here if it does not belong here.
    async fn spread(self: &W, at: At, key: &Key) -> Result<()> {
        let (target, info) = (self.target(at), self.info(at, key)?);
        let state = target.map();
        let duty = rebalance::duty(&state, &info, &key.1, &target.id);
        if duty.others.is_empty() {
            return Ok(());
        }
        if duty.others.iter().any(|n| !n.alive) && !duty.stays {
            return Err(Error::unavailable("it belongs to a target that is down"));
        }
        let Some(record) = self.at_rest(at, key).await else { return Ok(()) };
        if !duty.stays && self.is_broken(Broken::DroppedTooEarly) {
            self.drop_this(at, key, record).await;
        }
        for node in duty.others.iter().filter(|n| n.alive) {
            let to = at_of(&node.id);
            if !info.has_copies() || self.wants(at, to, key, record).await? {
                self.send(at, to, key, record, Sent::Moved).await?;
            }
        }
        if !duty.stays {
            self.drop_this(at, key, record).await;
        }
        Ok(())
    }

    pub(crate) async fn wants(self: &W, at: At, to: At, key: &Key, record: Record) -> Result<bool> {
        let (world, asked, version) = (self.clone(), key.clone(), self.target(at).map().version);
        let look = async move { world.look(to, asked, version).await };
        let look = self.call_within(ASKED_WITHIN, (at, to), look).await?;
        let stamp = record.stamp;
        if let Some(removed) = look.removed.filter(|r| *r > stamp && look.there < Some(*r)) {
            self.remove_older(at, key, removed).await?;
        }
        Ok(!look.knows(stamp))
    }
}
