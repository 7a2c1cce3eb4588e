//! Name templates of multi-object requests: `shard-{0000..0099..2}.tar`, `shard-@99`, or a prefix
//! (wire reference §9.1); for names to be generated also `shard-%06d`.

use crate::error::{Error, Result};

/// Maximum number of names of a template.
pub const MAX_NAMES: u64 = 10_000_000;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    /// Without a range: all names that start with this.
    Prefix(String),
    Ranges(Ranges),
}

/// Fixed texts around number ranges; `texts` has one element more than `ranges`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    texts: Vec<String>,
    ranges: Vec<Range>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u64,
    last: u64,
    step: u64,
    width: usize,
}

impl Range {
    fn count(&self) -> u64 {
        ((self.last - self.first) / self.step).saturating_add(1)
    }

    fn parse(text: &str, whole: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!("invalid range {{{text}}} in template \"{whole}\""))
                .hint("ranges are {first..last} or {first..last..step} with non-negative numbers")
        };
        let parts: Vec<&str> = text.split("..").collect();
        let number = |s: &str| s.parse::<u64>().map_err(|_| bad());
        let (first, last, step) = match parts[..] {
            [a, b] => (a, b, 1),
            [a, b, s] => (a, b, number(s)?),
            _ => return Err(bad()),
        };
        let width = first.len().min(last.len());
        let (first, last) = (number(first)?, number(last)?);
        if step == 0 || first > last {
            return Err(bad());
        }
        Ok(Self { first, last, step, width })
    }
}

impl Template {
    pub fn parse(text: &str) -> Result<Self> {
        let mut texts = vec![String::new()];
        let mut ranges = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let close = rest[open..].find('}').ok_or_else(|| {
                Error::invalid(format!("template \"{text}\" has no closing brace"))
            })?;
            ranges.push(Range::parse(&rest[open + 1..open + close], text)?);
            texts.last_mut().expect("starts with one").push_str(&rest[..open]);
            texts.push(String::new());
            rest = &rest[open + close + 1..];
        }
        // A name may contain an @; it starts a range only if a number follows the first one.
        let first_at = text.find('@').map(|at| &text[at + 1..]);
        if ranges.is_empty()
            && first_at.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            && let Some((texts, ranges)) = at_ranges(text)
        {
            return Self::checked(texts, ranges, text);
        }
        if ranges.is_empty() {
            return Ok(Self::Prefix(text.trim_end_matches('*').to_owned()));
        }
        texts.last_mut().expect("starts with one").push_str(rest);
        Self::checked(texts, ranges, text)
    }

    fn checked(texts: Vec<String>, ranges: Vec<Range>, text: &str) -> Result<Self> {
        let count = ranges.iter().try_fold(1u64, |n, r| n.checked_mul(r.count()));
        if count.is_none_or(|n| n > MAX_NAMES) {
            return Err(Error::invalid(format!(
                "template \"{text}\" stands for more than {MAX_NAMES} names"
            )));
        }
        Ok(Self::Ranges(Ranges { texts, ranges }))
    }
}

/// `p-@00001-s-@20`: from 0 to each number, with its digits. `None` if there is no range.
fn at_ranges(text: &str) -> Option<(Vec<String>, Vec<Range>)> {
    let mut parts = text.split('@');
    let mut texts = vec![parts.next().unwrap_or_default().to_owned()];
    let mut ranges = Vec::new();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        match part[..digits].parse() {
            Ok(last) => {
                ranges.push(Range { first: 0, last, step: 1, width: digits });
                texts.push(part[digits..].to_owned());
            }
            Err(_) => {
                let text = texts.last_mut()?;
                text.push('@');
                text.push_str(part);
            }
        }
    }
    (!ranges.is_empty()).then_some((texts, ranges))
}

