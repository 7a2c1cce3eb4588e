//! The requests that a target handles, of clients, gateways and other targets: each starts an
//! operation of the target's replication engine, after the checks of the target's HTTP layer.

use std::collections::BTreeSet;
use std::rc::Rc;

use forebay_core::copies::{CopyLook, Ensured, Stamp};
use forebay_core::replication::{
    IncomingCopy, LocalCopy, LookMode, Object, ObsoleteForms, Operation, Removal, Replication,
    View, WriteOptions,
};
use forebay_core::{Error, ErrorCode, NodeId, Result, native, placement};

use crate::broken::Broken;
use crate::driver::{Payload, REQUEST_TIMEOUT};
use crate::target::Key;
use crate::versions::version_of;
use crate::world::{At, W, World, at_of, info_in, missing_info};

/// Share of writes that have a precondition.
const CONDITIONAL_PERCENT: u64 = 15;

impl World {
    pub(crate) fn object(&self, at: At, key: &Key) -> Result<Object> {
        let info = info_in(&self.target(at).map(), key.0).ok_or_else(missing_info)?;
        Ok(match version_of(key) {
            Some(_) => Object::older_version(info, &key.1),
            None => Object::new(info, &key.1),
        })
    }

    pub(crate) fn engine(&self, at: At) -> Replication {
        self.target(at).process().engine
    }

    pub(crate) fn check_owner(&self, at: At, key: &Key) -> Result<()> {
        let state = self.target(at).map();
        let info = info_in(&state, key.0).ok_or_else(missing_info)?;
        if placement::owner(&state, &info, &key.1)?.id == self.target(at).id {
            return Ok(());
        }
        Err(Error::new(ErrorCode::WrongOwner, "the object belongs to another target"))
    }

    /// A read by a client, at the owner of the object.
    pub(crate) async fn get(self: W, at: At, key: Key, version: u64) -> Result<Option<u64>> {
        self.caught_up(at, version).await?;
        let object = self.object(at, &key)?;
        self.check_owner(at, &key)?;
        let reading = self.engine(at).read(object);
        let found = self.value_of(at, &key, reading).await?;
        // Without a majority of the gateways, objects with one copy are served under the last map:
        // these reads may be older than a write under a later one.
        if !self.has_lease(at) {
            return Err(Error::unavailable("a read without a lease, which no rule is about"));
        }
        Ok(found)
    }

    /// A hedged read by a client, at the second holder.
    pub(crate) async fn hedged_get(self: W, at: At, key: Key, version: u64) -> Result<Option<u64>> {
        self.caught_up(at, version).await?;
        let reading = self.engine(at).hedged_read(self.object(at, &key)?);
        self.value_of(at, &key, reading).await
    }

    /// A change of metadata by a client. It returns the value, which stays as it is.
    pub(crate) async fn update(self: W, at: At, key: Key, version: u64) -> Result<Option<u64>> {
        self.caught_up(at, version).await?;
        let object = self.object(at, &key)?;
        self.check_owner(at, &key)?;
        let updating = self.engine(at).update(object);
        self.value_of(at, &key, updating).await
    }

    async fn value_of(
        self: &W,
        at: At,
        key: &Key,
        reading: Operation<Result<Option<LocalCopy>>>,
    ) -> Result<Option<u64>> {
        let payload = Rc::default();
        let copy = self.change(at, key, &payload, reading).await?;
        Ok(payload.opened.get().filter(|_| copy.is_some()))
    }

    /// A write by a client.
    pub(crate) async fn put(self: W, at: At, key: Key, value: u64, version: u64) -> Result<()> {
        self.caught_up(at, version).await?;
        let object = self.object(at, &key)?;
        self.check_owner(at, &key)?;
        self.moment().await;
        let conditional = self.exec.percent(CONDITIONAL_PERCENT);
        let options = WriteOptions { fetch_first: conditional, conditional };
        let writing = self.engine(at).write(object, options);
        self.change(at, &key, &Payload::of(value), writing).await.map(drop)
    }

    /// A removal by a client; returns whether the object existed.
    pub(crate) async fn delete(self: W, at: At, key: Key, version: u64) -> Result<bool> {
        self.caught_up(at, version).await?;
        let object = self.object(at, &key)?;
        self.check_owner(at, &key)?;
        let removing = self.engine(at).remove(object);
        self.change(at, &key, &Rc::default(), removing).await
    }

    async fn change<T>(
        self: &W,
        at: At,
        key: &Key,
        payload: &Rc<Payload>,
        operation: Operation<Result<T>>,
    ) -> Result<T> {
        let done = self.drive(at, key, payload, operation).await?;
        if payload.forwarded.get() {
            self.seen.passed_on.set(self.seen.passed_on.get() + 1);
        }
        Ok(done)
    }

    /// Another target's look.
    pub(crate) async fn look(
        self: &W,
        at: At,
        key: Key,
        mode: LookMode,
        version: u64,
    ) -> Result<CopyLook> {
        self.caught_up(at, version).await?;
        let looking = self.engine(at).look(self.object(at, &key)?, mode);
        self.drive(at, &key, &Rc::default(), looking).await
    }

