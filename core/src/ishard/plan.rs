//! The plan: every shard with its name and its members, made before anything is written.

use std::collections::HashSet;

use super::cut::{Draft, cut};
use super::listing::Listing;
use super::sample::{Samples, gather};
use super::spec::{IshardSpec, Overwrite};
use super::totals::{Totals, Warnings};
use crate::error::{Error, ErrorCode, Result};
use crate::shard_names;

/// One shard of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedShard<'a> {
    pub name: &'a str,
    pub samples: u64,
    pub files: u64,
    /// Bytes of the files, without the archive's overhead.
    pub bytes: u64,
}

/// One file of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile<'a> {
    /// The object that it comes from.
    pub source: &'a str,
    /// Its name in the shard: the sample's key and its own extension.
    pub member: String,
    pub size: u64,
}

/// The assignment of files to shards.
pub struct Plan {
    pub(super) samples: Samples,
    order: Vec<u32>,
    shards: Vec<(String, Draft)>,
    pub totals: Totals,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Plans a job over the objects of its source. All reasons to refuse a job are checked here.
pub fn plan(spec: &IshardSpec, listing: Listing) -> Result<Plan> {
    spec.check()?;
    let mut totals = Totals { listed: listing.len() as u64, ..Totals::default() };
    if listing.is_empty() {
        return Err(Error::new(
            ErrorCode::ObjectNotFound,
            format!("{} has no objects", spec.source.object_uri(&spec.prefix)),
        ));
    }
    let mut warnings = Warnings::default();
    let samples = gather(spec, listing, &mut totals, &mut warnings)?;
    let sequence = cut(spec, &samples, &mut totals)?;
    if sequence.drafts.is_empty() {
        return Err(Error::new(
            ErrorCode::Unprocessable,
            format!("nothing is left to pack of {} objects", totals.listed),
        )
        .hint(warnings.finish(&totals).join("; ")));
    }
    let names = name_all(spec, &sequence.drafts)?;
    check_names(spec, &samples.listing, &names)?;
    for draft in &sequence.drafts {
        totals.shards += 1;
        totals.samples += u64::from(draft.samples.end - draft.samples.start);
        totals.files += draft.files;
        totals.bytes += draft.bytes;
    }
    let shards = names.into_iter().zip(sequence.drafts).collect();
    let notes = warnings.finish(&totals);
    Ok(Plan { samples, order: sequence.order, shards, totals, notes })
}

/// A name for each shard, in order.
fn name_all(spec: &IshardSpec, drafts: &[Draft]) -> Result<Vec<String>> {
    let rules = spec.ekm.0.iter().map(|rule| rule.template.as_str());
    let templates: Vec<&str> = rules.chain([spec.template.as_str()]).collect();
    let rules: Vec<usize> = drafts.iter().map(|d| d.rule).collect();
    let names = shard_names::name_all(&templates, &rules)?;
    Ok(names.iter().map(|name| spec.shard_name(name)).collect())
}

/// Checks that the names are distinct, and that none is an object that is being read.
fn check_names(spec: &IshardSpec, listing: &Listing, names: &[String]) -> Result<()> {
    let manifest = spec.manifest_name();
    shard_names::check_distinct(names.iter().chain(&manifest).map(String::as_str))?;
    for name in names.iter().chain(&manifest) {
        if spec.source == spec.destination && listing.contains(name) {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("{} is among the objects to be packed", spec.source.object_uri(name)),
            )
            .hint("choose another destination or template"));
        }
    }
    Ok(())
}

impl Plan {
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    pub fn shard(&self, index: usize) -> PlannedShard<'_> {
        let (name, draft) = &self.shards[index];
        PlannedShard {
            name,
            samples: u64::from(draft.samples.end - draft.samples.start),
            files: draft.files,
            bytes: draft.bytes,
        }
    }

    pub fn shards(&self) -> impl Iterator<Item = PlannedShard<'_>> {
        (0..self.len()).map(|i| self.shard(i))
    }

    pub(super) fn sample_ids(&self, index: usize) -> &[u32] {
        let range = &self.shards[index].1.samples;
        &self.order[range.start as usize..range.end as usize]
    }

    /// The keys of a shard's samples, in order.
    pub fn keys(&self, index: usize) -> impl Iterator<Item = String> + '_ {
        self.sample_ids(index).iter().map(|&sample| self.samples.key(sample))
    }

    /// The files of a shard, in order, those of a sample together.
    pub fn files(&self, index: usize) -> impl Iterator<Item = PlannedFile<'_>> {
        let files = self.sample_ids(index).iter().flat_map(|&s| self.samples.files(s));
        files.map(|&object| self.file(object))
    }

    /// The samples of a shard, in order: the key of each, and its files.
    pub fn samples(&self, index: usize) -> impl Iterator<Item = (String, Vec<PlannedFile<'_>>)> {
        self.sample_ids(index).iter().map(|&sample| {
            let files = self.samples.files(sample).iter().map(|&object| self.file(object));
            (self.samples.key(sample), files.collect())
        })
    }

    fn file(&self, object: u32) -> PlannedFile<'_> {
        PlannedFile {
            source: self.samples.listing.name(object),
            member: self.samples.member(object),
            size: self.samples.listing.size(object),
        }
    }

    /// The names of all objects that will be written.
    pub fn outputs(&self, spec: &IshardSpec) -> Outputs<'_> {
        let shards = self.shards.iter().map(|(name, _)| name.as_str());
        Outputs { shards: shards.collect(), manifest: spec.manifest_name() }
    }

    /// The common prefix of all output names: where to list existing objects.
    pub fn output_prefix(&self, spec: &IshardSpec) -> String {
        let manifest = spec.manifest_name();
        let shards = self.shards.iter().map(|(name, _)| name.as_str());
        shard_names::common_prefix(shards.chain(manifest.as_deref()))
    }
}

/// The names that a job will write.
pub struct Outputs<'a> {
    shards: HashSet<&'a str>,
    manifest: Option<String>,
}

impl Outputs<'_> {
    /// Refuses if the destination has an object of this name that must not be replaced.
    pub fn refuse(&self, spec: &IshardSpec, existing: &str) -> Result<()> {
        let wanted = self.shards.contains(existing) || self.manifest.as_deref() == Some(existing);
        if !wanted || spec.overwrite == Overwrite::Always {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Conflict,
            format!("{} exists already", spec.destination.object_uri(existing)),
        )
        .hint("nothing was written; allow overwriting, or choose another prefix or template"))
    }
}