/// `p-%06d-s`: as many numbers as a job may need. `None` if there is no such placeholder.
fn fmt_range(text: &str) -> Option<(Vec<String>, Vec<Range>)> {
    let (at, _) = text.match_indices('%').find(|(at, _)| {
        let rest = text[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
        rest.starts_with('d')
    })?;
    let spec = &text[at + 1..];
    let digits = spec.find('d')?;
    // `%d`, and `%06d`: padded by zeroes.
    let width = match &spec[..digits] {
        "" => 1,
        padded => padded.strip_prefix('0')?.parse().ok().filter(|w| *w <= 20)?,
    };
    let texts = vec![text[..at].to_owned(), spec[digits + 1..].to_owned()];
    Some((texts, vec![Range { first: 0, last: MAX_NAMES - 1, step: 1, width }]))
}

impl Ranges {
    /// Parses a template of names to be generated, in any of its three notations:
    /// `p-{0000..4096..8}-s`, `p-%06d-s`, `p-@00001-g-@100-s`.
    pub fn parse_output(text: &str) -> Result<Self> {
        if text.contains('{') {
            return match Template::parse(text)? {
                Template::Ranges(ranges) => Ok(ranges),
                Template::Prefix(_) => Err(no_numbers(text)),
            };
        }
        let (texts, ranges) =
            fmt_range(text).or_else(|| at_ranges(text)).ok_or_else(|| no_numbers(text))?;
        if texts.iter().any(|t| fmt_range(t).is_some()) {
            return Err(Error::invalid(format!("template \"{text}\" has more than one %d"))
                .hint("several ranges are written {0..9}-{0..9}"));
        }
        match Template::checked(texts, ranges, text)? {
            Template::Ranges(ranges) => Ok(ranges),
            Template::Prefix(_) => Err(no_numbers(text)),
        }
    }

    /// Number of names.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(Range::count).product()
    }

    /// Whether the template has a practically unlimited number of names.
    pub fn is_open(&self) -> bool {
        self.count() >= MAX_NAMES
    }

    /// All names; the last range varies fastest.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.count()).map(|i| self.name(i))
    }

    /// Like [`Self::names`], consuming the template.
    pub fn into_names(self) -> impl Iterator<Item = String> + Send {
        (0..self.count()).map(move |i| self.name(i))
    }

    fn name(&self, mut i: u64) -> String {
        let mut numbers = vec![0; self.ranges.len()];
        for (slot, range) in numbers.iter_mut().zip(&self.ranges).rev() {
            *slot = range.first + (i % range.count()) * range.step;
            i /= range.count();
        }
        let mut name = self.texts[0].clone();
        for ((number, range), text) in numbers.iter().zip(&self.ranges).zip(&self.texts[1..]) {
            name.push_str(&format!("{number:0width$}{text}", width = range.width));
        }
        name
    }
}

fn no_numbers(text: &str) -> Error {
    Error::invalid(format!("template \"{text}\" has no place for a number"))
        .hint("for example shard-%06d, shard-{0000..0999} or shard-@0999")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(template: &str) -> Vec<String> {
        match Template::parse(template).unwrap() {
            Template::Ranges(r) => r.names().collect(),
            Template::Prefix(p) => panic!("prefix {p}"),
        }
    }

    #[test]
    fn braces_pad_to_the_shorter_bound_and_step() {
        assert_eq!(names("s-{0008..0010}.tar"), ["s-0008.tar", "s-0009.tar", "s-0010.tar"]);
        assert_eq!(names("o-{0..4..2}"), ["o-0", "o-2", "o-4"]);
        assert_eq!(names("{1..2}-{0..1}"), ["1-0", "1-1", "2-0", "2-1"]);
        assert_eq!(names("p-@02-s"), ["p-00-s", "p-01-s", "p-02-s"]);
    }

    #[test]
    fn without_a_range_it_is_a_prefix() {
        assert_eq!(Template::parse("abc*").unwrap(), Template::Prefix("abc".into()));
        assert_eq!(Template::parse("").unwrap(), Template::Prefix(String::new()));
        assert_eq!(Template::parse("me@home").unwrap(), Template::Prefix("me@home".into()));
    }

    #[test]
    fn nonsense_and_floods_are_refused() {
        for bad in
            ["{", "{3..1}", "{a..b}", "{1..2..0}", "{0..99999999}", "{1}", "{0..9999}{0..9999}"]
        {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_to_be_made_have_three_spellings() {
        let first = |template: &str, n: usize| {
            let ranges = Ranges::parse_output(template).unwrap();
            (ranges.count(), ranges.names().take(n).collect::<Vec<_>>())
        };
        assert_eq!(first("p-%06d-s", 2).1, ["p-000000-s", "p-000001-s"]);
        assert_eq!(first("%d", 11).1[10], "10");
        assert_eq!(
            first("p-{0000..4096..8}-s", 2),
            (513, vec!["p-0000-s".into(), "p-0008-s".into()])
        );
        let (count, names) = first("p-@00001-g-@100-s", 102);
        assert_eq!((count, names[0].as_str()), (202, "p-00000-g-000-s"));
        assert_eq!(
            (names[100].as_str(), names[101].as_str()),
            ("p-00000-g-100-s", "p-00001-g-000-s")
        );
        assert_eq!(first("a@b-@1", 2).1, ["a@b-0", "a@b-1"]);
        for bad in ["", "shard", "x%6d", "x%s", "%d-%d", "%099d", "a@b", "{0..1", "@999999999"] {
            assert!(Ranges::parse_output(bad).is_err(), "{bad}");
        }
        // In a request for existing objects a percent sign is literal.
        assert_eq!(Template::parse("foo%20data").unwrap(), Template::Prefix("foo%20data".into()));
        assert_eq!(super::tests::names("a@1-b@01"), ["a0-b00", "a0-b01", "a1-b00", "a1-b01"]);
    }
}
