//! Groups files into samples: same key, same sample. Also leaves out files and samples, and detects
//! two files of one name.

use std::collections::HashMap;

use super::key::{KeyAt, Keys, dotted_ext};
use super::listing::Listing;
use super::spec::{IshardSpec, MissingAction, OnDuplicate};
use super::totals::{Totals, Warnings};
use crate::error::{Error, ErrorCode, Result};

/// All files that are packed, sample after sample.
pub(super) struct Samples {
    pub(super) listing: Listing,
    pub(super) keys: Keys,
    /// By object; an object without a key is not packed.
    pub(super) at: Vec<KeyAt>,
    /// Objects, grouped by sample.
    pub(super) files: Vec<u32>,
    /// Start of each sample in `files`, and finally the end of the last one.
    pub(super) starts: Vec<u32>,
    /// Numbers of the files that would otherwise have the name of another.
    pub(super) renamed: HashMap<u32, u32>,
}

impl Samples {
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The objects of a sample.
    pub(super) fn files(&self, sample: u32) -> &[u32] {
        let sample = sample as usize;
        &self.files[self.starts[sample] as usize..self.starts[sample + 1] as usize]
    }

    pub(super) fn bytes(&self, sample: u32) -> u64 {
        self.files(sample).iter().map(|&f| self.listing.size(f)).sum()
    }

    /// Name and key position of a sample's first object.
    pub(super) fn head(&self, sample: u32) -> (&str, KeyAt) {
        self.named(self.files(sample)[0])
    }

    fn named(&self, object: u32) -> (&str, KeyAt) {
        (self.listing.name(object), self.at[object as usize])
    }

    pub(super) fn key(&self, sample: u32) -> String {
        let (name, at) = self.head(sample);
        self.keys.key(name, at)
    }

    /// The name of a file in its shard.
    pub(super) fn member(&self, object: u32) -> String {
        let (name, at) = self.named(object);
        let mut member = self.keys.key(name, at);
        if let Some(number) = self.renamed.get(&object) {
            member.push_str(&format!(".{number}"));
        }
        member.push_str(dotted_ext(name, at));
        member
    }
}

/// Groups the objects of a listing by their keys.
pub(super) fn gather(
    spec: &IshardSpec,
    listing: Listing,
    totals: &mut Totals,
    warnings: &mut Warnings,
) -> Result<Samples> {
    let keys = Keys::new(&spec.key, spec.ext_mode)?;
    let mut at = Vec::with_capacity(listing.len());
    let mut files = Vec::with_capacity(listing.len());
    for object in 0..listing.len() as u32 {
        match keys.find(listing.name(object)) {
            Some(found) => {
                at.push(found);
                files.push(object);
            }
            None => {
                // A folder's marker has no content.
                at.push(KeyAt::NONE);
                totals.skipped_folders += 1;
            }
        }
    }
    let mut samples =
        Samples { listing, keys, at, files, starts: Vec::new(), renamed: HashMap::new() };
    let mut files = std::mem::take(&mut samples.files);
    files.sort_by(|&a, &b| {
        let (x, y) = (samples.named(a), samples.named(b));
        let by_ext = || dotted_ext(x.0, x.1).cmp(dotted_ext(y.0, y.1));
        samples.keys.by_folder(x, y).then_with(by_ext).then(a.cmp(&b))
    });
    samples.files = files;
    keep(spec, &mut samples, totals, warnings)?;
    Ok(samples)
}

/// Marks the starts of samples, after removing files that are left out.
fn keep(
    spec: &IshardSpec,
    samples: &mut Samples,
    totals: &mut Totals,
    warnings: &mut Warnings,
) -> Result<()> {
    let expected = Expected::of(spec);
    let files = std::mem::take(&mut samples.files);
    let mut kept: Vec<u32> = Vec::with_capacity(files.len());
    let mut starts = vec![0];
    let mut problems = Problems::default();
    let same_key =
        |a: &u32, b: &u32| samples.keys.by_folder(samples.named(*a), samples.named(*b)).is_eq();
    let mut renamed = HashMap::new();
    for group in files.chunk_by(same_key) {
        let first = kept.len();
        kept.extend_from_slice(group);
        if let Some(expected) = &expected {
            expected.apply(
                spec.missing,
                samples,
                &mut kept,
                first,
                totals,
                &mut problems,
                warnings,
            );
        }
        duplicates(spec, samples, &mut kept, first, totals, &mut problems, &mut renamed);
        if kept.len() > first {
            starts.push(kept.len() as u32);
        }
    }
    if let Some(e) = problems.error(spec, totals) {
        return Err(e);
    }
    kept.shrink_to_fit();
    samples.files = kept;
    samples.starts = starts;
    samples.renamed = renamed;
    Ok(())
}

/// The first problem of each kind that ends the job.
#[derive(Default)]
struct Problems {
    missing: Option<String>,
    duplicate: Option<String>,
}

