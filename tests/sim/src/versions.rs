//! Older versions of objects in the simulated world: a write archives the value that it replaces, and
//! clients read and remove single versions. The value is the id of its version.

use std::collections::BTreeSet;
use std::rc::Rc;

use forebay_core::replication::{Answer, LocalCopy};
use forebay_core::state::ClusterState;
use forebay_core::{Error, NodeId, Result, history, placement};

use crate::disks::AwayDisk;
use crate::target::{Key, Record, Target};
use crate::world::{At, W, World, at_of, info_in};

/// The key of an older version: its name is that in the bucket's history.
pub(crate) fn version_key(object: &Key, value: u64) -> Key {
    (object.0, history::name(&object.1, &format!("{value:016x}"), 0))
}

/// The key of the object that a version belongs to, and the value; `None` if it is no version's key.
pub(crate) fn version_of(key: &Key) -> Option<(Key, u64)> {
    let (object, value) = history::split(&key.1)?;
    Some(((key.0, object.to_owned()), u64::from_str_radix(value, 16).ok()?))
}

/// The name of the object: that of the key, or of the object that the version belongs to.
pub(crate) fn object_name(key: &Key) -> &str {
    history::split(&key.1).map_or(&key.1, |(object, _)| object)
}

impl Target {
    /// The names of the older versions of an object here.
    fn versions_of(&self, object: &Key) -> Vec<String> {
        let records = self.records.borrow();
        let of_object = |key: &&Key| version_of(key).is_some_and(|(of, _)| of == *object);
        records.keys().filter(of_object).map(|key| key.1.clone()).collect()
    }

    /// Whether a disk of this target, in use or not, has a version: archived, or as the object.
    fn has_version(&self, version: &Key) -> bool {
        let Some((object, value)) = version_of(version) else { return false };
        let away: &AwayDisk = &self.away;
        let is_it = |record: Option<Record>| record.is_some_and(|record| record.value == value);
        [version, &object].into_iter().any(|key| is_it(self.get(key)) || is_it(away.record(key)))
    }
}

/// The commands of the engine.
impl World {
    /// Archives the copy that a write or a removal replaces, in a bucket that keeps versions.
    pub(crate) async fn archive(&self, at: At, key: &Key, replaced: Option<LocalCopy>) -> Answer {
        let Some(replaced) = replaced.filter(|_| self.plan.keeps_versions(key.0)) else {
            return Answer::Done;
        };
        self.disk().await;
        let target = self.target(at);
        let Some(now) = target.get(key).filter(|now| now.commit == replaced.commit) else {
            return Answer::Failed(crate::driver::gone());
        };
        let version = version_key(key, now.value);
        let archived = Record { commit: self.seen.next_commit(), ..now };
        target.records.borrow_mut().insert(version, archived);
        self.note(|| format!("target {at} archives {key:?} as {:?}: {}", now.stamp, now.value));
        self.moment().await;
        Answer::Done
    }

    pub(crate) async fn list_versions(&self, at: At, object: &Key) -> Answer {
        self.moment().await;
        Answer::Versions(self.target(at).versions_of(object))
    }

    pub(crate) async fn send_version(
        self: &W,
        at: At,
        object: &Key,
        version: String,
        to: NodeId,
    ) -> Answer {
        let version = (object.0, version);
        let sent = async {
            let sending = self.engine(at).send_on_request(self.object(at, &version)?, to, false);
            self.drive(at, &version, &Rc::default(), sending).await
        };
        Answer::of_result(sent.await)
    }

    pub(crate) async fn request_versions(self: &W, at: At, from: &NodeId, key: Key) -> Answer {
        let (world, asked) = (self.clone(), at_of(from));
        let (me, version) = (self.target(at).id.clone(), self.target(at).map().version);
        let sent = async move { world.hand_over_versions(asked, key, me, version).await };
        self.request(at, from, sent, |()| Answer::Done).await
    }
}

/// The requests that a target handles.
impl World {
    /// The owner's request for the older versions of an object.
    async fn hand_over_versions(self: W, at: At, key: Key, to: NodeId, version: u64) -> Result<()> {
        self.caught_up(at, version).await?;
        let sending = self.engine(at).hand_over_versions(self.object(at, &key)?, to);
        self.drive(at, &key, &Rc::default(), sending).await
    }

    /// A client's read of one version, at the owner of the object.
    pub(crate) async fn get_version(
        self: W,
        at: At,
        key: Key,
        version: u64,
    ) -> Result<Option<u64>> {
        self.caught_up(at, version).await?;
        let (object, value) = version_of(&key).ok_or_else(no_version)?;
        self.check_owner(at, &object)?;
        let mut is_here = self.is_version_here(at, &key).await;
        if !is_here {
            self.fetch_newest(at, &object).await?;
            self.gather_versions(at, &object).await?;
            is_here = self.is_version_here(at, &key).await;
        }
        if !self.has_lease(at) {
            return Err(Error::unavailable("a read without a lease, which no rule is about"));
        }
        Ok(is_here.then_some(value))
    }

