//! Object versions, in buckets with versioning: the latest version is the object. Older ones and
//! delete markers are in the bucket's history, under names that sort the newest of an object first.
//!
//! A change copies the object into the history before it replaces or removes it: a crash in between
//! leaves it in both places, which means the same.
//!
//! [`Versions`] is the one entrance. Its dependencies are this target ([`Local`]), whose store has the
//! history, and [`Replication`], which brings what other targets have of it.

mod records;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::bucket::{BucketInfo, Versioning};
use forebay_core::bucket_access::BucketChange;
use forebay_core::history::{self, MARKER, NULL, VERSION};
use forebay_core::size::ByteRange;
use forebay_node::clock::unix_ns;
use forebay_store::{Record, RecordMeta, Store};
use futures::StreamExt;

pub(crate) use self::records::{is_marker, shown_version};
pub(super) use self::records::{older, version_of};
use super::condition::OnlyIf;
use super::local::Local;
use super::replication::Replication;

/// Number of versions in the first search for the newest.
const FIRST_LOOK: usize = 16;

/// The result of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The version that was created (a delete marker's) or removed.
    pub(crate) version: Option<String>,
    /// Whether that version is a delete marker.
    pub(crate) marker: bool,
}

/// The versions of this target's objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct Versions(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    replication: Replication,
}

