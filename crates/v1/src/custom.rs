//! Custom metadata of objects: the names and sizes that nodes can send to each other in headers.

use std::collections::BTreeMap;

use forebay_core::error::{Error, Result};

/// Maximum bytes of all names and values of an object, each pair with [`PAIR_BYTES`] more. A request
/// between nodes has at most 64 KiB of headers, and one of them may hold all pairs in base64.
pub const MAX_CUSTOM_BYTES: usize = 32 << 10;
/// Maximum number of pairs of an object: a request has at most 512 headers.
pub const MAX_CUSTOM_PAIRS: usize = 256;
/// Bytes of a header beside the name and value of its pair.
const PAIR_BYTES: usize = "ais-custom-md: =\r\n".len();

/// Checks all custom metadata of an object, since each pair is a header `name=value` of answers and
/// of requests between nodes.
pub fn check_custom(custom: &BTreeMap<String, String>) -> Result<()> {
    let is_line = |text: &str| !text.chars().any(char::is_control);
    if let Some((key, _)) = custom.iter().find(|(key, value)| !is_line(key) || !is_line(value)) {
        let key = key.escape_debug();
        return Err(Error::invalid(format!("custom metadata \"{key}\" has control characters"))
            .hint("encode texts of several lines, for example in base64"));
    }
    if let Some(key) = custom.keys().find(|key| key.is_empty() || key.contains('=')) {
        return Err(Error::invalid(format!(
            "\"{key}\" cannot be a name of custom metadata: it is empty or has a \"=\""
        )));
    }
    let bytes: usize = custom.iter().map(|(key, value)| key.len() + value.len() + PAIR_BYTES).sum();
    if custom.len() > MAX_CUSTOM_PAIRS || bytes > MAX_CUSTOM_BYTES {
        return Err(Error::invalid(format!(
            "{} pairs and {bytes} bytes of custom metadata are too many: the limits are \
             {MAX_CUSTOM_PAIRS} pairs and {MAX_CUSTOM_BYTES} bytes",
            custom.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(key: &str, value: &str) -> Result<()> {
        check_custom(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn a_pair_is_a_line_with_a_name_before_its_first_equals_sign() {
        for (key, value) in [("k", "a=b"), ("k;,|", "\\\"'`<>&%{}"), ("ü", "\u{1f600}"), ("k", "")]
        {
            check(key, value).unwrap();
        }
        for (key, value) in [("", "v"), ("k=l", "v"), ("=", ""), ("k\n", "v"), ("k", "a\r\nb: c")] {
            assert_eq!(check(key, value).unwrap_err().code.status(), 400, "{key:?}");
        }
    }

    #[test]
    fn the_pairs_of_an_object_fit_into_the_headers_of_a_request() {
        check("k", &"v".repeat(MAX_CUSTOM_BYTES - PAIR_BYTES - 1)).unwrap();
        assert!(check("k", &"v".repeat(MAX_CUSTOM_BYTES - PAIR_BYTES)).is_err());
        let many = |count| (0..count).map(|n| (n.to_string(), String::new())).collect();
        check_custom(&many(MAX_CUSTOM_PAIRS)).unwrap();
        assert!(check_custom(&many(MAX_CUSTOM_PAIRS + 1)).is_err());
    }
}