    async fn is_version_here(&self, at: At, version: &Key) -> bool {
        let Some((object, value)) = version_of(version) else { return false };
        self.moment().await;
        if self.target(at).get(&object).is_some_and(|now| now.value == value) {
            return true;
        }
        self.moment().await;
        self.target(at).get(version).is_some()
    }

    async fn fetch_newest(self: &W, at: At, object: &Key) -> Result<()> {
        let reading = self.engine(at).read(self.object(at, object)?);
        self.drive(at, object, &Rc::default(), reading).await.map(drop)
    }

    async fn gather_versions(self: &W, at: At, object: &Key) -> Result<()> {
        let gathering = self.engine(at).gather_versions(self.object(at, object)?);
        self.drive(at, object, &Rc::default(), gathering).await
    }

    /// A client's removal of one version; returns whether it existed.
    pub(crate) async fn remove_version(self: W, at: At, key: Key, version: u64) -> Result<bool> {
        self.caught_up(at, version).await?;
        let (object, value) = version_of(&key).ok_or_else(no_version)?;
        self.check_owner(at, &object)?;
        let locking = self.engine(at).lock_with_versions(self.object(at, &object)?);
        let (missing, _lock) = self.drive_locked(at, &object, &Rc::default(), locking, None).await;
        let missing = missing?;
        self.leased(at).await?;
        self.check_owner(at, &object)?;
        self.moment().await;
        let now = self.target(at).get(&object);
        if now.is_some_and(|now| now.value == value) {
            return Err(Error::unsupported("the newest version is not removed here"));
        }
        let found = self.target(at).get(&key);
        if found.is_none() || now.is_none() {
            missing.map_or(Ok(()), Err)?;
        }
        let Some(found) = found else { return Ok(false) };
        let removing = self.engine(at).remove_version(self.object(at, &key)?, found.stamp);
        self.drive(at, &key, &Rc::default(), removing).await.map(|()| true)
    }

    /// A client's removal of the object in a bucket that keeps versions: the value becomes an older
    /// version. Returns whether the object existed.
    pub(crate) async fn delete_versioned(self: W, at: At, key: Key, version: u64) -> Result<bool> {
        self.caught_up(at, version).await?;
        self.check_owner(at, &key)?;
        let locking = self.engine(at).lock_newest(self.object(at, &key)?);
        let (locked, lock) = self.drive_locked(at, &key, &Rc::default(), locking, None).await;
        locked?;
        self.leased(at).await?;
        self.check_owner(at, &key)?;
        let now = self.target(at).get(&key).map(crate::driver::copy_of);
        if let Answer::Failed(e) = self.archive(at, &key, now).await {
            return Err(e);
        }
        let removing = self.engine(at).remove_under_lock(self.object(at, &key)?);
        self.drive_locked(at, &key, &Rc::default(), removing, lock).await.0
    }
}

/// The checks.
impl World {
    /// Whether some disk has a version, archived or as the object.
    pub(crate) fn is_version_kept(&self, version: &Key) -> bool {
        self.targets.iter().any(|target| target.has_version(version))
    }

    /// Versions that are misplaced, and tombstones of versions, when all has converged.
    pub(crate) fn misplaced_versions(&self, state: &ClusterState) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut keys = BTreeSet::new();
        for target in &self.targets {
            keys.extend(target.records.borrow().keys().filter_map(is_version));
            let tombstones = target.tombstones.borrow();
            let at = target.at;
            wrong.extend(
                tombstones
                    .keys()
                    .filter_map(is_version)
                    .map(|key| format!("target {at} keeps a tombstone of version {key:?}")),
            );
        }
        for key in keys {
            let Some(info) = info_in(state, key.0) else { continue };
            let digest = placement::digest_in(&info.bucket, object_name(&key));
            let holders = placement::holders(state, &info, digest);
            let belongs: Vec<At> = holders.iter().map(|node| at_of(&node.id)).collect();
            let there = self.targets.iter().filter(|target| target.get(&key).is_some());
            let there: Vec<At> = there.map(|target| target.at).collect();
            if there != belongs {
                wrong.push(format!("version {key:?} lies on {there:?} and belongs on {belongs:?}"));
            }
        }
        wrong
    }
}

fn is_version(key: &Key) -> Option<Key> {
    version_of(key).map(|_| key.clone())
}

fn no_version() -> Error {
    Error::internal("this is not the key of a version")
}
