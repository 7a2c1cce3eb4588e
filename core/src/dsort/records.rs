//! The metadata of all records: 16 bytes for each record, 24 bytes and its name for each member,
//! and for an order by content 8 bytes for each number. No data of the members.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::spec::{ContentType, DsortSpec, Reaction};
use crate::error::{Error, ErrorCode, Result};
use crate::shard::{Stat, sample};

/// Maximum bytes of a member that is a key.
pub const MAX_KEY: u64 = 4096;

/// The records of the input shards, in the order of the shards and of their first members.
#[derive(Default)]
pub struct Records {
    shards: Vec<String>,
    records: Vec<Record>,
    /// Names of all members, concatenated.
    names: String,
    members: Vec<MemberAt>,
    keys: Keys,
}

struct Record {
    shard: u32,
    /// Its first member; they end where those of the next record begin.
    first: u32,
    /// Length of the key in the first member's name.
    key: u32,
}

struct MemberAt {
    /// End of its name.
    end: u64,
    size: u64,
    stat: Stat,
}

/// Keys of an order by content, parallel to the records.
#[derive(Default)]
enum Keys {
    #[default]
    None,
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<Box<str>>),
}

/// The records that a shard added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub records: u64,
    pub members: u64,
    /// Bytes of the members, unpacked.
    pub bytes: u64,
    /// Members that were left out because an earlier one has the same name.
    pub duplicates: u64,
}