    /// Another target's request for the copy here.
    pub(crate) async fn send_on_request(
        self: &W,
        at: At,
        key: Key,
        to: NodeId,
        anew: bool,
        version: u64,
    ) -> Result<()> {
        self.caught_up(at, version).await?;
        let sending = self.engine(at).send_on_request(self.object(at, &key)?, to, anew);
        self.drive(at, &key, &Rc::default(), sending).await
    }

    /// A copy that another target sends.
    pub(crate) async fn receive(
        self: &W,
        at: At,
        key: Key,
        copy: IncomingCopy,
        value: u64,
        version: u64,
    ) -> Result<()> {
        self.caught_up(at, version).await?;
        let receiving = self.engine(at).receive(self.object(at, &key)?, copy);
        self.drive(at, &key, &Payload::of(value), receiving).await.map(drop)
    }

    /// Another target's request to remove older copies.
    pub(crate) async fn remove_older(
        self: &W,
        at: At,
        key: Key,
        removal: Removal,
        version: u64,
    ) -> Result<()> {
        self.caught_up(at, version).await?;
        let removing = self.engine(at).remove_older(self.object(at, &key)?, removal);
        self.drive(at, &key, &Rc::default(), removing).await
    }

    /// Another target's request to drop forms of an object.
    pub(crate) async fn drop_forms(
        self: &W,
        at: At,
        key: Key,
        forms: ObsoleteForms,
        by: Option<NodeId>,
        version: u64,
    ) -> Result<()> {
        self.caught_up(at, version).await?;
        let dropping = self.engine(at).drop_forms(self.object(at, &key)?, forms, by);
        self.drive(at, &key, &Rc::default(), dropping).await
    }

    /// Another target's request to bring the forms of an object to their places.
    pub(crate) async fn ensure(
        self: &W,
        at: At,
        key: Key,
        stamp: Stamp,
        version: u64,
    ) -> Result<Ensured> {
        self.caught_up(at, version).await?;
        let ensuring = self.engine(at).ensure(self.object(at, &key)?, stamp);
        self.drive(at, &key, &Rc::default(), ensuring).await
    }

    /// A target's reply to a gateway that lists a bucket.
    pub(crate) async fn names_at(
        self: &W,
        at: At,
        bucket: usize,
        version: u64,
    ) -> Result<Vec<String>> {
        self.caught_up(at, version).await?;
        let target = self.target(at);
        self.check_listing(at, bucket, version)?;
        self.moment().await;
        let state = target.map();
        let keys = target.listed(bucket);
        let info = info_in(&state, bucket).ok_or_else(missing_info)?;
        let is_stale = target.may_have_missed_changes(&state, &info);
        let removed = match is_stale {
            true => self.removed_elsewhere(at, bucket).await?,
            false => BTreeSet::new(),
        };
        let mut names = Vec::with_capacity(keys.len());
        for (key, stamp) in keys {
            if !removed.contains(&key.1) || !self.is_removed(at, &key, stamp).await? {
                names.push(key.1);
            }
        }
        // If this target was paused, its list may have names that were removed meanwhile.
        self.leased(at).await?;
        self.check_listing(at, bucket, version)?;
        if is_stale && !target.may_have_missed_changes(&target.map(), &info) {
            // The tombstones may have been removed before they were listed.
            return Err(Error::unavailable("this target got the changes that it missed just now"));
        }
        Ok(names)
    }

    /// An error if a listing could lack names without notice.
    fn check_listing(&self, at: At, bucket: usize, version: u64) -> Result<()> {
        let (target, state) = (self.target(at), self.target(at).map());
        target.process().view.check_disks()?;
        native::check_choice(&state, version, &target.id)?;
        if target.has_lost_objects() && !self.is_broken(Broken::LossForgotten) {
            let info = info_in(&state, bucket).ok_or_else(missing_info)?;
            native::check_losses(&state, &info, version, &target.id)?;
        }
        Ok(())
    }

    /// The names for which other targets have tombstones.
    async fn removed_elsewhere(self: &W, at: At, bucket: usize) -> Result<BTreeSet<String>> {
        let (state, mut names, mut newest) = (self.target(at).map(), BTreeSet::new(), 0);
        let me = &self.target(at).id;
        for node in state.holding_targets().filter(|n| n.alive && n.id != *me) {
            let (world, to, version) = (self.clone(), at_of(&node.id), state.version);
            let listed = async move {
                world.caught_up(to, version).await?;
                let tombstones = world.target(to).tombstones.borrow();
                let of_bucket = tombstones.keys().filter(|key| key.0 == bucket);
                let names = of_bucket.map(|key| key.1.clone()).collect::<Vec<String>>();
                Ok((names, world.target(to).map().version))
            };
            let (listed, version) = self.call_within(REQUEST_TIMEOUT, (at, to), listed).await?;
            names.extend(listed);
            newest = version.max(newest);
        }
        // By a newer state, the tombstones may have been removed.
        self.caught_up(at, newest).await?;
        Ok(names)
    }

    async fn is_removed(self: &W, at: At, key: &Key, listed: Stamp) -> Result<bool> {
        let Some(now) = self.target(at).listed(key.0).get(key).copied() else { return Ok(true) };
        let object = self.object(at, key)?;
        let looking = self.engine(at).is_removed_elsewhere(object, now.max(listed));
        self.drive(at, key, &Rc::default(), looking).await
    }
}
