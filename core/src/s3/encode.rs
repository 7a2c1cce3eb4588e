//! Percent-encoding as S3 does it: everything but unreserved characters, upper-case hexadecimal.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What signatures and `encoding-type=url` leave as it is.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// Encodes a key for `encoding-type=url` or a path; slashes stay.
pub fn encode_key(key: &str) -> Cow<'_, str> {
    percent_encode(key.as_bytes(), PATH).into()
}

/// Encodes a key when the listing asked for it.
pub fn encode_if(encode: bool, key: &str) -> Cow<'_, str> {
    if encode { encode_key(key) } else { Cow::Borrowed(key) }
}

/// Encodes one name or value of a canonical query.
pub fn encode_query(value: &[u8]) -> Cow<'_, str> {
    percent_encode(value, UNRESERVED).into()
}

/// Encodes the decoded bytes of a path.
pub fn encode_path(path: &[u8]) -> Cow<'_, str> {
    percent_encode(path, PATH).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_unreserved_characters_stay() {
        assert_eq!(encode_key("foo+1/b a~r-_."), "foo%2B1/b%20a~r-_.");
        assert_eq!(encode_key("ü"), "%C3%BC");
        assert_eq!(encode_query(b"a/b="), "a%2Fb%3D");
        assert_eq!(encode_if(false, "a b"), "a b");
    }
}
