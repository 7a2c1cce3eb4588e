//! Patterns of names, as shells have them.

use std::str::FromStr;

use forebay_core::Error;

/// A pattern: `*` is any text, also with slashes, `?` one character, `[a-z]` and `[!a-z]` one of a
/// set or none of it. A backslash makes the next character a plain one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Any,
    One,
    Char(char),
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Item {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Char(own) => *own == c,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
            }
        }
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| {
            Error::invalid(format!("invalid pattern \"{text}\": {why}"))
                .hint("* is any text, ? one character, [a-z] one of a set, \\* a plain star")
        };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        let mut items = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            items.push(match c {
                '*' => Item::Any,
                '?' => Item::One,
                '\\' => Item::Char(rest.next().ok_or_else(|| bad("it ends with a backslash"))?),
                '[' => set(&mut rest).ok_or_else(|| bad("a [ without its ]"))?,
                plain => Item::Char(plain),
            });
        }
        Ok(Self { text: text.to_owned(), items })
    }
}

/// Reads a set behind its `[`.
fn set(rest: &mut std::str::Chars<'_>) -> Option<Item> {
    let mut next = rest.next()?;
    let negated = matches!(next, '!' | '^');
    if negated {
        next = rest.next()?;
    }
    let mut ranges = Vec::new();
    loop {
        let from = next;
        next = rest.next()?;
        let mut to = from;
        // A dash before the end of the set is a plain one.
        if next == '-' && !rest.as_str().starts_with(']') {
            to = rest.next()?;
            next = rest.next()?;
        }
        ranges.push((from, to));
        if next == ']' {
            return Some(Item::Set { negated, ranges });
        }
    }
}

impl Pattern {
    /// Whether the pattern is about paths: it has a slash.
    pub(crate) fn has_slash(&self) -> bool {
        self.text.contains('/')
    }

    /// Whether the pattern matches all of this text. Takes at most pattern times text steps.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let (mut item, mut rest) = (0, text);
        // Where to go on if what follows the last `*` does not match: one character later.
        let mut again: Option<(usize, &str)> = None;
        loop {
            let mut chars = rest.chars();
            match (self.items.get(item), chars.next()) {
                (Some(Item::Any), _) => {
                    again = Some((item + 1, rest));
                    item += 1;
                }
                (None, None) => return true,
                (Some(wanted), Some(c)) if wanted.takes(c) => {
                    (item, rest) = (item + 1, chars.as_str());
                }
                _ => {
                    let Some((behind, from)) = again else { return false };
                    let mut later = from.chars();
                    if later.next().is_none() {
                        return false;
                    }
                    again = Some((behind, later.as_str()));
                    (item, rest) = (behind, later.as_str());
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(text)
    }

    #[test]
    fn a_star_crosses_slashes_and_the_whole_text_must_match() {
        for (pattern, text) in [
            ("*", ""),
            ("*.jpg", "a/b.jpg"),
            ("a*b*c", "aXbXbc"),
            ("?.txt", "é.txt"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]a]", "]"),
            ("[a-]", "-"),
            ("a\\*", "a*"),
            ("train/*/1", "train/x/y/1"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("*.jpg", "a.jpg.bak"), ("?", ""), ("[a-c]", "d"), ("a\\*", "ab"), ("a", "")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "*a".repeat(30);
        assert!(!matches(&pattern, &format!("{}b", "a".repeat(5000))));
    }

    #[test]
    fn broken_patterns_are_refused_by_name() {
        for bad in ["", "[", "[]", "[a-", "x\\"] {
            let e = bad.parse::<Pattern>().unwrap_err();
            assert!(e.message.contains("invalid pattern"), "{bad}");
        }
    }
}
