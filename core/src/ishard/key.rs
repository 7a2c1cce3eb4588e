//! From an object's name to its sample's key and its extension.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use regex_lite::{Regex, RegexBuilder};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// Maximum length of a pattern, and maximum memory of its compiled program.
const MAX_PATTERN: usize = 4096;
const MAX_PROGRAM: usize = 1 << 20;

/// The part of an object's name that is the key of its sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyMode {
    /// The last path component: samples of files from parallel folders.
    #[default]
    BaseFileName,
    /// The whole name, without the extension.
    FullName,
    /// The whole name, without the slashes and the extension.
    CollapseAllDir,
    /// Group 1 of a pattern; the full name if the pattern does not match.
    Regex(String),
}

/// Where a file's extension begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtMode {
    /// At the first dot of its last path component, as WebDataset reads it: `a` + `seg.png`.
    #[default]
    First,
    /// At the last dot: `a.seg` + `png`.
    Last,
}

impl KeyMode {
    /// Checks the pattern, if there is one.
    pub(super) fn check(&self) -> Result<()> {
        Keys::new(self, ExtMode::First).map(drop)
    }
}

impl FromStr for KeyMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "base_file_name" | "base_filename" => Self::BaseFileName,
            "full_name" => Self::FullName,
            "collapse_all_dir" => Self::CollapseAllDir,
            // A misspelt mode is not a pattern: a pattern needs a group.
            pattern if pattern.contains('(') => Self::Regex(pattern.to_owned()),
            other => {
                return Err(Error::invalid(format!("unknown sample key \"{other}\"")).hint(
                    "one of base_file_name, full_name, collapse_all_dir, or a regular expression \
                     whose group 1 is the key, for example \"([^/]+)/[^/]+$\"",
                ));
            }
        })
    }
}

impl fmt::Display for KeyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BaseFileName => "base_file_name",
            Self::FullName => "full_name",
            Self::CollapseAllDir => "collapse_all_dir",
            Self::Regex(pattern) => pattern,
        })
    }
}

impl Serialize for KeyMode {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyMode {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// Compiles a pattern of bounded size. Matching takes time linear in the text.
pub(crate) fn compile(pattern: &str) -> Result<Regex> {
    let bad = |why: &dyn fmt::Display| {
        let shown: String = pattern.chars().take(64).collect();
        Error::invalid(format!("invalid regular expression \"{shown}\": {why}"))
    };
    if pattern.len() > MAX_PATTERN {
        return Err(bad(&format_args!("longer than {MAX_PATTERN} bytes")));
    }
    RegexBuilder::new(pattern).size_limit(MAX_PROGRAM).build().map_err(|e| bad(&e))
}

/// Positions of key and extension in an object's name, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyAt {
    start: u16,
    /// After the last slash of the key; `start` if it has none.
    base: u16,
    end: u16,
    /// Start of the extension, with its dot; the end of the name if it has none.
    ext: u16,
}

/// Finds keys in names.
pub(super) struct Keys {
    regex: Option<Regex>,
    mode: KeyMode,
    ext_mode: ExtMode,
}

impl KeyAt {
    /// For a name without a key.
    pub(super) const NONE: Self = Self { start: 0, base: 0, end: 0, ext: 0 };
}

impl Keys {
    pub(super) fn new(mode: &KeyMode, ext_mode: ExtMode) -> Result<Self> {
        let regex = match mode {
            KeyMode::Regex(pattern) => Some(compile(pattern)?),
            _ => None,
        };
        if regex.as_ref().is_some_and(|r| r.captures_len() < 2) {
            return Err(Error::invalid(format!("the regular expression \"{mode}\" has no group"))
                .hint("its first group, in round brackets, is the key"));
        }
        Ok(Self { regex, mode: mode.clone(), ext_mode })
    }

    /// Whether slashes of a name are not part of its key.
    pub(super) fn strips_slashes(&self) -> bool {
        self.mode == KeyMode::CollapseAllDir
    }

    /// Finds key and extension; `None` for names that end in a slash: those are folders.
    pub(super) fn find(&self, name: &str) -> Option<KeyAt> {
        let base = name.rfind('/').map_or(0, |at| at + 1);
        // A dot at the start of a file's name is part of the name.
        let inner = name.get(base..)?;
        let first = inner.chars().next()?.len_utf8();
        let dot = match self.ext_mode {
            ExtMode::First => inner[first..].find('.'),
            ExtMode::Last => inner[first..].rfind('.'),
        };
        let ext = dot.map_or(name.len(), |at| base + first + at);
        let whole = (0, ext);
        let (start, end) = match &self.regex {
            None if self.mode == KeyMode::BaseFileName => (base, ext),
            None => whole,
            Some(regex) => match regex.captures(name).and_then(|c| c.get(1)) {
                // The part of the group that belongs to the extension is not part of the key.
                Some(group) if group.start() < ext => (group.start(), group.end().min(ext)),
                Some(group) => (group.start(), group.end()),
                None => whole,
            },
        };
        let (start, end) = if start == end { whole } else { (start, end) };
        let slash = if self.strips_slashes() { None } else { name[start..end].rfind('/') };
        let short = |at: usize| u16::try_from(at).ok();
        Some(KeyAt {
            start: short(start)?,
            base: short(slash.map_or(start, |at| start + at + 1))?,
            end: short(end)?,
            ext: short(ext)?,
        })
    }

