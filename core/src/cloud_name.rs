//! Naming rules of the clouds for their buckets, so that an impossible name is refused before a
//! request to a cloud.

use crate::bucket::BackendKind;
use crate::{Error, ErrorCode, Result};

/// Minimum and maximum bytes of a name; Google allows more if dots divide it.
const LENGTHS: std::ops::RangeInclusive<usize> = 3..=63;

/// [`ErrorCode::InvalidName`] if no bucket of this kind of cloud can have the name. Old buckets of
/// S3 may have capitals and underscores.
pub fn check(kind: BackendKind, name: &str) -> Result<()> {
    let Some(rule) = broken_rule(kind, name) else { return Ok(()) };
    let cloud = match kind {
        BackendKind::Gcs => "Google Cloud Storage",
        BackendKind::Azure => "Azure",
        _ => "S3",
    };
    let text = format!("invalid bucket name \"{name}\": in {cloud} a name {rule}");
    Err(Error::new(ErrorCode::InvalidName, text))
}

fn broken_rule(kind: BackendKind, name: &str) -> Option<&'static str> {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let allowed = |b: u8| match kind {
        BackendKind::Gcs => lower(b) || b"-_.".contains(&b),
        BackendKind::Azure => lower(b) || b == b'-',
        _ => b.is_ascii_alphanumeric() || b"-_.".contains(&b),
    };
    let rule = match kind {
        BackendKind::Gcs => "has lower-case letters, digits, dashes, underscores and dots only",
        BackendKind::Azure => "has lower-case letters, digits and dashes only",
        BackendKind::S3 => "has letters, digits, dashes, underscores and dots only",
        BackendKind::Ais | BackendKind::Http | BackendKind::Folder => return None,
    };
    if kind == BackendKind::Azure && ["$root", "$web", "$logs"].contains(&name) {
        return None;
    }
    let ends = [name.bytes().next(), name.bytes().last()];
    let longest = if kind == BackendKind::Gcs && name.contains('.') { 222 } else { *LENGTHS.end() };
    let is_address = name.parse::<std::net::Ipv4Addr>().is_ok();
    match name {
        _ if !(*LENGTHS.start()..=longest).contains(&name.len()) => Some("has 3 to 63 characters"),
        _ if !name.bytes().all(allowed) => Some(rule),
        _ if ends.into_iter().flatten().any(|b| !b.is_ascii_alphanumeric()) => {
            Some("begins and ends with a letter or a digit")
        }
        _ if name.contains("..") => Some("has no two dots side by side"),
        _ if kind == BackendKind::Azure && name.contains("--") => {
            Some("has no two dashes side by side")
        }
        _ if is_address => Some("is no IP address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_cloud_cannot_have_are_refused_and_others_are_not() {
        use BackendKind::{Ais, Azure, Folder, Gcs, S3};
        let long = "x".repeat(64);
        let wrong: &[(BackendKind, &str)] = &[
            (S3, "ab"),
            (S3, &long),
            (S3, "a..b"),
            (S3, "-abc"),
            (S3, "abc."),
            (S3, "a b c"),
            (S3, "192.168.5.4"),
            (Gcs, "Photos"),
            (Gcs, "ab"),
            (Gcs, "abc_"),
            (Azure, "my_container"),
            (Azure, "my.container"),
            (Azure, "my--container"),
            (Azure, "Container"),
        ];
        for (kind, name) in wrong {
            let refused = check(*kind, name).map_err(|e| e.code);
            assert_eq!(refused, Err(ErrorCode::InvalidName), "{kind:?} {name}");
        }
        let right = [
            (S3, "abc"),
            (S3, "my.bucket-1"),
            (S3, "Old_Bucket"),
            (Gcs, "a_b.example.com"),
            (Azure, "my-container"),
            (Azure, "$web"),
            (Ais, "b"),
            (Folder, "B"),
        ];
        for (kind, name) in right {
            assert!(check(kind, name).is_ok(), "{kind:?} {name}");
        }
    }
}
