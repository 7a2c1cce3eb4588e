//! Reads many small members of one shard, with one opening of it, in the archive's order.

use bytes::Bytes;
use forebay_archive::Member;
use forebay_core::batch::BatchEntry;
use forebay_core::bucket::BucketInfo;
use forebay_core::shard::ArchiveFormat;
use forebay_core::size::ByteRange;
use forebay_core::{ErrorCode, Result};
use forebay_store::blocking;
use futures::future::join_all;

use super::{Opened, Shards, find, in_shard, missing};
use crate::object::Stored;

/// Members closer to each other than a block of the store are read at once.
const NEAR: u64 = 64 << 10;
/// Most bytes of one read.
const SPAN: u64 = 1 << 20;
/// Runs of members that are read, and their blocks checked, at the same time,
const RUNS: usize = 4;
/// of this many members at least.
const LEAST_RUN: usize = 64;

/// The result of each member: its bytes, an error, or `None`: it has to be read individually.
pub(crate) struct Bulk {
    pub(crate) members: Vec<Option<Result<Bytes>>>,
    /// How the shard was found, as in the metrics.
    pub(crate) result: &'static str,
}

impl Shards {
    /// The members that `entries` name of one shard: those of at most `most` bytes, and no more
    /// than `total` bytes together.
    pub(crate) async fn members(
        &self,
        info: &BucketInfo,
        name: &str,
        entries: &[&BatchEntry],
        most: u64,
        total: u64,
    ) -> Bulk {
        let opened = match self.open(info, name, None).await {
            Ok(opened) => opened,
            Err(e) => {
                // A failure of the shard concerns each of its members; individual reads would read
                // a bad archive as often.
                let is_transient = e.code.is_transient() || e.code == ErrorCode::ObjectChanged;
                let answer = (!is_transient).then_some(Err(e));
                return Bulk { members: vec![answer; entries.len()], result: "miss" };
            }
        };
        let mut members: Vec<Option<Result<Bytes>>> = vec![None; entries.len()];
        let mut places: Vec<(usize, ByteRange, Member)> = Vec::new();
        let mut left = total;
        for (at, entry) in entries.iter().enumerate() {
            let Some(member) = find(&opened.index, name, &entry.archpath) else {
                members[at] = Some(Err(missing(info, name, &entry.archpath)));
                continue;
            };
            if let Err(e) = member.check_readable() {
                members[at] = Some(Err(in_shard(info, name, e)));
                continue;
            }
            match entry.resolve(member.size) {
                Ok(range) if member.size <= most && member.size <= left => {
                    left -= member.size;
                    places.push((at, range, member.clone()));
                }
                Ok(_) => {}
                Err(e) => members[at] = Some(Err(e)),
            }
        }
        places.sort_by_key(|(_, range, member)| member.offset + range.start);
        let result = opened.stored.result();
        for (at, bytes) in self.read_in_order(opened, places).await {
            members[at] = bytes.map(Ok);
        }
        Bulk { members, result }
    }

    async fn read_in_order(
        &self,
        opened: Opened,
        places: Vec<(usize, ByteRange, Member)>,
    ) -> Vec<(usize, Option<Bytes>)> {
        if opened.key.format == ArchiveFormat::Tar {
            let stored = opened.stored;
            let places = places.into_iter().map(|(at, range, member)| {
                let start = member.offset + range.start;
                (at, ByteRange { start, end: start + range.len() })
            });
            let places: Vec<_> = places.collect();
            let run = places.len().div_ceil(RUNS).max(LEAST_RUN);
            // A run that fails returns nothing: its members are read individually.
            let runs = places.chunks(run).map(|run| {
                let (stored, run) = (stored.clone(), run.to_vec());
                blocking(move || Ok(read_merged(&stored, &run)))
            });
            let read = join_all(runs).await;
            return read.into_iter().flat_map(Result::unwrap_or_default).collect();
        }
        let mut read = Vec::with_capacity(places.len());
        for (at, range, member) in places {
            let data = match self.read(opened.clone(), &member).await {
                Ok(data) => data.read_all().await,
                Err(e) => Err(e),
            };
            let part = |b: Bytes| b.slice(range.start as usize..range.end as usize);
            read.push((at, data.ok().map(part)));
        }
        read
    }
}

/// Reads ranges of an object, sorted by their start. Blocks.
fn read_merged(stored: &Stored, places: &[(usize, ByteRange)]) -> Vec<(usize, Option<Bytes>)> {
    let mut all = Vec::with_capacity(places.len());
    let mut rest = places;
    while let Some((at, first)) = rest.first() {
        if let Some(bytes) = stored.read_recent(*first) {
            all.push((*at, Some(bytes)));
            rest = &rest[1..];
            continue;
        }
        let (mut end, mut useful) = (first.end, 0);
        let fits = |end: u64, range: &ByteRange| {
            range.start <= end + NEAR && range.end.max(end) - first.start <= SPAN
        };
        let mut count = 0;
        for (_, range) in rest {
            if count > 0 && !fits(end, range) {
                break;
            }
            end = end.max(range.end);
            useful += range.len();
            count += 1;
        }
        let start = first.start;
        let read = stored.read_blocking(ByteRange { start, end }).ok();
        for (at, range) in &rest[..count] {
            let part = read.as_ref().map(|read| {
                let part = read.slice((range.start - start) as usize..(range.end - start) as usize);
                // A slice would keep all of the read in memory.
                if useful * 2 < end - start { Bytes::copy_from_slice(&part) } else { part }
            });
            all.push((*at, part));
        }
        rest = &rest[count..];
    }
    all
}