    /// Orders by folder, then by the rest of the key. Folders are in the order of a tree walk.
    pub(super) fn by_folder(&self, a: (&str, KeyAt), b: (&str, KeyAt)) -> Ordering {
        if self.strips_slashes() {
            return self.by_key(a, b);
        }
        folder_order(folder(a.0, a.1), folder(b.0, b.1))
            .then_with(|| base_name(a.0, a.1).cmp(base_name(b.0, b.1)))
    }

    /// Orders by the whole key.
    pub(super) fn by_key(&self, a: (&str, KeyAt), b: (&str, KeyAt)) -> Ordering {
        let (x, y) = (raw_key(a.0, a.1).as_bytes(), raw_key(b.0, b.1).as_bytes());
        match self.strips_slashes() {
            false => x.cmp(y),
            true => x.iter().filter(|c| **c != b'/').cmp(y.iter().filter(|c| **c != b'/')),
        }
    }

    /// The key itself.
    pub(super) fn key(&self, name: &str, at: KeyAt) -> String {
        match self.strips_slashes() {
            false => raw_key(name, at).to_owned(),
            true => raw_key(name, at).replace('/', ""),
        }
    }
}

fn raw_key(name: &str, at: KeyAt) -> &str {
    &name[at.start as usize..at.end as usize]
}

/// The folder part of a key, without the trailing slash.
pub(super) fn folder(name: &str, at: KeyAt) -> &str {
    &name[at.start as usize..(at.base.max(at.start + 1) - 1) as usize]
}

/// The key after its folder.
fn base_name(name: &str, at: KeyAt) -> &str {
    &name[at.base as usize..at.end as usize]
}

/// The extension with its dot; empty when there is none.
pub(super) fn dotted_ext(name: &str, at: KeyAt) -> &str {
    &name[at.ext as usize..]
}

/// Orders a folder before its content, and its content before the folder's next sibling.
fn folder_order(a: &str, b: &str) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    let slash_first = |c: &u8| if *c == b'/' { 0 } else { *c };
    a.as_bytes().iter().map(slash_first).cmp(b.as_bytes().iter().map(slash_first))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn split(mode: &str, ext_mode: ExtMode, name: &str) -> (String, String) {
        let keys = Keys::new(&mode.parse().unwrap(), ext_mode).unwrap();
        let at = keys.find(name).unwrap();
        (keys.key(name, at), dotted_ext(name, at).to_owned())
    }

    #[test]
    fn every_mode_finds_its_key() {
        let name = "d/train/n01/n01_1.seg.png";
        for (mode, ext_mode, key, ext) in [
            ("base_file_name", ExtMode::First, "n01_1", ".seg.png"),
            ("base_filename", ExtMode::Last, "n01_1.seg", ".png"),
            ("full_name", ExtMode::First, "d/train/n01/n01_1", ".seg.png"),
            ("collapse_all_dir", ExtMode::First, "dtrainn01n01_1", ".seg.png"),
            (r".*/([^/]+)/[^/]+$", ExtMode::First, "n01", ".seg.png"),
            (r".*/([^/]+)$", ExtMode::First, "n01_1", ".seg.png"),
            (r"train/(.*)\.png", ExtMode::First, "n01/n01_1", ".seg.png"),
            (r"\.(s)eg", ExtMode::First, "s", ".seg.png"),
            (r"val/(.*)", ExtMode::First, "d/train/n01/n01_1", ".seg.png"),
            (r"(z*)", ExtMode::First, "d/train/n01/n01_1", ".seg.png"),
        ] {
            assert_eq!(split(mode, ext_mode, name), (key.into(), ext.into()), "{mode}");
        }
    }

    #[test]
    fn a_leading_dot_is_part_of_the_name_and_no_dot_is_no_extension() {
        let first = |name| split("base_file_name", ExtMode::First, name);
        assert_eq!(first("a/.hidden"), (".hidden".into(), String::new()));
        assert_eq!(first("a/.hidden.jpg"), (".hidden".into(), ".jpg".into()));
        assert_eq!(first("README"), ("README".into(), String::new()));
        assert_eq!(first("ä.ü/öl.jpg"), ("öl".into(), ".jpg".into()));
        let keys = Keys::new(&KeyMode::FullName, ExtMode::First).unwrap();
        assert_eq!(keys.find("folder/"), None);
    }

    #[test]
    fn words_that_are_no_mode_and_patterns_that_are_none_are_refused() {
        for bad in ["base_filname", "", "n01", "[a"] {
            assert!(bad.parse::<KeyMode>().is_err(), "{bad}");
        }
        for bad in ["(a", "(?:a)", "(a{1000}){1000}"] {
            assert!(bad.parse::<KeyMode>().unwrap().check().is_err(), "{bad}");
        }
        assert!(KeyMode::Regex(format!("({})", "a".repeat(5000))).check().is_err());
    }

    #[test]
    fn folders_are_sorted_as_in_a_tree_walk() {
        let mut folders = ["a-b", "a/b", "a", "", "a/b/c", "a.b"];
        folders.sort_by(|a, b| folder_order(a, b));
        assert_eq!(folders, ["", "a", "a/b", "a/b/c", "a-b", "a.b"]);
    }
}
