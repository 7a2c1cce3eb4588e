//! Shards: archives whose members are read one by one.
//!
//! [`index`] finds a shard's members once and keeps the result. [`member`] reads them, by offset
//! where the format allows it, else through [`decoders`] that continue where the one before
//! stopped. Every response comes from one commit of the shard: it is opened first, and its index is
//! looked up by that commit's generation.

mod append;
mod bulk;
mod decoders;
mod index;
mod list;
mod member;
mod source;
#[cfg(test)]
mod tests;
mod unpacked;
pub(crate) mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_archive::{Limits, Member, ShardIndex};
use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::shard::{ArchiveFormat, MemberMatcher};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_store::{Record, blocking};

use self::decoders::Decoders;
use self::index::Indexes;
use self::unpacked::UnpackedShards;
use crate::object::{ObjectService, Stored, Turns};

pub(crate) use append::NewMember;
pub(crate) use member::MemberData;

/// Reads members of shards; cheap to clone.
#[derive(Clone)]
pub(crate) struct Shards(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    lifecycle: Lifecycle,
    limits: Limits,
    indexes: Indexes,
    decoders: Decoders,
    unpacked: UnpackedShards,
    /// Indexes made by reading a shard.
    built: AtomicU64,
}

/// One commit of a shard, read as one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ShardKey {
    disk: usize,
    generation: u64,
    format: ArchiveFormat,
}

impl ShardKey {
    fn of(record: &Record, format: ArchiveFormat) -> Self {
        Self { disk: record.disk, generation: record.generation, format }
    }
}

/// A shard that is open, with its index.
#[derive(Clone)]
struct Opened {
    key: ShardKey,
    stored: Stored,
    index: Arc<ShardIndex>,
}

impl Shards {
    pub(crate) fn new(objects: ObjectService, lifecycle: Lifecycle) -> Self {
        Self(Arc::new(Inner {
            objects,
            lifecycle,
            limits: Limits::default(),
            indexes: Indexes::default(),
            decoders: Decoders::default(),
            unpacked: UnpackedShards::default(),
            built: AtomicU64::new(0),
        }))
    }

    /// The members of a shard. The object is fetched first if it is not on this target; `mime`
    /// overrides the format that its name and its first bytes imply.
    pub(crate) async fn index(
        &self,
        info: &BucketInfo,
        name: &str,
        mime: Option<ArchiveFormat>,
    ) -> Result<Arc<ShardIndex>> {
        Ok(self.open(info, name, mime).await?.index)
    }

    /// As [`Self::index`], with the metadata of the commit that the index is of.
    pub(crate) async fn described(
        &self,
        info: &BucketInfo,
        name: &str,
        mime: Option<ArchiveFormat>,
    ) -> Result<(ObjectMeta, Arc<ShardIndex>)> {
        let opened = self.open(info, name, mime).await?;
        Ok((opened.stored.meta(), opened.index))
    }

    /// The member of this name. A leading slash is ignored, and so are the shard's own name and a
    /// slash.
    pub(crate) async fn member(
        &self,
        info: &BucketInfo,
        name: &str,
        archpath: &str,
        mime: Option<ArchiveFormat>,
    ) -> Result<MemberData> {
        let mut turns = Turns::default();
        loop {
            let done = self.try_member(info, name, archpath, mime).await;
            if !turns.again(&done) {
                return done;
            }
        }
    }

    async fn try_member(
        &self,
        info: &BucketInfo,
        name: &str,
        archpath: &str,
        mime: Option<ArchiveFormat>,
    ) -> Result<MemberData> {
        let place = |index: &ShardIndex| {
            let member = find(index, name, archpath).filter(|m| !m.is_sparse)?;
            Some((member.offset, member.size))
        };
        if let Some(data) = self.small_member(info, name, mime, place).await? {
            return Ok(data);
        }
        let opened = self.open(info, name, mime).await?;
        let member = find(&opened.index, name, archpath).cloned();
        let member = member.ok_or_else(|| missing(info, name, archpath))?;
        self.read(opened, &member).await.map_err(|e| in_shard(info, name, e))
    }

    /// Members whose names match, in the archive's order.
    pub(crate) async fn matching(
        &self,
        info: &BucketInfo,
        name: &str,
        matcher: &MemberMatcher,
        mime: Option<ArchiveFormat>,
    ) -> Result<Vec<Member>> {
        let index = self.index(info, name, mime).await?;
        let matcher = matcher.clone();
        // An expression over a hundred thousand names takes long.
        blocking(move || {
            Ok(index.members.iter().filter(|m| matcher.matches(&m.name)).cloned().collect())
        })
        .await
    }

    /// The data of a member that [`Self::index`] or [`Self::matching`] returned. If the shard was
    /// replaced since, this is an error, not some other bytes.
    pub(crate) async fn data(
        &self,
        info: &BucketInfo,
        name: &str,
        member: &Member,
        mime: Option<ArchiveFormat>,
    ) -> Result<MemberData> {
        let place = |index: &ShardIndex| {
            let is_there = !member.is_sparse && index.has(member);
            is_there.then_some((member.offset, member.size))
        };
        if let Some(data) = self.small_member(info, name, mime, place).await? {
            return Ok(data);
        }
        let opened = self.open(info, name, mime).await?;
        if !opened.index.has(member) {
            let shard = info.bucket.object_uri(name);
            let text = format!("{shard} was replaced while its members were read");
            return Err(Error::new(ErrorCode::ObjectChanged, text));
        }
        self.read(opened, member).await.map_err(|e| in_shard(info, name, e))
    }
}

/// Finds a member by the name that a client gives.
fn find<'a>(index: &'a ShardIndex, shard: &str, archpath: &str) -> Option<&'a Member> {
    let plain = archpath.trim_start_matches('/');
    let within = plain.strip_prefix(shard).and_then(|rest| rest.strip_prefix('/'));
    let dotted = || index.requested(&format!("./{}", within.unwrap_or(plain)));
    index
        .requested(archpath)
        .or_else(|| index.requested(plain))
        .or_else(|| within.and_then(|name| index.requested(name)))
        .or_else(dotted)
}

fn missing(info: &BucketInfo, name: &str, archpath: &str) -> Error {
    let text = format!("{archpath} in {} does not exist", info.bucket.object_uri(name));
    Error::new(ErrorCode::MemberNotFound, text)
}

/// Adds the shard's name to an error.
fn in_shard(info: &BucketInfo, name: &str, error: Error) -> Error {
    let uri = info.bucket.object_uri(name);
    if error.code.is_transient() || error.message.contains(&uri) {
        return error;
    }
    Error { message: format!("{uri}: {}", error.message), ..error }
}
