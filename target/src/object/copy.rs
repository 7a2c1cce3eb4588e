//! Copies of single objects within the cluster: from the owner of the source to the owner of the
//! copy.

use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::Record;

use super::deliver::Delivery;
use super::reads::Found;
use super::{Key, ObjectService, Turns, read_first_chunk};

/// Options of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyOptions {
    /// Copies what the backend has now. The cached copy stays as it is.
    pub(crate) latest: bool,
    /// As `latest`; if the source is gone at its backend, its cached copy and the destination are
    /// removed too.
    pub(crate) sync: bool,
    /// An existing object at the destination stays.
    pub(crate) keep_existing: bool,
}

impl ObjectService {
    /// Copies an object that this target owns. Returns the written bytes; `None` if nothing was to
    /// do.
    pub(crate) async fn copy(
        &self,
        from: (&BucketInfo, &str),
        to: (&BucketInfo, &str),
        how: CopyOptions,
    ) -> Result<Option<u64>> {
        let (source, name) = from;
        if source.id == to.0.id && name == to.1 {
            return self.copy_to_itself(from, how).await;
        }
        let mut turns = Turns::default();
        let opened = loop {
            let opened = self.open_source(source, name, how).await;
            if !turns.again(&opened) {
                break opened;
            }
        };
        let (meta, body) = match opened {
            Err(e) if how.sync && source.has_backend() && e.code == ErrorCode::ObjectNotFound => {
                self.cold_cache().forget_copy(source, name).await?;
                return match self.remove_at_owner(to.0, to.1).await {
                    Err(other) if other.code != ErrorCode::ObjectNotFound => Err(other),
                    _ => Err(e),
                };
            }
            opened => opened?,
        };
        let keep_existing = how.keep_existing;
        let delivery = Delivery { body, len: Some(meta.size), custom: meta.custom, keep_existing };
        self.deliver(to.0, to.1, delivery).await
    }

    /// An object is its own copy already: `latest` refreshes the cached copy, `sync` may drop it
    /// too.
    async fn copy_to_itself(
        &self,
        (info, name): (&BucketInfo, &str),
        how: CopyOptions,
    ) -> Result<Option<u64>> {
        if !info.has_backend() {
            self.reads().head(info, name).await?;
            return Ok(None);
        }
        match self.source(info, name, how).await {
            Err(e) if how.sync && e.code == ErrorCode::ObjectNotFound => {
                self.cold_cache().forget_copy(info, name).await?;
                Err(e)
            }
            found => found.map(|_| None),
        }
    }

    async fn open_source(
        &self,
        info: &BucketInfo,
        name: &str,
        how: CopyOptions,
    ) -> Result<(ObjectMeta, BodyStream)> {
        let found = self.source(info, name, how).await?;
        let meta = found.meta().clone();
        let body = read_first_chunk(found.stream(ByteRange::whole(meta.size))).await?;
        Ok((meta, body))
    }

    /// Opens the source. An uncached source is read without caching it: a copy does not predict
    /// reads.
    async fn source(&self, info: &BucketInfo, name: &str, how: CopyOptions) -> Result<Found> {
        if !info.has_backend() {
            return self.reads().get(info, name).await;
        }
        let cached = self.store().get(info.id, name).await?;
        let Some(record) = cached else { return self.reads().pass_through(info, name).await };
        if how.latest || how.sync {
            let remote = self.cold_cache().stat(info, name).await?;
            if !remote.has_version() || remote.version != record.meta.backend_version {
                return self.reads().pass_through(info, name).await;
            }
        }
        match self.reads().get_local(info, name).await {
            // Dropped meanwhile.
            Err(e) if e.code == ErrorCode::ObjectNotFound => {
                self.reads().pass_through(info, name).await
            }
            found => found,
        }
    }

