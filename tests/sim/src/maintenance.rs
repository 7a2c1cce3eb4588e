//! The tasks of a target that start operations by themselves: the rebalance job, the removal of
//! tombstones, and the restoration of copies that were lost with a disk.

use std::rc::Rc;

use forebay_core::replication::View;
use forebay_core::{Error, ErrorCode, Result};

use crate::broken::Broken;
use crate::driver::REQUEST_TIMEOUT;
use crate::exec::{MS, Micros, SECOND};
use crate::target::Key;
use crate::versions::version_of;
use crate::world::{At, W, World, at_of};

/// Attempts for one object of a rebalance.
const MAX_ATTEMPTS: u64 = 4;
const RETRY_PAUSE: Micros = 250 * MS;
/// Rest after a loss of objects, and pause before a retry of those that could not be fetched.
const RESTORE_PAUSE: Micros = 10 * SECOND;

impl World {
    /// Runs a target's job: sends every object that it holds to where the object belongs.
    pub(crate) async fn rebalance(self: &W, at: At, version: u64) -> Result<()> {
        self.caught_up(at, version).await?;
        let target = self.target(at);
        let _turn = target.process().moving.lock(&()).await;
        // Objects on a disk that is not in use are not found, and come back with it.
        target.process().view.check_disks()?;
        target.process().locks.drain().await;
        let tombstones: Vec<Key> = target.tombstones.borrow().keys().cloned().collect();
        let mut failed = None;
        for key in tombstones {
            let sending = self.engine(at).relocate_tombstone(self.object(at, &key)?);
            failed = self.drive(at, &key, &Rc::default(), sending).await.err().or(failed);
        }
        let mut here: Vec<Key> = target.records.borrow().keys().cloned().collect();
        // The objects before their older versions.
        here.sort_by_key(|key| version_of(key).is_some());
        for key in here {
            let mut attempts = 0;
            loop {
                attempts += 1;
                let moving = self.engine(at).relocate(self.object(at, &key)?);
                match self.drive(at, &key, &Rc::default(), moving).await {
                    Err(e) if attempts < MAX_ATTEMPTS && may_succeed_later(&e) => {
                        self.exec.sleep(RETRY_PAUSE * attempts).await;
                    }
                    Err(e) => break failed = Some(e),
                    Ok(_) => break,
                }
            }
        }
        let here: Vec<Key> = target.slices.borrow().keys().cloned().collect();
        for key in here {
            let mut attempts = 0;
            loop {
                attempts += 1;
                let moving = self.engine(at).relocate_slices(self.object(at, &key)?);
                match self.drive(at, &key, &Rc::default(), moving).await {
                    Err(e) if attempts < MAX_ATTEMPTS && may_succeed_later(&e) => {
                        self.exec.sleep(RETRY_PAUSE * attempts).await;
                    }
                    Err(e) => break failed = Some(e),
                    Ok(_) => break,
                }
            }
        }
        failed.map_or(Ok(()), Err)
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
                    let Ok(object) = self.object(at, &key) else { continue };
                    let dropping = self.engine(at).drop_tombstone(object, state.version);
                    // The simulated disk does not fail.
                    drop(self.drive(at, &key, &Rc::default(), dropping).await);
                }
            }
            futures::future::select(Box::pin(changed), Box::pin(noted)).await;
        }
    }

    /// Fetches copies that were lost with a disk from other targets.
    pub(crate) async fn restore_lost_objects(self: W, at: At) {
        let process = self.target(at).process();
        loop {
            let lost = process.lost.rung();
            if !process.view.has_lost_objects() {
                lost.await;
                continue;
            }
            if self.exec.within(RESTORE_PAUSE, lost).await.is_some() {
                continue;
            }
            let losses = process.view.losses();
            if self.restore(at).await.unwrap_or(false) {
                process.view.restored(losses);
            }
        }
    }

    /// False if some target could not report all that it has, or some copy could not be fetched.
    async fn restore(self: &W, at: At) -> Result<bool> {
        let (state, mut all) = (self.target(at).map(), true);
        let me = &self.target(at).id;
        for node in state.holding_targets().filter(|n| n.id != *me) {
            if !node.alive {
                all = false;
                continue;
            }
            let (world, to, version) = (self.clone(), at_of(&node.id), state.version);
            let listed = async move {
                world.caught_up(to, version).await?;
                Ok((world.target(to).keys(), world.target(to).away.is_away()))
            };
            let (keys, in_part) = self.call_within(REQUEST_TIMEOUT, (at, to), listed).await?;
            all &= !in_part;
            for key in keys {
                let fetching = self.engine(at).restore(self.object(at, &key)?);
                all &= self.drive(at, &key, &Rc::default(), fetching).await.is_ok();
            }
        }
        Ok(all)
    }
}

/// Whether a retry may succeed.
fn may_succeed_later(error: &Error) -> bool {
    error.code.is_transient() || error.code == ErrorCode::ObjectNotFound
}