impl Records {
    /// Adds the members of the next shard: name, size, and time and mode of each.
    pub fn add_shard(
        &mut self,
        shard: &str,
        members: &[(String, u64, Stat)],
        duplicated: Reaction,
        warnings: &mut Vec<String>,
    ) -> Result<Added> {
        let total = self.members.len() + members.len();
        if total >= u32::MAX as usize || self.shards.len() >= u32::MAX as usize {
            return Err(Error::new(ErrorCode::Unprocessable, "the input has too many members")
                .hint("sort it in several jobs"));
        }
        let mut added = Added::default();
        let mut names = HashSet::with_capacity(members.len());
        let mut groups: HashMap<&str, u32> = HashMap::new();
        // (record, member), both numbered in input order.
        let mut order: Vec<(u32, u32)> = Vec::with_capacity(members.len());
        for (number, (name, size, _)) in members.iter().enumerate() {
            if !names.insert(name.as_str()) {
                duplicated.to(warnings, || {
                    Error::new(
                        ErrorCode::Unprocessable,
                        format!("shard \"{shard}\" has two members named \"{name}\""),
                    )
                    .hint("duplicated_records: ignore or warn keeps the first")
                })?;
                added.duplicates += 1;
                continue;
            }
            let next = groups.len() as u32;
            let group = *groups.entry(sample::split(name).0).or_insert(next);
            order.push((group, number as u32));
            added.members += 1;
            added.bytes += size;
        }
        order.sort_unstable();
        added.records = groups.len() as u64;
        let number = self.shards.len() as u32;
        self.shards.push(shard.to_owned());
        for same in order.chunk_by(|a, b| a.0 == b.0) {
            let first = self.members.len() as u32;
            for &(_, member) in same {
                let (name, size, stat) = &members[member as usize];
                self.names.push_str(name);
                let end = self.names.len() as u64;
                self.members.push(MemberAt { end, size: *size, stat: *stat });
            }
            let key = sample::split(&members[same[0].1 as usize].0).0.len() as u32;
            self.records.push(Record { shard: number, first, key });
        }
        Ok(added)
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Memory in bytes.
    pub fn memory(&self) -> u64 {
        let keys = match &self.keys {
            Keys::None => 0,
            Keys::Int(keys) => size_of_val(&keys[..]),
            Keys::Float(keys) => size_of_val(&keys[..]),
            Keys::Text(keys) => {
                size_of_val(&keys[..]) + keys.iter().map(|k| k.len()).sum::<usize>()
            }
        };
        // Includes the order of the records.
        let record = size_of::<Record>() + size_of::<u32>();
        let members = self.members.len() * size_of::<MemberAt>() + self.names.len();
        (self.records.len() * record + members + keys) as u64
    }

    /// The input shards, in their order.
    pub fn shards(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().map(String::as_str)
    }

    pub(super) fn shard_number(&self, record: u32) -> u32 {
        self.records[record as usize].shard
    }

    /// The input shard of a record.
    pub fn shard(&self, record: u32) -> &str {
        &self.shards[self.shard_number(record) as usize]
    }

    /// The key: the common part of its members' names, up to their extensions.
    pub fn key(&self, record: u32) -> &str {
        let at = &self.records[record as usize];
        &self.name(at.first)[..at.key as usize]
    }

    /// Names and sizes of its members, in the order of their shard.
    pub fn members(&self, record: u32) -> impl ExactSizeIterator<Item = (&str, u64)> + Clone {
        self.numbers(record).map(|m| (self.name(m), self.members[m as usize].size))
    }

    /// Times and modes of its members, in the same order.
    pub(super) fn stats(&self, record: u32) -> impl ExactSizeIterator<Item = Stat> {
        self.numbers(record).map(|m| self.members[m as usize].stat)
    }

    fn numbers(&self, record: u32) -> Range<u32> {
        let first = self.records[record as usize].first;
        let next = self.records.get(record as usize + 1);
        first..next.map_or(self.members.len() as u32, |r| r.first)
    }

    pub(super) fn bytes(&self, record: u32) -> u64 {
        self.members(record).map(|(_, size)| size).sum()
    }

    fn name(&self, member: u32) -> &str {
        let member = member as usize;
        let start = member.checked_sub(1).map_or(0, |before| self.members[before].end);
        &self.names[start as usize..self.members[member].end as usize]
    }

    /// The member of a record that contains its key, for an order by content.
    pub fn key_member(&self, record: u32, ext: &str) -> Option<(&str, u64)> {
        let ext = ext.strip_prefix('.').unwrap_or(ext);
        self.members(record).find(|(name, _)| sample::split(name).1 == ext)
    }

    /// Refuses records without such a member, naming some of them, and keys that are too large.
    pub fn check_keys(&self, ext: &str) -> Result<()> {
        let mut missing = Vec::new();
        for record in 0..self.len() as u32 {
            match self.key_member(record, ext) {
                None => missing.push(record),
                Some((_, size)) if size <= MAX_KEY => {}
                Some((name, size)) => {
                    let shard = self.shard(record);
                    let text =
                        format!("{name} in {shard} has {size} bytes; a key has at most {MAX_KEY}");
                    return Err(Error::new(ErrorCode::Unprocessable, text));
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let named = |r: &u32| format!("\"{}\" in {}", self.key(*r), self.shard(*r));
        let some: Vec<String> = missing.iter().take(3).map(named).collect();
        Err(Error::new(
            ErrorCode::Unprocessable,
            format!("{} records have no member {ext}: {}", missing.len(), some.join(", ")),
        )
        .hint("nothing was written; give each record its key, or sort by name"))
    }

    /// Adds the key of the next record.
    pub fn push_key(&mut self, kind: ContentType, content: &[u8]) -> Result<()> {
        if matches!(self.keys, Keys::None) {
            self.keys = match kind {
                ContentType::Int => Keys::Int(Vec::with_capacity(self.records.len())),
                ContentType::Float => Keys::Float(Vec::with_capacity(self.records.len())),
                ContentType::String => Keys::Text(Vec::with_capacity(self.records.len())),
            };
        }
        let text = std::str::from_utf8(content).ok();
        let next = match &mut self.keys {
            Keys::None => None,
            Keys::Int(keys) => text.and_then(|t| t.trim().parse().ok()).map(|k| keys.push(k)),
            Keys::Float(keys) => text
                .and_then(|t| t.trim().parse::<f64>().ok())
                .filter(|k| !k.is_nan())
                .map(|k| keys.push(k)),
            Keys::Text(keys) => text.map(|t| keys.push(t.into())),
        };
        let kind = match kind {
            ContentType::Int => "an integer",
            ContentType::Float => "a number",
            ContentType::String => "text in UTF-8",
        };
        next.ok_or_else(|| {
            let record = match &self.keys {
                Keys::None => 0,
                Keys::Int(keys) => keys.len(),
                Keys::Float(keys) => keys.len(),
                Keys::Text(keys) => keys.len(),
            } as u32;
            Error::new(
                ErrorCode::Unprocessable,
                format!(
                    "the key of \"{}\" in {} is not {kind}",
                    self.key(record),
                    self.shard(record)
                ),
            )
            .hint("nothing was written; look at content_key_type")
        })
    }

    /// Compares two records by the content of their keys.
    pub(super) fn by_content(&self, a: u32, b: u32) -> std::cmp::Ordering {
        let (a, b) = (a as usize, b as usize);
        match &self.keys {
            Keys::None => std::cmp::Ordering::Equal,
            Keys::Int(keys) => keys[a].cmp(&keys[b]),
            Keys::Float(keys) => keys[a].total_cmp(&keys[b]),
            Keys::Text(keys) => keys[a].cmp(&keys[b]),
        }
    }

    pub(super) fn has_keys(&self) -> bool {
        let keys = match &self.keys {
            Keys::None => 0,
            Keys::Int(keys) => keys.len(),
            Keys::Float(keys) => keys.len(),
            Keys::Text(keys) => keys.len(),
        };
        keys == self.records.len()
    }

    /// Refuses if the records need more memory than allowed.
    pub fn check_memory(&self, spec: &DsortSpec, total_memory: u64) -> Result<()> {
        let (needed, most) = (self.memory(), spec.memory.of(total_memory));
        if needed <= most {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Unprocessable,
            format!(
                "{} records of {} shards need {needed} bytes of memory, max_mem_usage is {most}",
                self.records.len(),
                self.shards.len()
            ),
        )
        .hint("nothing was written; allow more, or sort fewer shards in one job"))
    }
}