    /// Renames a native object. A write of the old name in between is not lost.
    pub(crate) async fn rename(&self, info: &BucketInfo, name: &str, to: &str) -> Result<()> {
        info.check_access(BucketChange::Rename)?;
        if info.has_backend() {
            return Err(Error::unsupported(format!(
                "objects of \"{}\" cannot be renamed: its backend knows them by their names",
                info.bucket
            ))
            .hint("copy the object and delete the old one"));
        }
        if name == to {
            let uri = info.bucket.object_uri(name);
            return Err(Error::invalid(format!("cannot rename {uri} to itself, nothing to do")));
        }
        // A former owner may still have it.
        self.reads().head(info, name).await?;
        let before = self.store().get(info.id, name).await?;
        let before = before.ok_or_else(|| info.bucket.object_not_found(name))?;
        self.copy((info, name), (info, to), CopyOptions::default()).await?;
        let key = Key::new(info, name);
        let guard = self.local().locks.lock(&key).await;
        let now = self.store().get(info.id, name).await?;
        let same = |now: &Record| {
            (now.generation, &now.meta.custom) == (before.generation, &before.meta.custom)
        };
        if now.as_ref().is_some_and(same) {
            let (_, _guard) = self.replication().remove(info, name, guard).await?;
            self.local().lost.forget(&key);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::bucket::Freshness;

    use super::*;
    use crate::object::tests::{Bench, pattern, put};

    #[tokio::test]
    async fn a_copy_takes_what_is_cached_and_latest_what_the_backend_has() {
        let bench = Bench::new(1 << 30).await;
        let from = bench.bucket("from", true, Freshness::Never);
        let to = bench.bucket("to", false, Freshness::Never);
        let file = bench.folder().join("x");
        std::fs::write(&file, "first").unwrap();
        let copied = async |how| {
            let copied = bench.service.copy((&from, "x"), (&to, "y"), how).await;
            copied.map(drop)?;
            bench.read(&to, "y").await.map(|(bytes, _)| bytes)
        };
        let plain = CopyOptions::default();
        let latest = CopyOptions { latest: true, ..plain };
        let sync = CopyOptions { sync: true, ..plain };
        assert_eq!(copied(plain).await.unwrap(), "first");
        assert!(
            bench.service.reads().head_local(&from, "x").await.is_err(),
            "a copy caches nothing"
        );
        bench.read(&from, "x").await.unwrap();
        std::fs::write(&file, "second, longer").unwrap();
        assert_eq!(copied(plain).await.unwrap(), "first");
        assert_eq!(copied(latest).await.unwrap(), "second, longer");
        assert_eq!(bench.read(&from, "x").await.unwrap().0, "first");

        std::fs::remove_file(&file).unwrap();
        assert_eq!(copied(latest).await.unwrap_err().code, ErrorCode::ObjectNotFound);
        assert_eq!(bench.read(&to, "y").await.unwrap().0, "second, longer");
        assert_eq!(copied(sync).await.unwrap_err().code, ErrorCode::ObjectNotFound);
        assert!(bench.read(&to, "y").await.is_err());
        assert!(bench.read(&from, "x").await.is_err());
    }

    #[tokio::test]
    async fn what_is_to_be_kept_is_not_written_over() {
        let bench = Bench::new(1 << 30).await;
        let info = bench.bucket("b", false, Freshness::Never);
        for (name, bytes) in [("x", "new"), ("y", "old")] {
            let request = put(vec![Ok(bytes.into())]);
            bench.service.writes().put(&info, name, request).await.unwrap();
        }
        let keep = CopyOptions { keep_existing: true, ..CopyOptions::default() };
        let copied = async |to| bench.service.copy((&info, "x"), (&info, to), keep).await.unwrap();
        assert_eq!(copied("y").await, None);
        assert_eq!(bench.read(&info, "y").await.unwrap().0, "old");
        assert_eq!(copied("z").await, Some(3));
        assert_eq!(copied("x").await, None, "a copy of itself");
        assert_eq!(bench.read(&info, "x").await.unwrap().0, "new");
    }

    #[tokio::test]
    async fn a_rename_leaves_one_name() {
        let bench = Bench::new(1 << 30).await;
        let info = bench.bucket("b", false, Freshness::Never);
        let bytes = pattern(3 << 20);
        let request = put(vec![Ok(bytes.clone().into())]);
        bench.service.writes().put(&info, "old", request).await.unwrap();
        bench.service.rename(&info, "old", "new").await.unwrap();
        assert!(bench.read(&info, "new").await.unwrap().0 == bytes);
        assert!(bench.read(&info, "old").await.is_err());
        let again = bench.service.rename(&info, "old", "new").await.unwrap_err();
        assert_eq!(again.code, ErrorCode::ObjectNotFound);
        let same = bench.service.rename(&info, "new", "new").await.unwrap_err();
        assert_eq!(same.code, ErrorCode::InvalidArgument);
        let backed = bench.bucket("f", true, Freshness::Never);
        let refused = bench.service.rename(&backed, "x", "y").await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Unsupported);
    }
}
