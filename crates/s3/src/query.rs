//! The query of an S3 request: parameters in order, and the numbers and words in them.

use std::borrow::Cow;

use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// A parsed query. Unlike in v1, an empty value is a value: `?uploads` and `?uploads=` are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes once; anything that is not UTF-8 is an invalid URI.
    pub fn parse(raw: &str) -> S3Result<Self> {
        let mut pairs = Vec::new();
        for pair in raw.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// A value; `None` if it is empty.
    pub fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|v| !v.is_empty())
    }

    /// A count: `default` if absent or empty, at most `most`; an error if it is not a number.
    pub fn count(&self, name: &str, default: u32, most: u32) -> S3Result<u32> {
        match self.filled(name) {
            None => Ok(default),
            Some(text) => Ok(number(name, text)?.min(u64::from(most)) as u32),
        }
    }
}

/// A parameter's integer, at most 2^31 - 1 as in AWS.
pub(super) fn number(name: &str, text: &str) -> S3Result<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(n) if digits && n <= i32::MAX as u64 => Ok(n),
        _ => Err(S3Error::argument(
            name,
            text,
            format!("Argument {name} must be an integer between 0 and 2147483647"),
        )),
    }
}

fn decode(text: &str) -> S3Result<String> {
    let text = if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { text.into() };
    match percent_encoding::percent_decode_str(&text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(S3Code::InvalidURI.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_once_and_kept_when_empty() {
        let q = Query::parse("uploads&prefix=a%2Bb+c&delimiter=&x=%2525&&=").unwrap();
        assert!(q.has("uploads") && !q.has("upload"));
        assert_eq!(q.get("prefix"), Some("a+b c"));
        assert_eq!((q.get("delimiter"), q.filled("delimiter")), (Some(""), None));
        assert_eq!(q.get("x"), Some("%25"));
        assert_eq!(Query::parse("a=%ff").unwrap_err().code, S3Code::InvalidURI);
    }

    #[test]
    fn counts_are_bounded_and_checked() {
        let q = Query::parse("a=7&b=2000&c=&d=x&e=-1&f=2147483648&g=+1").unwrap();
        assert_eq!(q.count("a", 1000, 1000).unwrap(), 7);
        assert_eq!(q.count("b", 1000, 1000).unwrap(), 1000);
        assert_eq!(q.count("c", 1000, 1000).unwrap(), 1000);
        for bad in ["d", "e", "f", "g"] {
            assert_eq!(q.count(bad, 1, 1).unwrap_err().code, S3Code::InvalidArgument);
        }
    }
}
