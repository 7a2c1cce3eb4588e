//! From samples to shards: orders the samples, and cuts the sequence into shards.

use std::ops::Range;

use regex_lite::Regex;
use xxhash_rust::xxh64::Xxh64;

use super::key::{compile, folder};
use super::sample::Samples;
use super::spec::{EkmUnmatched, IshardSpec, ShardSize, Sort};
use super::totals::Totals;
use crate::error::{Error, ErrorCode, Result};

/// A shard without a name yet.
pub(super) struct Draft {
    /// The template of its name: a rule of the external key map or, after them, the job's own.
    pub(super) rule: usize,
    /// Its samples, as positions in the sequence.
    pub(super) samples: Range<u32>,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// All samples in the order of their shards, and the start of each shard.
pub(super) struct Sequence {
    pub(super) order: Vec<u32>,
    pub(super) drafts: Vec<Draft>,
}

pub(super) fn cut(spec: &IshardSpec, samples: &Samples, totals: &mut Totals) -> Result<Sequence> {
    let mut cutter = Cutter {
        samples,
        size: spec.size,
        rule: spec.ekm.0.len(),
        out: Sequence { order: Vec::with_capacity(samples.len()), drafts: Vec::new() },
    };
    if !spec.ekm.is_empty() {
        for (rule, mut group) in by_rule(spec, samples, totals)?.into_iter().enumerate() {
            sort(spec.sort, samples, &mut group);
            cutter.rule = rule;
            cutter.fill_all(group);
        }
    } else if spec.sort != Sort::Folders {
        let mut all: Vec<u32> = (0..samples.len() as u32).collect();
        sort(spec.sort, samples, &mut all);
        cutter.fill_all(all);
    } else {
        // Samples are in folder order already.
        let all: Vec<u32> = (0..samples.len() as u32).collect();
        let folder_of = |s: &u32| {
            let (name, at) = samples.head(*s);
            folder(name, at)
        };
        let mut groups = all.chunk_by(|a, b| folder_of(a) == folder_of(b));
        match spec.collapse && !samples.keys.strips_slashes() {
            true => cutter.collapsing(groups.map(|g| (folder_of(&g[0]), g))),
            false if samples.keys.strips_slashes() => cutter.fill_all(all),
            false => groups.by_ref().for_each(|g| cutter.fill_all(g.to_vec())),
        }
    }
    Ok(cutter.out)
}

/// The samples of each rule, and last the samples without a rule, if they are wanted.
fn by_rule(spec: &IshardSpec, samples: &Samples, totals: &mut Totals) -> Result<Vec<Vec<u32>>> {
    let compiled = |patterns: &Vec<String>| patterns.iter().map(|p| compile(p)).collect();
    let rules: Vec<Vec<Regex>> =
        spec.ekm.0.iter().map(|r| compiled(&r.patterns)).collect::<Result<_>>()?;
    let mut groups = vec![Vec::new(); rules.len() + 1];
    let mut first_unmatched = None;
    for sample in 0..samples.len() as u32 {
        let names = samples.files(sample).iter().map(|&f| samples.listing.name(f));
        let matches = |rule: &Vec<Regex>| {
            names.clone().any(|name| rule.iter().any(|pattern| pattern.is_match(name)))
        };
        match rules.iter().position(matches) {
            Some(rule) => groups[rule].push(sample),
            None => {
                totals.unmatched_samples += 1;
                first_unmatched.get_or_insert(sample);
                if spec.ekm_unmatched == EkmUnmatched::Template {
                    groups[rules.len()].push(sample);
                } else {
                    totals.dropped_samples += 1;
                    totals.dropped_files += samples.files(sample).len() as u64;
                    totals.dropped_bytes += samples.bytes(sample);
                }
            }
        }
    }
    match first_unmatched {
        Some(sample) if spec.ekm_unmatched == EkmUnmatched::Abort => Err(Error::new(
            ErrorCode::Unprocessable,
            format!(
                "no rule of the external key map matches \"{}\"; {} samples in all match none",
                samples.head(sample).0,
                totals.unmatched_samples
            ),
        )
        .hint("nothing was written; add a rule, or skip them")),
        _ => Ok(groups),
    }
}

fn sort(sort: Sort, samples: &Samples, group: &mut [u32]) {
    let by_key = |a: &u32, b: &u32| samples.keys.by_key(samples.head(*a), samples.head(*b));
    match sort {
        Sort::Folders | Sort::Alpha { descending: false } => group.sort_by(by_key),
        Sort::Alpha { descending: true } => group.sort_by(|a, b| by_key(b, a)),
        Sort::Shuffle { seed } => {
            let hash = |sample: &u32| {
                let mut hasher = Xxh64::new(seed);
                hasher.update(samples.key(*sample).as_bytes());
                hasher.digest()
            };
            // Keys differ, so the order depends on nothing else.
            let mut hashed: Vec<(u64, u32)> = group.iter().map(|s| (hash(s), *s)).collect();
            hashed.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| by_key(&a.1, &b.1)));
            group.iter_mut().zip(hashed).for_each(|(slot, (_, sample))| *slot = sample);
        }
    }
}

