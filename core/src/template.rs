//! Name templates of multi-object requests: `shard-{0000..0099..2}.tar`, `shard-@99`, or a prefix
//! (wire reference §9.1).

use crate::error::{Error, Result};

/// Most names a template may stand for.
pub const MAX_NAMES: u64 = 10_000_000;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    /// No range in it: all names that start with this.
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
        (self.last - self.first) / self.step + 1
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
        if ranges.is_empty()
            && let Some((before, after)) = text.split_once('@')
        {
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            if let Ok(last) = after[..digits].parse() {
                texts = vec![before.to_owned(), after[digits..].to_owned()];
                ranges.push(Range { first: 0, last, step: 1, width: digits });
                return Self::checked(texts, ranges, text);
            }
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

impl Ranges {
    /// All names, the last range turning fastest.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        let total: u64 = self.ranges.iter().map(Range::count).product();
        (0..total).map(|mut i| {
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
        })
    }
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
}
