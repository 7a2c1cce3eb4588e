//! Scans of the records: of a bucket's names, of pages of keys, of the whole disk.

use std::collections::BTreeSet;
use std::ops::Bound;

use forebay_core::Result;

use super::Index;
use super::key_limit::{check_key, within_key_limit};
use super::marks::MARK;
use crate::format;
use crate::record::Record;

/// Which names of a bucket a scan visits.
#[derive(Clone, Debug, Default)]
pub struct Span {
    pub(crate) bucket_id: u64,
    pub(crate) prefix: String,
    /// Names strictly greater than this.
    pub(crate) after: Option<String>,
    /// Names not greater than this.
    pub(crate) until: Option<String>,
}

impl Span {
    /// Names with `prefix`, greater than `after` and not greater than `until`.
    pub fn new(bucket_id: u64, prefix: &str, after: Option<&str>, until: Option<&str>) -> Self {
        Self {
            bucket_id,
            prefix: prefix.to_owned(),
            after: after.map(str::to_owned),
            until: until.map(str::to_owned),
        }
    }
}

impl Index {
    /// At most `limit` records in the order of keys, those after `after`.
    pub(crate) fn page(&self, after: Option<Vec<u8>>, limit: usize) -> Result<Vec<Record>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.entries(start).take(limit).map(|entry| {
            let (key, value) = entry?;
            self.decode(&key, &value)
        });
        page.collect()
    }

    /// Visits the records of a span in the order of names.
    pub(crate) fn scan(&self, span: &Span) -> impl Iterator<Item = Result<Record>> + '_ {
        self.span(span).map(|entry| {
            let (key, value) = entry?;
            self.decode(&key, &value)
        })
    }

    /// Visits the entries of a span in the order of names, not decoded.
    pub(crate) fn span(
        &self,
        span: &Span,
    ) -> impl Iterator<Item = Result<(fjall::Slice, fjall::Slice)>> + '_ {
        let first = format::key(span.bucket_id, &span.prefix);
        // No key begins with a prefix that is longer than a key may be, and no key follows it.
        let too_long = check_key(&first).err();
        let start = match &span.after {
            Some(after) if format::key(span.bucket_id, after) >= first => {
                Bound::Excluded(format::key(span.bucket_id, after))
            }
            _ => Bound::Included(first.clone()),
        };
        let last = span.until.as_ref().map(|until| format::key(span.bucket_id, until));
        let entries = too_long.is_none().then(|| self.entries(start)).into_iter().flatten();
        too_long.map(Err).into_iter().chain(entries).take_while(move |entry| match entry {
            Ok((key, _)) => {
                key.starts_with(&first) && last.as_ref().is_none_or(|last| key[..] <= last[..])
            }
            Err(_) => true,
        })
    }

    /// Visits every record of the disk.
    pub(crate) fn all(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.entries(Bound::Unbounded).map(|entry| {
            let (key, value) = entry?;
            self.decode(&key, &value)
        })
    }

    /// Ids of all buckets that have an object here.
    pub(crate) fn buckets(&self) -> Result<Vec<u64>> {
        let mut out = BTreeSet::new();
        let mut start = Bound::Unbounded;
        while let Some(entry) = self.entries(start).next() {
            let (key, _) = entry?;
            let (id, _) = format::parse_key(&key)?;
            out.insert(id);
            match id.checked_add(1) {
                Some(next) => start = Bound::Included(format::key(next, "")),
                None => break,
            }
        }
        Ok(out.into_iter().collect())
    }

    fn entries(
        &self,
        start: Bound<Vec<u8>>,
    ) -> impl Iterator<Item = Result<(fjall::Slice, fjall::Slice)>> + '_ {
        let start = within_key_limit(start);
        self.records
            .range::<Vec<u8>, _>((start, Bound::Unbounded))
            .map(|guard| guard.into_inner().map_err(|e| self.failed(&e)))
            .filter(|entry| !matches!(entry, Ok((key, _)) if **key == *MARK))
    }
}