impl Versions {
    pub(super) fn new(local: Arc<Local>, replication: Replication) -> Self {
        Self(Arc::new(Inner { local, replication }))
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    fn replication(&self) -> &Replication {
        &self.0.replication
    }

    /// Moves the object that is about to be replaced into the history and adds the new version's id
    /// to `custom`. The caller holds the object's lock.
    pub(super) async fn archive(
        &self,
        info: &BucketInfo,
        name: &str,
        custom: &mut BTreeMap<String, String>,
    ) -> Result<()> {
        if !info.keeps_versions() {
            return Ok(());
        }
        history::check_name(name)?;
        let new = new_version(info);
        self.keep_replaced(info, name, &new).await?;
        if new != NULL {
            custom.insert(VERSION.to_owned(), new);
        }
        Ok(())
    }

    /// Copies the current object into the history, unless version `new` replaces it.
    async fn keep_replaced(&self, info: &BucketInfo, name: &str, new: &str) -> Result<()> {
        if let Some(now) = self.store().get(info.id, name).await? {
            let version = version_of(&now.meta.custom);
            if version != new {
                let older = history::name(name, version, now.meta.mtime_ns);
                self.copy_record(&now, history::id(info.id), &older).await?;
            }
        }
        if new == NULL
            && let Some(older) = self.find_older(info, name, NULL).await?
        {
            self.store().remove(older.bucket_id, &older.name).await?;
        }
        Ok(())
    }

    async fn copy_record(&self, from: &Record, bucket_id: u64, name: &str) -> Result<()> {
        let reader = self.store().reader(from).await?;
        let mut work = self.store().begin(bucket_id, name, Some(from.size)).await?;
        let mut pieces = reader.stream(ByteRange::whole(from.size)).boxed();
        while let Some(piece) = pieces.next().await {
            work.write(piece?).await?;
        }
        self.store().commit(work, from.meta.clone()).await.map(drop)
    }

    /// The newest of the older versions, which may be a delete marker.
    async fn newest_older(&self, info: &BucketInfo, name: &str) -> Result<Option<Record>> {
        let prefix = history::prefix(name);
        let id = history::id(info.id);
        let (rows, more) = self.store().list(id, &prefix, None, None, FIRST_LOOK).await?;
        let of_name = |r: &Record| history::split(&r.name).is_some_and(|(key, _)| key == name);
        match rows.into_iter().find(of_name) {
            // Names that look like versions of this object may come first.
            None if more => Ok(older(self.store(), info, name).await?.into_iter().next()),
            found => Ok(found),
        }
    }

    /// The version of the delete marker that replaces an object.
    pub(crate) async fn marker(&self, info: &BucketInfo, name: &str) -> Result<Option<String>> {
        if !info.keeps_versions() || self.store().get(info.id, name).await?.is_some() {
            return Ok(None);
        }
        let marker = self.newest_marker(info, name).await?;
        Ok(marker.map(|r| version_of(&r.meta.custom).to_owned()))
    }

    /// The newest of the older versions of all targets, if it is a delete marker.
    pub(super) async fn newest_marker(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        self.replication().gather_versions(info, name).await?;
        let newest = self.newest_older(info, name).await?;
        Ok(newest.filter(|r| r.meta.custom.contains_key(MARKER)))
    }

    /// Copies the current object into the history, and adds a delete marker above it. Returns the
    /// marker's version. The caller holds the object's lock, and removes the object then.
    pub(super) async fn archive_below_marker(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<String> {
        let new = new_version(info);
        self.keep_replaced(info, name, &new).await?;
        self.put_marker(info, name, &new).await?;
        Ok(new)
    }

    async fn find_older(
        &self,
        info: &BucketInfo,
        name: &str,
        version: &str,
    ) -> Result<Option<Record>> {
        if version != NULL {
            let older = history::name(name, version, 0);
            return self.store().get(history::id(info.id), &older).await;
        }
        let older = older(self.store(), info, name).await?;
        Ok(older.into_iter().find(|r| version_of(&r.meta.custom) == NULL))
    }

    /// The location of a version: bucket and name by which it is read. `None`: it does not exist.
    /// An error if an unreachable target may have it.
    pub(crate) async fn find(
        &self,
        info: &BucketInfo,
        name: &str,
        version: &str,
    ) -> Result<Option<(BucketInfo, String)>> {
        let found = self.find_here(info, name, version).await?;
        if found.is_some() || info.has_backend() {
            return Ok(found);
        }
        // The newest version is the object itself.
        self.replication().fetch_newest(info, name).await?;
        self.replication().gather_versions(info, name).await?;
        self.find_here(info, name, version).await
    }

    async fn find_here(
        &self,
        info: &BucketInfo,
        name: &str,
        version: &str,
    ) -> Result<Option<(BucketInfo, String)>> {
        if info.has_backend() {
            return Ok((version == NULL).then(|| (info.clone(), name.to_owned())));
        }
        match self.store().get(info.id, name).await? {
            Some(now) if version_of(&now.meta.custom) == version => {
                return Ok(Some((info.clone(), name.to_owned())));
            }
            None if version == NULL && !info.keeps_versions() => {
                return Ok(Some((info.clone(), name.to_owned())));
            }
            _ => {}
        }
        let older = self.find_older(info, name, version).await?;
        Ok(older.map(|r| (BucketInfo { id: r.bucket_id, ..info.clone() }, r.name)))
    }

    async fn put_marker(&self, info: &BucketInfo, name: &str, version: &str) -> Result<()> {
        let now = unix_ns();
        let custom = [(MARKER, "1"), (VERSION, version)];
        let meta = RecordMeta {
            mtime_ns: now,
            atime_ns: now,
            custom: custom.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            epoch: self.0.local.state().version,
            class: info.class,
            ..RecordMeta::default()
        };
        let marker = history::name(name, version, now);
        self.store().put(history::id(info.id), &marker, Bytes::new(), meta).await.map(drop)
    }

    /// Removes one version for good; the newest remaining one becomes the object again.
    pub(crate) async fn delete(
        &self,
        info: &BucketInfo,
        name: &str,
        version: &str,
        only_if: Option<OnlyIf>,
    ) -> Result<Removed> {
        info.check_access(BucketChange::Delete)?;
        let (mut guard, missing) = self.replication().lock_with_versions(info, name).await?;
        self.replication().may_write(info, name).await?;
        let now = self.store().get(info.id, name).await?;
        let is_now = now.as_ref().is_some_and(|r| version_of(&r.meta.custom) == version);
        let found = if is_now { now.clone() } else { self.find_older(info, name, version).await? };
        if found.is_none() || is_now || now.is_none() {
            // The version may be on another target, as may the one that becomes the object.
            missing.map_or(Ok(()), Err)?;
        }
        if let Some(only_if) = only_if {
            only_if(found.as_ref().map(Record::object_meta).as_ref())?;
        }
        let Some(found) = found else { return Ok(Removed::default()) };
        let older = match is_now {
            // The version that became the object again may be in other targets' histories.
            true => history::name(name, version, found.meta.mtime_ns),
            false => found.name.clone(),
        };
        self.replication().forget_version(info, &older, &found).await?;
        if is_now {
            (_, guard) = self.replication().remove(info, name, guard).await?;
        }
        if is_now || now.is_none() {
            self.promote(info, name).await?;
        }
        drop(guard);
        let marker = found.meta.custom.contains_key(MARKER);
        Ok(Removed { version: Some(version.to_owned()), marker })
    }

    async fn promote(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let Some(mut newest) = self.newest_older(info, name).await? else { return Ok(()) };
        if newest.meta.custom.contains_key(MARKER) {
            return Ok(());
        }
        if let Some(removed) = self.replication().tombstone(info, name).await? {
            // Its stamp is after the removal, so that it also replaces a late copy of the removed
            // version.
            let stamp = removed.next(self.0.local.state().version);
            (newest.meta.epoch, newest.meta.version) = (stamp.epoch, stamp.version.to_string());
        }
        self.copy_record(&newest, info.id, name).await?;
        self.store().remove(newest.bucket_id, &newest.name).await.map(drop)
    }
}

/// The id of the next version of an object, by the bucket's versioning state.
fn new_version(info: &BucketInfo) -> String {
    match info.s3.versioning {
        Versioning::Enabled => history::version_at(unix_ns()),
        Versioning::Suspended | Versioning::Unset => NULL.to_owned(),
    }
}
