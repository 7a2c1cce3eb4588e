//! Page tokens: the start of the next page, opaque to clients.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use forebay_core::name::MAX_OBJECT_NAME;

use super::error::{S3Error, S3Result};

/// Prefix with a version, so that tokens of other formats are refused and not misread.
const MARK: &str = "1:";

/// The token of the page after `last` (a key, a common prefix, a bucket's name).
pub fn encode(last: &str) -> String {
    BASE64.encode(format!("{MARK}{last}"))
}

/// Decodes the output of [`encode`]; the empty token is the start, any other text is an
/// `InvalidArgument`.
pub fn decode(token: &str) -> S3Result<String> {
    if token.is_empty() {
        return Ok(String::new());
    }
    BASE64
        .decode(token)
        .ok()
        .and_then(|raw| String::from_utf8(raw).ok())
        .and_then(|text| text.strip_prefix(MARK).map(str::to_owned))
        .filter(|last| last.len() <= MAX_OBJECT_NAME)
        .ok_or_else(|| {
            S3Error::argument(
                "continuation-token",
                token,
                "The continuation token provided is incorrect",
            )
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn foreign_tokens_are_refused() {
        for bad in ["!", "abc", "MTIz", "/w"] {
            assert!(decode(bad).is_err(), "{bad}");
        }
        assert_eq!(decode("").unwrap(), "");
    }

    proptest! {
        #[test]
        fn a_page_token_decodes_to_the_last_name(last in "\\PC{0,30}") {
            let token = encode(&last);
            let plain = token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            prop_assert!(plain, "it needs no encoding in a query");
            prop_assert_eq!(decode(&token).unwrap(), last);
        }
    }
}