struct Cutter<'a> {
    samples: &'a Samples,
    size: ShardSize,
    rule: usize,
    out: Sequence,
}

impl Cutter<'_> {
    /// Makes full shards of a sequence and returns the samples that do not fill one.
    fn fill(&mut self, sequence: Vec<u32>) -> Vec<u32> {
        let mut done = 0;
        let (mut first, mut files, mut bytes) = (0, 0, 0);
        for (i, &sample) in sequence.iter().enumerate() {
            files += self.samples.files(sample).len() as u64;
            bytes += self.samples.bytes(sample);
            let full = match self.size {
                ShardSize::Count(n) => (i + 1 - first) as u64 >= n,
                ShardSize::Bytes(n) => bytes >= n,
            };
            if full {
                self.close(&sequence[first..=i], files, bytes);
                (first, files, bytes) = (i + 1, 0, 0);
                done = i + 1;
            }
        }
        let mut sequence = sequence;
        sequence.drain(..done);
        sequence
    }

    /// The same, with a last shard of the remaining samples.
    fn fill_all(&mut self, sequence: Vec<u32>) {
        let rest = self.fill(sequence);
        if !rest.is_empty() {
            let files = rest.iter().map(|&s| self.samples.files(s).len() as u64).sum();
            let bytes = rest.iter().map(|&s| self.samples.bytes(s)).sum();
            self.close(&rest, files, bytes);
        }
    }

    fn close(&mut self, samples: &[u32], files: u64, bytes: u64) {
        let first = self.out.order.len() as u32;
        self.out.order.extend_from_slice(samples);
        let samples = first..self.out.order.len() as u32;
        self.out.drafts.push(Draft { rule: self.rule, samples, files, bytes });
    }

    /// Cuts folder by folder in post-order; samples that fill no shard move to the parent.
    fn collapsing<'a>(&mut self, groups: impl Iterator<Item = (&'a str, &'a [u32])>) {
        let mut open: Vec<(&str, Vec<u32>)> = vec![("", Vec::new())];
        for (path, group) in groups {
            while let Some((top, _)) = open.last()
                && !is_within(path, top)
            {
                self.close_folder(&mut open);
            }
            let known = open.last().map_or(0, |(top, _)| top.len());
            let inner = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > known);
            open.extend(inner.map(|at| (&path[..at], Vec::new())));
            match open.last_mut() {
                Some((top, own)) if *top == path => own.extend_from_slice(group),
                _ => open.push((path, group.to_vec())),
            }
        }
        while open.len() > 1 {
            self.close_folder(&mut open);
        }
        let rest = open.pop().map_or(Vec::new(), |(_, rest)| rest);
        self.fill_all(rest);
    }

    fn close_folder(&mut self, open: &mut Vec<(&str, Vec<u32>)>) {
        let Some((_, samples)) = open.pop() else { return };
        let rest = self.fill(samples);
        if let Some((_, parent)) = open.last_mut() {
            parent.extend(rest);
        }
    }
}

/// Whether `path` is the folder or is inside it.
fn is_within(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
