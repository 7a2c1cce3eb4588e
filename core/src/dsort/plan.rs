//! The plan: every output shard with its name and its records, made before anything is written.

use std::collections::HashSet;
use std::ops::Range;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh64::Xxh64;

use super::key_map::KeyMap;
use super::records::Records;
use super::spec::{Algorithm, DsortSpec, Overwrite};
use crate::error::{Error, ErrorCode, Result};
use crate::shard::{ArchiveFormat, Stat};
use crate::shard_names;
use crate::template::Ranges;

/// Lower bound of the assumed compression ratio.
const MIN_COMPRESSION_RATIO: f64 = 0.001;

/// Properties of the input shards besides their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Names without an object.
    pub missing: u64,
    pub duplicates: u64,
    /// For compressed shards: their bytes, and the bytes of their members.
    pub packed_bytes: u64,
    pub unpacked_bytes: u64,
}

/// Counts over a whole plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub inputs: u64,
    pub missing_inputs: u64,
    pub shards: u64,
    pub records: u64,
    pub members: u64,
    /// Bytes of the members.
    pub bytes: u64,
    /// Members that were left out because an earlier one has the same name.
    pub duplicates: u64,
    /// Records that were left out because the key map does not contain them.
    pub unmapped_records: u64,
}

/// One output shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedShard<'a> {
    pub name: &'a str,
    pub records: u64,
    pub members: u64,
    /// Bytes of the members, without the archive's overhead.
    pub bytes: u64,
}

/// One member of an output shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMember<'a> {
    /// The input shard that it comes from.
    pub source: &'a str,
    /// Its name, in the input and in the output.
    pub name: &'a str,
    pub size: u64,
    /// Its time and mode, in the input and in the output.
    pub stat: Stat,
}

struct Draft {
    name: String,
    /// Positions in the order.
    records: Range<usize>,
    members: u64,
    bytes: u64,
}