impl Problems {
    fn error(self, spec: &IshardSpec, totals: &Totals) -> Option<Error> {
        let refused = |text: String| Error::new(ErrorCode::Unprocessable, text);
        if let Some(first) = self.missing.filter(|_| spec.missing == MissingAction::Abort) {
            return Some(
                refused(format!(
                    "{first}; in all {} samples are incomplete and {} files are extra",
                    totals.incomplete_samples, totals.extra_files
                ))
                .hint("nothing was written; exclude them, or expect other extensions"),
            );
        }
        let first = self.duplicate?;
        Some(
            refused(format!("{first}; {} names in all are taken twice", totals.duplicates)).hint(
                "nothing was written; use the full name as key, or keep the first, or rename",
            ),
        )
    }
}

/// The extensions that each sample should have.
struct Expected {
    /// Without their dots.
    exts: Vec<String>,
    ignore_case: bool,
}

impl Expected {
    fn of(spec: &IshardSpec) -> Option<Self> {
        let plain = |e: &String| e.strip_prefix('.').unwrap_or(e).to_owned();
        let exts: Vec<String> = spec.sample_exts.iter().map(plain).collect();
        let needed = !exts.is_empty() && spec.missing != MissingAction::Ignore;
        needed.then_some(Self { exts, ignore_case: spec.ext_ignore_case })
    }

    /// Which of the expected extensions a file has.
    fn which(&self, samples: &Samples, object: u32) -> Option<usize> {
        let (name, at) = samples.named(object);
        let ext = dotted_ext(name, at).strip_prefix('.').unwrap_or("");
        self.exts.iter().position(|e| match self.ignore_case {
            true => e.to_lowercase() == ext.to_lowercase(),
            false => e == ext,
        })
    }

    /// Counts, reports or drops files that do not fit, of the sample that begins at `first` in
    /// `kept`.
    fn apply(
        &self,
        action: MissingAction,
        samples: &Samples,
        kept: &mut Vec<u32>,
        first: usize,
        totals: &mut Totals,
        problems: &mut Problems,
        warnings: &mut Warnings,
    ) {
        let mut has = vec![false; self.exts.len()];
        let mut extra = Vec::new();
        let (name, at) = samples.named(kept[first]);
        let key = || samples.keys.key(name, at);
        for &file in &kept[first..] {
            match self.which(samples, file) {
                Some(index) => has[index] = true,
                None => extra.push(file),
            }
        }
        for &file in &extra {
            totals.extra_files += 1;
            let text = || {
                format!("{} is none of the expected files of a sample", samples.listing.name(file))
            };
            match action {
                MissingAction::Warn => warnings.push(text),
                MissingAction::Abort => drop(problems.missing.get_or_insert_with(text)),
                MissingAction::Ignore | MissingAction::Exclude => {}
            }
        }
        let lacks: Vec<&str> =
            self.exts.iter().zip(&has).filter(|(_, has)| !**has).map(|(e, _)| &**e).collect();
        if !lacks.is_empty() {
            totals.incomplete_samples += 1;
            let text = || format!("sample {} lacks .{}", key(), lacks.join(" and ."));
            match action {
                MissingAction::Warn => warnings.push(text),
                MissingAction::Abort => drop(problems.missing.get_or_insert_with(text)),
                MissingAction::Ignore | MissingAction::Exclude => {}
            }
        }
        if action != MissingAction::Exclude {
            return;
        }
        let mut drop_file = |file: u32| {
            totals.dropped_files += 1;
            totals.dropped_bytes += samples.listing.size(file);
        };
        if lacks.is_empty() {
            extra.iter().for_each(|&file| drop_file(file));
            let kept_here: Vec<u32> =
                kept[first..].iter().copied().filter(|f| !extra.contains(f)).collect();
            kept.truncate(first);
            kept.extend(kept_here);
        } else {
            kept.drain(first..).for_each(&mut drop_file);
            totals.dropped_samples += 1;
        }
    }
}

/// Files of one sample that would have the same name: their extensions are equal and adjacent.
fn duplicates(
    spec: &IshardSpec,
    samples: &Samples,
    kept: &mut Vec<u32>,
    first: usize,
    totals: &mut Totals,
    problems: &mut Problems,
    renamed: &mut HashMap<u32, u32>,
) {
    let ext = |file: u32| {
        let (name, at) = samples.named(file);
        dotted_ext(name, at)
    };
    if kept[first..].windows(2).all(|two| ext(two[0]) != ext(two[1])) {
        return;
    }
    let group: Vec<u32> = kept.drain(first..).collect();
    for same in group.chunk_by(|a, b| ext(*a) == ext(*b)) {
        kept.push(same[0]);
        let mut number = 0;
        for &file in &same[1..] {
            totals.duplicates += 1;
            match spec.on_duplicate {
                OnDuplicate::Abort => drop(problems.duplicate.get_or_insert_with(|| {
                    format!(
                        "\"{}\" and \"{}\" would both be \"{}\" in a shard",
                        samples.listing.name(same[0]),
                        samples.listing.name(file),
                        samples.member(file)
                    )
                })),
                OnDuplicate::KeepFirst => {
                    totals.dropped_files += 1;
                    totals.dropped_bytes += samples.listing.size(file);
                }
                OnDuplicate::Rename => {
                    let taken = |n: u32| {
                        let wanted = format!(".{n}{}", ext(file));
                        group.iter().any(|&other| ext(other) == wanted)
                    };
                    number += 1;
                    while taken(number) {
                        number += 1;
                    }
                    renamed.insert(file, number);
                    kept.push(file);
                }
            }
        }
    }
}
