//! Object versions, in buckets with versioning: the latest version is the object. Older ones and
//! delete markers are in the bucket's history, under names that sort the newest of an object first.
//!
//! A change copies the object into the history before it replaces or removes it: a crash in between
//! leaves it in both places, which means the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::bucket::{BucketInfo, Versioning};
use forebay_core::bucket_access::BucketChange;
use forebay_core::history::{self, MARKER, NULL, VERSION};
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_node::clock::unix_ns;
use forebay_store::{Record, RecordMeta, Store};
use futures::StreamExt;

use super::put::OnlyIf;
use super::{Key, ObjectService};

/// Maximum number of versions of one object that are searched.
const MAX_VERSIONS: usize = 100_000;

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

/// Whether the bucket has, or had, versioning.
pub(crate) fn keeps_versions(info: &BucketInfo) -> bool {
    !info.has_backend() && info.s3.versioning != Versioning::Unset
}

/// The version of a record; objects from before versioning have the null version.
pub(super) fn version_of(custom: &BTreeMap<String, String>) -> &str {
    custom.get(VERSION).map_or(NULL, String::as_str)
}

/// Older versions of an object, the newest first.
pub(super) async fn older(store: &Store, info: &BucketInfo, name: &str) -> Result<Vec<Record>> {
    let prefix = history::prefix(name);
    let id = history::id(info.id);
    let (rows, _) = store.list(id, &prefix, None, None, MAX_VERSIONS).await?;
    Ok(rows
        .into_iter()
        .filter(|r| history::split(&r.name).is_some_and(|(key, _)| key == name))
        .collect())
}

impl ObjectService {
    /// Moves the object that is about to be replaced into the history and adds the new version's id
    /// to `custom`. The caller holds the object's lock.
    pub(super) async fn archive_version(
        &self,
        info: &BucketInfo,
        name: &str,
        custom: &mut BTreeMap<String, String>,
    ) -> Result<()> {
        if !keeps_versions(info) {
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
        if !keeps_versions(info) || self.store().get(info.id, name).await?.is_some() {
            return Ok(None);
        }
        self.replication().gather_versions(info, name).await?;
        let newest = self.newest_older(info, name).await?;
        let marker = newest.filter(|r| r.meta.custom.contains_key(MARKER));
        Ok(marker.map(|r| version_of(&r.meta.custom).to_owned()))
    }

    /// The object or delete marker, for the conditions of a deletion.
    async fn deletable(&self, info: &BucketInfo, name: &str) -> Result<Option<ObjectMeta>> {
        let now = self.current(info, name).await?;
        if now.is_some() || !keeps_versions(info) {
            return Ok(now);
        }
        self.replication().gather_versions(info, name).await?;
        let newest = self.newest_older(info, name).await?;
        Ok(newest.filter(|r| r.meta.custom.contains_key(MARKER)).map(|r| r.object_meta()))
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
    pub(crate) async fn version(
        &self,
        info: &BucketInfo,
        name: &str,
        version: &str,
    ) -> Result<Option<(BucketInfo, String)>> {
        let found = self.version_here(info, name, version).await?;
        if found.is_some() || info.has_backend() {
            return Ok(found);
        }
        // The newest version is the object itself.
        self.replication().fetch_newest(info, name).await?;
        self.replication().gather_versions(info, name).await?;
        self.version_here(info, name, version).await
    }

    async fn version_here(
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
            None if version == NULL && !keeps_versions(info) => {
                return Ok(Some((info.clone(), name.to_owned())));
            }
            _ => {}
        }
        let older = self.find_older(info, name, version).await?;
        Ok(older.map(|r| (BucketInfo { id: r.bucket_id, ..info.clone() }, r.name)))
    }

    /// Deletes an object: in a bucket with versioning a delete marker replaces it.
    pub(crate) async fn delete_if(
        &self,
        info: &BucketInfo,
        name: &str,
        only_if: Option<OnlyIf>,
    ) -> Result<Removed> {
        info.check_access(BucketChange::Delete)?;
        self.replication().fetch_newest(info, name).await?;
        let guard = self.local().locks.lock(&Key::new(info, name)).await;
        if let Some(only_if) = only_if {
            let there = self.deletable(info, name).await?;
            only_if(there.as_ref())?;
            if there.is_none() {
                // A conditional deletion of a missing object creates no marker.
                return Ok(Removed::default());
            }
        }
        if !keeps_versions(info) {
            // A writer may intervene; the condition was true when it was checked.
            drop(guard);
            return Box::pin(self.delete(info, name)).await.map(|()| Removed::default());
        }
        history::check_name(name)?;
        self.replication().may_write(info, name).await?;
        let new = new_version(info);
        self.keep_replaced(info, name, &new).await?;
        self.put_marker(info, name, &new).await?;
        drop(self.replication().remove(info, name, guard).await?);
        Ok(Removed { version: Some(new), marker: true })
    }

    async fn put_marker(&self, info: &BucketInfo, name: &str, version: &str) -> Result<()> {
        let now = unix_ns();
        let custom = [(MARKER, "1"), (VERSION, version)];
        let meta = RecordMeta {
            mtime_ns: now,
            atime_ns: now,
            custom: custom.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            epoch: self.state().version,
            class: info.class,
            ..RecordMeta::default()
        };
        let marker = history::name(name, version, now);
        self.store().put(history::id(info.id), &marker, Bytes::new(), meta).await.map(drop)
    }

    /// Removes one version for good; the newest remaining one becomes the object again.
    pub(crate) async fn delete_version(
        &self,
        info: &BucketInfo,
        name: &str,
        version: &str,
        only_if: Option<OnlyIf>,
    ) -> Result<Removed> {
        info.check_access(BucketChange::Delete)?;
        self.replication().fetch_newest(info, name).await?;
        let gathered = self.replication().gather_versions(info, name).await;
        let mut guard = self.local().locks.lock(&Key::new(info, name)).await;
        self.replication().may_write(info, name).await?;
        let now = self.store().get(info.id, name).await?;
        let is_now = now.as_ref().is_some_and(|r| version_of(&r.meta.custom) == version);
        let found = if is_now { now.clone() } else { self.find_older(info, name, version).await? };
        if found.is_none() || is_now || now.is_none() {
            // The version may be on another target, as may the one that becomes the object.
            gathered?;
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
        self.replication().forget_version(info, name, &older, &found).await?;
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
            let stamp = removed.next(self.state().version);
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

/// The version in responses to readers, in a bucket with versioning.
pub(crate) fn shown_version<'a>(info: &BucketInfo, object: &'a ObjectMeta) -> Option<&'a str> {
    keeps_versions(info).then(|| version_of(&object.custom))
}

/// Whether this is a delete marker and not an object.
pub(crate) fn is_marker(object: &ObjectMeta) -> bool {
    object.custom.contains_key(MARKER)
}
