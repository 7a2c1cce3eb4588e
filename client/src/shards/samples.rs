//! Groups consecutive members into samples; also computes the samples of a whole index.

use std::collections::HashMap;
use std::hash::BuildHasher;

use forebay_core::{Error, Result};
use hashbrown::{DefaultHashBuilder, HashSet};

use super::naming::Naming;

/// Parts of a sample by extension; or one member of a shard, as its only part.
#[derive(Clone, Debug)]
pub struct Sample<T> {
    /// The common part of its members' names; or the name of the single member.
    pub key: String,
    /// Extension (empty for a member alone) and data.
    pub parts: Vec<(String, T)>,
}

/// Groups a stream of members; the members of a sample must be consecutive.
pub(crate) struct Grouper<T> {
    current: Option<Sample<T>>,
    /// Why the current sample is not returned.
    problem: Option<Error>,
    /// Hashes of all sample keys so far: 8 bytes each, whatever their length.
    seen: HashSet<u64>,
    /// Hashes of the current sample's extensions, once it has many parts.
    extensions: HashSet<u64>,
    hasher: DefaultHashBuilder,
}

/// Number of parts up to which a sample is searched linearly.
const LINEAR_SEARCH_MAX: usize = 16;

impl<T> Grouper<T> {
    pub(crate) fn new() -> Self {
        Self {
            current: None,
            problem: None,
            seen: HashSet::new(),
            extensions: HashSet::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Begins the next member; returns the previous sample if this member completes it.
    pub(crate) fn begin(&mut self, member: &str, key: &str) -> Option<Result<Sample<T>>> {
        if self.current.as_ref().is_some_and(|sample| sample.key == key) {
            return None;
        }
        let done = self.finish();
        if !self.seen.insert(self.hasher.hash_one(key)) {
            self.problem = Some(apart(member, key));
        }
        self.current = Some(Sample { key: key.to_owned(), parts: Vec::new() });
        done
    }

    /// Adds the data of the member that was begun last.
    pub(crate) fn add(&mut self, extension: &str, value: T) {
        let Some(sample) = &mut self.current else { return };
        if self.problem.is_some() {
            return;
        }
        let parts = &sample.parts;
        let is_new = if parts.len() < LINEAR_SEARCH_MAX {
            parts.iter().all(|(known, _)| known != extension)
        } else {
            if self.extensions.is_empty() {
                let known = parts.iter().map(|(known, _)| self.hasher.hash_one(known.as_str()));
                self.extensions.extend(known);
            }
            self.extensions.insert(self.hasher.hash_one(extension))
        };
        if !is_new {
            self.problem = Some(twice(&sample.key, extension));
            sample.parts.clear();
        } else {
            sample.parts.push((extension.to_owned(), value));
        }
    }

    /// Records that the member begun last cannot be read; its sample fails too.
    pub(crate) fn fail(&mut self, error: Error) {
        self.problem.get_or_insert(error);
    }

    /// The last sample.
    pub(crate) fn finish(&mut self) -> Option<Result<Sample<T>>> {
        let sample = self.current.take()?;
        self.extensions.clear();
        Some(match self.problem.take() {
            Some(problem) => Err(problem),
            None => Ok(sample),
        })
    }
}

/// The samples of a shard whose members are all known, by member number.
#[derive(Clone, Debug, Default)]
pub struct SampleLayout {
    /// Numbers of members, sample after sample.
    pub order: Vec<u64>,
    /// Where each sample ends in `order`.
    pub ends: Vec<u64>,
    /// Samples with errors, and the reasons.
    pub problems: Vec<(u64, String)>,
}

/// Samples in the order of their first members; the members of a sample need not be consecutive
/// here.
pub fn sample_layout<'a>(names: impl Iterator<Item = &'a str>, naming: Naming) -> SampleLayout {
    let mut number_of: HashMap<&str, usize> = HashMap::new();
    let mut samples: Vec<Vec<u64>> = Vec::new();
    let mut extensions = HashSet::new();
    let mut found = SampleLayout::default();
    for (member, name) in names.enumerate() {
        let Some((key, extension)) = naming.split(name) else { continue };
        let number = *number_of.entry(key).or_insert(samples.len());
        if number == samples.len() {
            samples.push(Vec::new());
        }
        samples[number].push(member as u64);
        if let Some((_, extension)) = extensions.replace((number, extension)) {
            found.problems.push((number as u64, twice(key, &extension).to_string()));
        }
    }
    for sample in samples {
        found.order.extend(sample);
        found.ends.push(found.order.len() as u64);
    }
    found.problems.sort();
    found.problems.dedup_by_key(|(number, _)| *number);
    found
}

fn apart(member: &str, key: &str) -> Error {
    Error::invalid(format!(
        "member \"{member}\" of sample \"{key}\" comes after other samples: the members of a sample \
         must be next to each other"
    ))
    .hint("write the shard anew, sorted by name, or read it by ShardMapDataset")
}

fn twice(key: &str, extension: &str) -> Error {
    Error::invalid(format!("sample \"{key}\" has two members with the extension \"{extension}\""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The result of a shard with these members: `key: ext ext`, or the error.
    fn grouped(members: &[&str]) -> Vec<String> {
        let naming = Naming::parse("webdataset", false).unwrap();
        let mut grouper = Grouper::new();
        let mut done = Vec::new();
        for member in members {
            let Some((key, extension)) = naming.split(member) else { continue };
            done.extend(grouper.begin(member, key));
            grouper.add(&extension, ());
        }
        done.extend(grouper.finish());
        let show = |sample: Sample<()>| {
            let extensions: Vec<_> = sample.parts.iter().map(|(e, _)| e.as_str()).collect();
            format!("{}: {}", sample.key, extensions.join(" "))
        };
        done.into_iter().map(|s| s.map_or_else(|e| e.message, show)).collect()
    }

    #[test]
    fn neighbours_with_one_key_are_one_sample() {
        assert_eq!(grouped(&[]), Vec::<String>::new());
        assert_eq!(
            grouped(&["a/1.jpg", "a/1.seg.png", "LICENSE", "a/1.png", "b/1.jpg", "b/._1.x"]),
            ["a/1: jpg seg.png png", "b/1: jpg"]
        );
    }

    #[test]
    fn what_would_lose_data_is_an_error_of_that_sample_alone() {
        let got = grouped(&["1.a", "1.b", "1.a", "2.a", "1.c", "1.d", "3.a"]);
        assert_eq!(got[0], "sample \"1\" has two members with the extension \"a\"");
        assert_eq!(got[1], "2: a");
        assert!(got[2].starts_with("member \"1.c\" of sample \"1\" comes after other"), "{got:?}");
        assert_eq!(got[3..], ["3: a"]);
    }

    #[test]
    fn a_layout_gathers_members_from_anywhere() {
        let naming = Naming::parse("webdataset", false).unwrap();
        let names = ["1.a", "README", "2.a", "1.b", "2.a"];
        let found = sample_layout(names.into_iter(), naming);
        assert_eq!(found.order, [0, 3, 2, 4]);
        assert_eq!(found.ends, [2, 4]);
        assert_eq!(found.problems.len(), 1);
        assert_eq!(found.problems[0].0, 1);
    }
}
