//! The operations that a bucket's `access` property allows: bits of AIStore's permission mask. It
//! can refuse only writes; everything is allowed by default.

use serde_json::Value;

use crate::bucket::BucketInfo;
use crate::error::{Error, ErrorCode, Result};

/// The property of a bucket.
pub const ACCESS: &str = "access";

/// Permissions needed for reading: GET, HEAD of objects, HEAD of the bucket, listing.
const READ_BITS: u64 = 1 | 2 | 256 | 512;

/// A change that an access mask may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketChange {
    Put,
    Append,
    Delete,
    Rename,
    /// Removal of the bucket itself, with its objects.
    Destroy,
}

impl BucketChange {
    /// Bits of which the mask must have at least one.
    fn bits(self) -> u64 {
        match self {
            Self::Put => 4,
            Self::Append => 8,
            Self::Delete => 16,
            Self::Rename => 32,
            Self::Destroy => 16 | 32_768,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Append => "APPEND",
            Self::Delete => "DELETE",
            Self::Rename => "RENAME",
            Self::Destroy => "to destroy the bucket",
        }
    }
}

fn mask(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64(),
    }
}

/// Refuses a mask that would block readers: reads are open to all.
pub fn check_mask(value: &Value) -> Result<()> {
    match mask(value) {
        Some(mask) if mask & READ_BITS == READ_BITS => Ok(()),
        Some(mask) => Err(Error::unsupported(format!(
            "access {mask} refuses reads, which no bucket does: only writes can be refused"
        ))
        .hint("771 is read-only; 18446744073709551615 allows everything")),
        None => Err(Error::invalid(format!("invalid access {value}: it is a mask of permissions"))),
    }
}

impl BucketInfo {
    /// `AccessDenied` if the bucket's `access` does not allow the change.
    pub fn check_access(&self, change: BucketChange) -> Result<()> {
        let Some(mask) = self.extra.get(ACCESS).and_then(mask) else { return Ok(()) };
        if mask & change.bits() != 0 {
            return Ok(());
        }
        let (bucket, name) = (&self.bucket, change.name());
        Err(Error::new(
            ErrorCode::AccessDenied,
            format!("bucket \"{bucket}\" does not allow {name}: its access is {mask}"),
        )
        .hint("set the bucket's property \"access\" to allow it"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::name::{Bucket, Provider};

    #[test]
    fn a_read_only_bucket_refuses_every_change_and_others_allow_theirs() {
        let with = |access: Option<&str>| {
            let bucket = Bucket::new(Provider::Ais, "b").unwrap();
            let mut info = BucketInfo::requested(bucket, None);
            info.extra.extend(access.map(|text| (ACCESS.to_owned(), json!(text))));
            info
        };
        use BucketChange::*;
        let all = [Put, Append, Delete, Rename, Destroy];
        for (access, allowed) in [
            (None, &all[..]),
            (Some("18446744073709551615"), &all),
            (Some("771"), &[]),
            (Some("831"), &all),
            (Some("775"), &[Put]),
            (Some("33539"), &[Destroy]),
        ] {
            let info = with(access);
            let got: Vec<_> = all.into_iter().filter(|c| info.check_access(*c).is_ok()).collect();
            assert_eq!(got, allowed, "{access:?}");
        }
        let error = with(Some("771")).check_access(Delete).unwrap_err();
        assert_eq!(error.code, ErrorCode::AccessDenied);
        assert!(error.message.contains("does not allow DELETE"), "{error}");
    }

    #[test]
    fn a_mask_that_keeps_readers_out_is_refused() {
        assert!(check_mask(&json!("771")).is_ok() && check_mask(&json!(771)).is_ok());
        assert_eq!(check_mask(&json!("0")).unwrap_err().code, ErrorCode::Unsupported);
        assert_eq!(check_mask(&json!("770")).unwrap_err().code, ErrorCode::Unsupported);
        assert_eq!(check_mask(&json!("ro")).unwrap_err().code, ErrorCode::InvalidArgument);
    }
}