/// The assignment of records to output shards.
pub struct Plan {
    records: Records,
    order: Vec<u32>,
    shards: Vec<Draft>,
    /// Extension of the output, which determines its format.
    pub ext: String,
    pub totals: Totals,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Plans a job over the records of its input. All reasons to refuse a job are checked here.
pub fn plan(
    spec: &DsortSpec,
    map: Option<&KeyMap>,
    records: Records,
    inputs: Inputs,
    mut notes: Vec<String>,
) -> Result<Plan> {
    spec.check()?;
    let first = records.shards().next().ok_or_else(|| nothing(spec))?;
    if records.is_empty() {
        return Err(nothing(spec));
    }
    let ext = spec.output_extension(first)?;
    let mut order: Vec<u32> = (0..records.len() as u32).collect();
    sort(spec, &records, &mut order)?;

    let mut totals = Totals {
        inputs: records.shards().count() as u64,
        missing_inputs: inputs.missing,
        duplicates: inputs.duplicates,
        ..Totals::default()
    };
    let (templates, groups) = match map {
        Some(map) => {
            let groups = by_template(spec, map, &records, &order, &mut totals, &mut notes)?;
            (map.templates().collect(), groups)
        }
        None => (vec![spec.template.as_str()], vec![order]),
    };
    let size = shard_bytes(spec, &ext, &records, inputs)?;
    let (mut order, mut rules, mut shards) = (Vec::with_capacity(records.len()), vec![], vec![]);
    for (rule, group) in groups.into_iter().enumerate() {
        for cut in cut(&records, &group, size) {
            let first = order.len();
            let records_of = &group[cut];
            let members = records_of.iter().map(|&r| records.members(r).len() as u64).sum();
            let bytes = records_of.iter().map(|&r| records.bytes(r)).sum();
            order.extend_from_slice(records_of);
            rules.push(rule);
            let records = first..order.len();
            shards.push(Draft { name: String::new(), records, members, bytes });
        }
    }
    if shards.is_empty() {
        return Err(Error::new(
            ErrorCode::Unprocessable,
            format!("the external key map knows none of {} records", records.len()),
        )
        .hint("its keys are names of records or members, or patterns found in them"));
    }
    let names = shard_names::name_all(&templates, &rules)?;
    for (draft, name) in shards.iter_mut().zip(names) {
        draft.name = shard_names::with_extension(&name, &ext);
        totals.shards += 1;
        totals.records += draft.records.len() as u64;
        totals.members += draft.members;
        totals.bytes += draft.bytes;
    }
    let mut note = |n: u64, text: &str| {
        if n > 0 {
            notes.push(format!("{n} {text}"));
        }
    };
    note(totals.missing_inputs, "input shards do not exist");
    note(totals.duplicates, "members were left out: one before them has their name");
    note(totals.unmapped_records, "records were left out: the key map does not know them");
    let plan = Plan { records, order, shards, ext, totals, notes };
    plan.check_names(spec)?;
    Ok(plan)
}

fn nothing(spec: &DsortSpec) -> Error {
    Error::new(
        ErrorCode::ObjectNotFound,
        format!("{} has no records in the input shards that were named", spec.source),
    )
    .hint("look at input_format and input_extension; shards end in .tar, .tgz, .zip, …")
}

fn sort(spec: &DsortSpec, records: &Records, order: &mut [u32]) -> Result<()> {
    let directed = |ordering: std::cmp::Ordering| match spec.decreasing {
        true => ordering.reverse(),
        false => ordering,
    };
    // All sorts are stable: equal records keep their input order.
    match &spec.algorithm {
        Algorithm::None => {}
        Algorithm::Alphanumeric => {
            order.sort_by(|a, b| directed(records.key(*a).cmp(records.key(*b))));
        }
        Algorithm::Md5 => {
            let digest = |r: &u32| -> [u8; 16] { Md5::digest(records.key(*r)).into() };
            let mut by_digest: Vec<_> = order.iter().map(|r| (digest(r), *r)).collect();
            by_digest.sort_by(|a, b| directed(a.0.cmp(&b.0)));
            order.iter_mut().zip(by_digest).for_each(|(slot, (_, record))| *slot = record);
        }
        Algorithm::Shuffle { seed } => {
            let hash = |r: &u32| {
                let mut hasher = Xxh64::new(*seed);
                hasher.update(records.shard(*r).as_bytes());
                hasher.update(&[0]);
                hasher.update(records.key(*r).as_bytes());
                hasher.digest()
            };
            let mut by_hash: Vec<_> = order.iter().map(|r| (hash(r), *r)).collect();
            by_hash.sort_by_key(|(hash, _)| *hash);
            order.iter_mut().zip(by_hash).for_each(|(slot, (_, record))| *slot = record);
        }
        Algorithm::Content { .. } => {
            if !records.has_keys() {
                return Err(Error::internal("the keys of an order by content were not read"));
            }
            let by_name = |a: u32, b: u32| records.key(a).cmp(records.key(b));
            order
                .sort_by(|a, b| directed(records.by_content(*a, *b)).then_with(|| by_name(*a, *b)));
        }
    }
    Ok(())
}

/// The records of each template of a key map, each in the order of the job.
fn by_template(
    spec: &DsortSpec,
    map: &KeyMap,
    records: &Records,
    order: &[u32],
    totals: &mut Totals,
    notes: &mut Vec<String>,
) -> Result<Vec<Vec<u32>>> {
    let mut groups = vec![Vec::new(); map.templates().count()];
    for &record in order {
        let names = records.members(record).map(|(name, _)| name);
        if let Some(template) = map.find(records.key(record), names) {
            groups[template].push(record);
            continue;
        }
        totals.unmapped_records += 1;
        spec.on.ekm_missing_key.to(notes, || {
            Error::new(
                ErrorCode::Unprocessable,
                format!(
                    "the external key map does not know record \"{}\" of {}",
                    records.key(record),
                    records.shard(record)
                ),
            )
            .hint("nothing was written; ekm_missing_key: ignore or warn leaves such records out")
        })?;
    }
    Ok(groups)
}

/// Bytes of members after which a shard is full.
fn shard_bytes(spec: &DsortSpec, ext: &str, records: &Records, inputs: Inputs) -> Result<u64> {
    if spec.shard_bytes == 0 {
        let names = Ranges::parse_output(&spec.template)?.count();
        let total: u64 = (0..records.len() as u32).map(|r| records.bytes(r)).sum();
        return Ok(total.div_ceil(names.max(1)).max(1));
    }
    let compresses = ArchiveFormat::from_name(ext).is_some_and(ArchiveFormat::is_compressed_tar);
    if !compresses || inputs.unpacked_bytes == 0 {
        return Ok(spec.shard_bytes);
    }
    // Assumes the compression ratio of the input for the output.
    let ratio = inputs.packed_bytes as f64 / inputs.unpacked_bytes as f64;
    Ok((spec.shard_bytes as f64 / ratio.clamp(MIN_COMPRESSION_RATIO, 1.0)) as u64)
}

/// Cuts the sequence into shards: a shard ends with the first record that fills it.
fn cut(records: &Records, group: &[u32], size: u64) -> Vec<Range<usize>> {
    let (mut cuts, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (at, &record) in group.iter().enumerate() {
        bytes += records.bytes(record);
        if bytes >= size || at + 1 == group.len() {
            cuts.push(first..at + 1);
            (first, bytes) = (at + 1, 0);
        }
    }
    cuts
}

impl Plan {
    /// Checks that the names are distinct, and that none is an input shard unless that is allowed.
    fn check_names(&self, spec: &DsortSpec) -> Result<()> {
        shard_names::check_distinct(self.shards.iter().map(|s| s.name.as_str()))?;
        if spec.source != spec.destination || spec.overwrite == Overwrite::Always {
            return Ok(());
        }
        let inputs: HashSet<&str> = self.records.shards().collect();
        match self.shards.iter().find(|s| inputs.contains(s.name.as_str())) {
            Some(shard) => Err(Error::new(
                ErrorCode::Conflict,
                format!("{} is one of the input shards", spec.source.object_uri(&shard.name)),
            )
            .hint("nothing was written; choose another bucket or template, or allow overwriting")),
            None => Ok(()),
        }
    }

    /// Refuses if the destination has an object of this name that must not be replaced.
    pub fn refuse(&self, spec: &DsortSpec, outputs: &HashSet<&str>, existing: &str) -> Result<()> {
        if spec.overwrite != Overwrite::Never || !outputs.contains(existing) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::Conflict,
            format!("{} exists already", spec.destination.object_uri(existing)),
        )
        .hint("nothing was written; allow overwriting, or choose another template"))
    }

