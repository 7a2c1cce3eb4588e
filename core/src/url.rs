//! Percent-encoding of paths and queries, the same in every protocol that Forebay itself speaks. (S3
//! signs its own form, in `s3::encode`.)

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, ErrorCode, Result};
use crate::shard::names;

/// Everything but unreserved characters and `/`.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Characters that must be encoded in a query value.
const QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'@');

/// Percent-encodes an object's name for a path.
pub fn encode_path(name: &str) -> String {
    utf8_percent_encode(name, PATH).to_string()
}

/// Percent-encodes one value of a query.
pub fn encode_query(value: &str) -> String {
    utf8_percent_encode(value, QUERY).to_string()
}

/// Decodes one path segment or name, once.
pub fn decode_path(text: &str) -> Result<String> {
    percent_decode_str(text).decode_utf8().map(Cow::into_owned).map_err(|_| {
        Error::new(ErrorCode::InvalidName, format!("\"{text}\" is not valid UTF-8 once decoded"))
    })
}

/// Decodes the keys and values of a query, in order; an absent query has none.
///
/// Values that are not UTF-8 are converted by [`names::requested`], like the names of members:
/// different bytes never become the same text.
pub fn query_pairs(query: Option<&str>) -> Vec<(String, String)> {
    let query = query.unwrap_or("");
    let pairs = form_urlencoded::parse(query.as_bytes());
    let pairs = pairs.map(|(k, v)| (k.into_owned(), v.into_owned()));
    let pairs: Vec<(String, String)> = pairs.collect();
    if pairs.iter().all(|(_, value)| !value.contains(char::REPLACEMENT_CHARACTER)) {
        return pairs;
    }
    let pieces = query.split('&').filter(|piece| !piece.is_empty());
    let values = pieces.map(|piece| decode_value(piece.split_once('=').map_or("", |(_, v)| v)));
    pairs.into_iter().zip(values).map(|((key, _), value)| (key, value)).collect()
}

/// Decodes the value of a query's parameter.
fn decode_value(text: &str) -> String {
    let spaced = text.replace('+', " ");
    let bytes: Cow<'_, [u8]> = percent_decode_str(&spaced).into();
    names::requested(&bytes).into_owned()
}

/// The decoded key of one `key=value` of a query.
pub fn pair_key(pair: &str) -> Cow<'_, str> {
    let key = pair.split('=').next().unwrap_or_default();
    form_urlencoded::parse(key.as_bytes()).next().map_or(Cow::Borrowed(""), |(key, _)| key)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_key_of_a_pair_is_the_one_that_a_decoded_query_has() {
        for pair in ["fbb=1", "%66bb=1", "f%62%62", "%66bb=a=b", "a+b=1", "%", "=x"] {
            let pairs = query_pairs(Some(pair));
            let key = pairs.first().map(|(key, _)| key.as_str());
            assert_eq!(key, Some(&*pair_key(pair)), "{pair}");
        }
        assert_eq!(pair_key(""), "");
    }

    #[test]
    fn values_that_are_not_utf8_stay_different() {
        let value = |query| query_pairs(Some(query)).remove(0).1;
        assert_eq!(value("a=%C3%BC+b"), "\u{fc} b");
        assert_ne!(value("a=%ff"), value("a=%fe"));
        assert!(query_pairs(None).is_empty());
    }

    proptest! {
        #[test]
        fn any_name_survives_the_path(name in "\\PC{1,40}") {
            let encoded = encode_path(&name);
            prop_assert!(encoded.is_ascii());
            prop_assert_eq!(decode_path(&encoded).unwrap(), name);
        }
    }
}
