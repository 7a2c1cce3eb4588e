//! S3's rules for names of new buckets.
//!
//! Existing buckets are accessible under their names in any case: AIStore's rules are wider.

use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// 3 to 63 of lower-case letters, digits, `-` and `.`; letter or digit at both ends of each label;
/// not an IP address.
pub fn check_new_bucket(name: &str) -> S3Result<()> {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    let ok = (3..=63).contains(&name.len())
        && name.split('.').all(label)
        && name.parse::<std::net::Ipv4Addr>().is_err();
    if ok {
        return Ok(());
    }
    Err(S3Error::from(S3Code::InvalidBucketName).detail("BucketName", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_new_buckets_follow_dns() {
        for good in ["abc", "0foo", "a.b-c.d", &"a".repeat(63)] {
            assert!(check_new_bucket(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "aa",
            "_foo",
            "foo_bar",
            "foo-",
            "foo..bar",
            "foo.-bar",
            "foo-.bar",
            "Foo",
            "192.168.5.123",
            ".foo",
            "fü-bar",
            &"a".repeat(64),
        ] {
            assert!(check_new_bucket(bad).is_err(), "{bad}");
        }
    }
}
