//! Chooses where to split a range of names, from the names seen so far.

use std::collections::BTreeSet;
use std::ops::Bound;

const DECIMAL: &str = "0123456789";
const HEXADECIMAL: &str = "0123456789abcdef";

/// Sample of the names so far, to estimate the others: the first and the last of every page.
#[derive(Default)]
pub(super) struct Samples {
    names: BTreeSet<String>,
    alphabet: BTreeSet<char>,
}

impl Samples {
    pub(super) fn add(&mut self, name: &str) {
        if self.names.insert(name.to_owned()) {
            self.alphabet.extend(name.chars());
        }
    }

    /// The characters behind `prefix` in names that begin with it.
    fn seen_behind(&self, prefix: &str) -> Vec<char> {
        let mut seen = Vec::new();
        let mut from = Bound::Excluded(prefix.to_owned());
        while let Some(name) = self.names.range((from, Bound::Unbounded)).next() {
            let Some(rest) = name.strip_prefix(prefix) else { break };
            let Some(c) = rest.chars().next() else { break };
            seen.push(c);
            from = Bound::Excluded(format!("{prefix}{c}{}", char::MAX));
        }
        seen
    }

    /// The character after all seen characters.
    fn beyond(&self) -> Option<char> {
        let last = *self.alphabet.last()?;
        // Between the two halves of the Unicode range are the surrogates, which are no characters.
        if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) }
    }

    /// A text between a range's last name and its end. `first` is the range's first name.
    ///
    /// At a position where the seen names differ: the middle of the possible characters. At a
    /// position where all are equal so far: behind all of them. One call then shows whether there
    /// are more names, however many such positions there are.
    pub(super) fn middle(
        &self,
        first: &str,
        at: &str,
        until: Option<&str>,
        prefix: &str,
    ) -> Option<String> {
        let mut place = until.map_or(0, |until| common(at, until)).max(prefix.len());
        let constant = common(first, at).max(prefix.len());
        let mut end = until.and_then(|until| until.get(place..));
        // Whether the range has no end at this position.
        let mut open = until.is_none();
        while let Some(here) = at.get(place..).and_then(|rest| rest.chars().next()) {
            let differs = |place: usize| self.seen_behind(&at[..place]).len() > 1;
            if differs(place) {
                if open {
                    return Some(format!("{}{}", &at[..place], self.beyond()?));
                }
                let before_end = |c: char| end.is_none_or(|end| c.to_string().as_str() < end);
                let above = self.likely(&at[..place], here, |c| c > here && before_end(c));
                if !above.is_empty() {
                    return Some(format!("{}{}", &at[..place], above[above.len() / 2]));
                }
                place += here.len_utf8();
            } else {
                let same = at[place..].char_indices().map(|(n, _)| place + n);
                let same = same.take_while(|place| *place < constant && !differs(*place)).count();
                let passed: usize = at[place..].chars().take(same.max(1)).map(char::len_utf8).sum();
                let text = format!("{}{}", &at[..place + passed], self.beyond()?);
                let within = until.is_none_or(|until| text.as_str() < until);
                // Below the position of its end, nothing of the range is beyond.
                if same > 0 && within && (open || end.is_some()) {
                    return Some(text);
                }
                place += passed;
            }
            (end, open) = (None, false);
        }
        None
    }

    /// Characters that may follow a prefix, estimated from those seen; `here` is one of them.
    fn likely(&self, prefix: &str, here: char, fits: impl Fn(char) -> bool) -> Vec<char> {
        let mut seen = self.seen_behind(prefix);
        let of = |class: &str| -> Vec<char> { class.chars().filter(|c| fits(*c)).collect() };
        let are = |seen: &[char], class: &str| seen.iter().all(|c| class.contains(*c));
        // For hexadecimal numbers the letters of the first digit are seen last.
        let next = self.seen_behind(&format!("{prefix}{here}"));
        if are(&seen, HEXADECIMAL) && are(&next, HEXADECIMAL) && !are(&next, DECIMAL) {
            seen.extend(next);
        }
        for class in [DECIMAL, HEXADECIMAL] {
            if are(&seen, class) {
                return of(class);
            }
        }
        let known: Vec<char> = seen.into_iter().filter(|c| fits(*c)).collect();
        if !known.is_empty() {
            return known;
        }
        self.alphabet.iter().copied().filter(|c| fits(*c)).collect()
    }

    /// The share of the key space between two texts that have `known` bytes in common.
    pub(super) fn width(&self, at: &str, until: Option<&str>, known: usize) -> f64 {
        let letters = (self.alphabet.len() + 1) as f64;
        let place = |text: &str| {
            let two = text.get(known..).unwrap_or("").chars().take(2).enumerate();
            let value = |(n, c): (usize, char)| {
                self.alphabet.range(..=c).count() as f64 / letters.powi(n as i32 + 1)
            };
            two.map(value).sum::<f64>()
        };
        until.map_or(1.0, place) - place(at)
    }
}

/// Number of bytes that two texts have in common, in whole characters.
pub(super) fn common(a: &str, b: &str) -> usize {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    same.map(|(c, _)| c.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_has_letters_below_may_have_them_here() {
        let middle = |names: &[&str], at| {
            let mut samples = Samples::default();
            names.iter().for_each(|name| samples.add(name));
            samples.middle(names[0], at, Some("x/z"), "").unwrap_or_default()
        };
        assert_eq!(middle(&["x/00", "x/1f", "x/2a", "x/2b"], "x/2b"), "x/9");
        assert_eq!(middle(&["x/00", "x/15", "x/21", "x/24"], "x/24"), "x/6");
    }
}