    /// The input shards whose members can only be read sequentially, judged by name.
    pub fn packed_inputs(&self) -> impl Iterator<Item = &str> {
        let is_packed = |name: &&str| {
            ArchiveFormat::from_name(name).is_some_and(ArchiveFormat::is_compressed_tar)
        };
        self.records.shards().filter(is_packed)
    }

    /// The names of all objects that will be written.
    pub fn outputs(&self) -> HashSet<&str> {
        self.shards.iter().map(|s| s.name.as_str()).collect()
    }

    /// The common prefix of all output names: where to list existing objects.
    pub fn output_prefix(&self) -> String {
        shard_names::common_prefix(self.shards.iter().map(|s| s.name.as_str()))
    }

    pub fn len(&self) -> usize {
        self.shards.len()
    }

    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    pub fn shard(&self, index: usize) -> PlannedShard<'_> {
        let draft = &self.shards[index];
        PlannedShard {
            name: &draft.name,
            records: draft.records.len() as u64,
            members: draft.members,
            bytes: draft.bytes,
        }
    }

    pub fn shards(&self) -> impl Iterator<Item = PlannedShard<'_>> {
        (0..self.len()).map(|i| self.shard(i))
    }

    /// The records of a shard, in order: the key of each, and its members.
    pub fn records(&self, index: usize) -> impl Iterator<Item = (&str, Vec<PlannedMember<'_>>)> {
        self.order[self.shards[index].records.clone()].iter().map(|&record| {
            let source = self.records.shard(record);
            let members = self.records.members(record).zip(self.records.stats(record));
            let members =
                members.map(|((name, size), stat)| PlannedMember { source, name, size, stat });
            (self.records.key(record), members.collect())
        })
    }

    /// The members of a shard, in order, those of a record together.
    pub fn members(&self, index: usize) -> impl Iterator<Item = PlannedMember<'_>> {
        self.records(index).flat_map(|(_, members)| members)
    }
}
