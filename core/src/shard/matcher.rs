//! Selects members of an archive by their names.

use serde::{Deserialize, Serialize};

use super::sample;
use crate::error::{Error, Result};

/// Longest text to match with.
const MAX_TEXT: usize = 4096;
/// Bytes of a compiled expression; also limits the time per character.
const MAX_COMPILED: usize = 256 << 10;

/// How the text of a request is compared with names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberMatch {
    /// A regular expression that matches somewhere in the name.
    Regexp,
    Prefix,
    Suffix,
    Substr,
    /// The complete sample key.
    WdsKey,
}

impl MemberMatch {
    /// Parses the mode of a request; an empty text is a prefix match.
    pub fn parse(mode: &str) -> Result<Self> {
        Ok(match mode {
            "regexp" => Self::Regexp,
            "" | "prefix" => Self::Prefix,
            "suffix" => Self::Suffix,
            "substr" => Self::Substr,
            "wdskey" => Self::WdsKey,
            _ => {
                return Err(Error::invalid(format!("unknown archive matching mode \"{mode}\""))
                    .hint("regexp, prefix, suffix, substr or wdskey"));
            }
        })
    }

    /// The name that [`Self::parse`] accepts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regexp => "regexp",
            Self::Prefix => "prefix",
            Self::Suffix => "suffix",
            Self::Substr => "substr",
            Self::WdsKey => "wdskey",
        }
    }
}

/// A mode with its text, ready to match many names.
#[derive(Clone, Debug)]
pub struct MemberMatcher {
    mode: MemberMatch,
    text: String,
    regex: Option<regex_lite::Regex>,
}

impl MemberMatcher {
    /// An empty text matches every name.
    pub fn new(mode: MemberMatch, text: &str) -> Result<Self> {
        if text.len() > MAX_TEXT {
            return Err(Error::invalid(format!(
                "a text of {} bytes to match members with; the limit is {MAX_TEXT}",
                text.len()
            )));
        }
        let regex = (mode == MemberMatch::Regexp && !text.is_empty())
            .then(|| regex_lite::RegexBuilder::new(text).size_limit(MAX_COMPILED).build())
            .transpose()
            .map_err(|e| Error::invalid(format!("invalid regular expression \"{text}\": {e}")))?;
        Ok(Self { mode, text: text.to_owned(), regex })
    }

    pub fn mode(&self) -> MemberMatch {
        self.mode
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, member: &str) -> bool {
        let text = self.text.as_str();
        if text.is_empty() {
            return true;
        }
        match self.mode {
            MemberMatch::Regexp => self.regex.as_ref().is_some_and(|r| r.is_match(member)),
            MemberMatch::Prefix => member.starts_with(text),
            MemberMatch::Suffix => member.ends_with(text),
            MemberMatch::Substr => member.contains(text),
            MemberMatch::WdsKey => sample::split(member).0 == text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: [&str; 5] = ["a/1.txt", "a/1.cls", "a/10.txt", "b/1.seg.png", "c"];

    fn chosen(mode: &str, text: &str) -> Vec<&'static str> {
        let matcher = MemberMatcher::new(MemberMatch::parse(mode).unwrap(), text).unwrap();
        MEMBERS.into_iter().filter(|m| matcher.matches(m)).collect()
    }

    #[test]
    fn each_mode_chooses_its_members() {
        assert_eq!(chosen("regexp", r"1\.(txt|cls)$"), ["a/1.txt", "a/1.cls"]);
        assert_eq!(chosen("prefix", "a/1"), ["a/1.txt", "a/1.cls", "a/10.txt"]);
        assert_eq!(chosen("", "b"), ["b/1.seg.png"]);
        assert_eq!(chosen("suffix", ".txt"), ["a/1.txt", "a/10.txt"]);
        assert_eq!(chosen("substr", "/10"), ["a/10.txt"]);
        assert_eq!(chosen("wdskey", "a/1"), ["a/1.txt", "a/1.cls"]);
        assert_eq!(chosen("wdskey", "b/1"), ["b/1.seg.png"]);
        assert_eq!(chosen("wdskey", "a/1.txt"), [""; 0]);
        for mode in ["regexp", "prefix", "suffix", "substr", "wdskey"] {
            assert_eq!(chosen(mode, ""), MEMBERS, "{mode}");
            assert_eq!(MemberMatch::parse(mode).unwrap().as_str(), mode);
        }
    }

    #[test]
    fn what_cannot_be_compiled_is_refused_with_its_reason() {
        assert!(MemberMatch::parse("glob").unwrap_err().message.contains("\"glob\""));
        let new = |text: &str| MemberMatcher::new(MemberMatch::Regexp, text).unwrap_err();
        assert!(new("a(").message.contains("\"a(\""));
        assert!(new("(x{1000}){1000}").message.contains("invalid regular expression"));
        assert!(new(&"a".repeat(5000)).message.contains("5000 bytes"));
    }
}
