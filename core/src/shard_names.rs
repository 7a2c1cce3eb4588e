//! Names of shards that a job will write: the extensions, enough names of each template, and no
//! duplicates.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::template::Ranges;

/// Extensions of shards; if one ends in another, the longer one is first.
pub const EXTENSIONS: [&str; 6] = [".tar.gz", ".tar.lz4", ".tar.zst", ".tgz", ".tar", ".zip"];

/// Refuses anything but an extension of a shard.
pub fn check_extension(ext: &str) -> Result<()> {
    if EXTENSIONS.contains(&ext) { Ok(()) } else { Err(unknown_extension(ext)) }
}

pub(crate) fn unknown_extension(ext: &str) -> Error {
    Error::invalid(format!("unknown shard extension \"{ext}\""))
        .hint(format!("one of {}", EXTENSIONS.join(" ")))
}

/// A name for each shard, in order; `templates[rules[i]]` names shard `i`. An error if a template
/// has too few names.
pub(crate) fn name_all(templates: &[&str], rules: &[usize]) -> Result<Vec<String>> {
    let mut ranges = Vec::with_capacity(templates.len());
    let mut needed = vec![0u64; templates.len()];
    rules.iter().for_each(|&rule| needed[rule] += 1);
    for (template, needed) in templates.iter().zip(needed) {
        let range = Ranges::parse_output(template)?;
        if needed > range.count() {
            return Err(Error::invalid(format!(
                "template \"{template}\" has {} names, {needed} shards need one",
                range.count()
            ))
            .hint("nothing was written; widen the range, or make larger shards"));
        }
        ranges.push(range);
    }
    let mut names: Vec<_> = ranges.iter().map(Ranges::names).collect();
    let ended = || Error::internal("a template has fewer names than it counts");
    rules.iter().map(|&rule| names[rule].next().ok_or_else(ended)).collect()
}

/// Appends the extension, unless the name has it.
pub(crate) fn with_extension(name: &str, ext: &str) -> String {
    let ext = if name.ends_with(ext) { "" } else { ext };
    format!("{name}{ext}")
}

/// Refuses invalid object names and duplicates.
pub(crate) fn check_distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        ObjectName::new(name)?;
        if !seen.insert(name) {
            return Err(Error::invalid(format!("two outputs would be named \"{name}\""))
                .hint("separate the ranges of a template, and give each rule its own"));
        }
    }
    Ok(())
}

/// The common prefix of all names.
pub(crate) fn common_prefix<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let mut common = names.next().unwrap_or_default();
    for name in names {
        let same = common.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let cut = (0..=same).rev().find(|&at| common.is_char_boundary(at)).unwrap_or(0);
        common = &common[..cut];
    }
    common.to_owned()
}
