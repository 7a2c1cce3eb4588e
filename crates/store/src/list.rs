//! Listings over all disks: the buckets, and the objects of a bucket in the order of names.

use std::iter::Peekable;
use std::sync::Arc;

use fjall::Slice;
use forebay_core::Result;
use forebay_core::list_columns::{ColumnRow, Columns};
use forebay_core::object::RowKind;

use super::format::{self, Glance};
use super::index::Span;
use super::volume::Volume;
use super::{Record, Store, blocking};

impl Store {
    /// Records of a bucket in the order of names (bytewise): those that start with `prefix`, come
    /// after `after` and not after `until`; at most `limit`, and whether there are more.
    pub async fn list(
        &self,
        bucket_id: u64,
        prefix: &str,
        after: Option<&str>,
        until: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let span = Span::new(bucket_id, prefix, after, until);
        let volumes = self.disks.online();
        blocking(move || {
            let mut entries = entries(&volumes, &span);
            let mut rows = Vec::new();
            while rows.len() < limit {
                let Some(entry) = entries.next() else { return Ok((rows, false)) };
                let Entry { volume, key, value } = entry?;
                rows.push(volume.decode(&key, &value)?);
            }
            Ok((rows, entries.next().transpose()?.is_some()))
        })
        .await
    }

    /// As [`Self::list`], but of each object only size and time.
    pub async fn list_sizes(
        &self,
        bucket_id: u64,
        prefix: &str,
        after: Option<&str>,
        until: Option<&str>,
        limit: usize,
    ) -> Result<(Columns, bool)> {
        let span = Span::new(bucket_id, prefix, after, until);
        let volumes = self.disks.online();
        blocking(move || {
            let mut entries = entries(&volumes, &span);
            let mut rows = Columns::with_capacity(limit);
            while rows.len() < limit {
                let Some(entry) = entries.next() else { return Ok((rows, false)) };
                let entry = entry?;
                let (_, name) = format::parse_key(&entry.key)?;
                let Glance { size, mtime_ns, .. } = entry.glance()?;
                let kind = RowKind::Object;
                rows.push(ColumnRow { name, size, mtime_ns, kind, present: true });
            }
            Ok((rows, entries.next().transpose()?.is_some()))
        })
        .await
    }

    /// Ids of all buckets that have objects here.
    pub async fn buckets(&self) -> Result<Vec<u64>> {
        let volumes = self.disks.online();
        blocking(move || {
            let mut ids = Vec::new();
            for volume in volumes.iter() {
                ids.extend(volume.shared().index.buckets()?);
                ids.extend(volume.shared().partials.buckets());
            }
            ids.sort_unstable();
            ids.dedup();
            Ok(ids)
        })
        .await
    }
}

/// An entry of the index of one disk.
struct Entry<'a> {
    volume: &'a Volume,
    key: Slice,
    value: Slice,
}

impl Entry<'_> {
    fn glance(&self) -> Result<Glance> {
        self.volume.shared().index.glance(&self.value)
    }
}

/// Merges entries of several disks in the order of keys; of one key only the newest.
struct Entries<'a, I: Iterator> {
    disks: Vec<(&'a Volume, Peekable<I>)>,
}

fn entries<'a>(
    volumes: &'a [Arc<Volume>],
    span: &Span,
) -> Entries<'a, impl Iterator<Item = Result<(Slice, Slice)>>> {
    let entries = |volume: &'a Arc<Volume>| volume.shared().index.span(span).peekable();
    Entries { disks: volumes.iter().map(|v| (&**v, entries(v))).collect() }
}

impl<'a, I: Iterator<Item = Result<(Slice, Slice)>>> Entries<'a, I> {
    /// The disk with the first key. An error comes before every key.
    fn first(&mut self) -> Option<usize> {
        let mut first: Option<(usize, Slice)> = None;
        for (n, (_, entries)) in self.disks.iter_mut().enumerate() {
            match entries.peek() {
                None => {}
                Some(Err(_)) => return Some(n),
                Some(Ok((key, _))) if first.as_ref().is_none_or(|(_, least)| key < least) => {
                    first = Some((n, key.clone()));
                }
                Some(Ok(_)) => {}
            }
        }
        first.map(|(n, _)| n)
    }

    fn take(&mut self, disk: usize) -> Option<Result<Entry<'a>>> {
        let (volume, entries) = &mut self.disks[disk];
        let volume = *volume;
        Some(entries.next()?.map(|(key, value)| Entry { volume, key, value }))
    }
}

impl<'a, I: Iterator<Item = Result<(Slice, Slice)>>> Iterator for Entries<'a, I> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.disks.len() == 1 {
            return self.take(0);
        }
        let first = self.first()?;
        let mut newest = self.take(first)?;
        for disk in first + 1..self.disks.len() {
            let (Ok(entry), Some(Ok((key, _)))) = (&newest, self.disks[disk].1.peek()) else {
                continue;
            };
            if *key == entry.key {
                newest = self.take(disk)?.and_then(|other| newer(newest?, other));
            }
        }
        Some(newest)
    }
}

/// Of two entries of one key the newer one.
fn newer<'a>(one: Entry<'a>, other: Entry<'a>) -> Result<Entry<'a>> {
    Ok(if other.glance()?.sequence > one.glance()?.sequence { other } else { one })
}
