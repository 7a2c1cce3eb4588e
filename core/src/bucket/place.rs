//! The place of a bucket in its cloud: account, region and endpoint.

use serde_json::Value;

use super::{BackendKind, BackendSpec, BucketInfo};
use crate::egress::EndpointTrust;
use crate::error::{Error, ErrorCode, Result};
use crate::name::Bucket;

/// Maximum characters of the name of an account or a region.
const MAX_NAME: usize = 64;

/// Keys of the place, as in [`BackendSpec`].
const KEYS: [&str; 3] = ["account", "region", "endpoint"];

/// Checks the form of the name of an account: 1 to 64 letters, digits, `-` or `_`.
pub fn check_account(name: &str) -> Result<()> {
    check_word("account", name)
}

fn check_word(what: &str, name: &str) -> Result<()> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_word) {
        return Ok(());
    }
    let shown: String = name.chars().take(MAX_NAME).collect();
    let text = format!("\"{}\" is not the name of a cloud's {what}", shown.escape_debug());
    Err(Error::new(ErrorCode::InvalidArgument, text).hint("1 to 64 letters, digits, '-' or '_'"))
}

impl BackendKind {
    /// Whether buckets of this kind are in a cloud with accounts.
    pub fn has_accounts(self) -> bool {
        matches!(self, Self::S3 | Self::Gcs | Self::Azure)
    }
}

impl BackendSpec {
    /// The bucket of this name, with the account and endpoint of the environment.
    pub fn new(kind: BackendKind, bucket: &str) -> Self {
        let bucket = bucket.to_owned();
        Self { kind, bucket, endpoint: None, root: None, account: None, region: None }
    }

    /// Whether both have the same objects: only the region may differ.
    pub fn is_same_source(&self, other: &Self) -> bool {
        let Self { kind, bucket, endpoint, root, account, region: _ } = self;
        (kind, bucket, endpoint, root, account)
            == (&other.kind, &other.bucket, &other.endpoint, &other.root, &other.account)
    }

    pub(super) fn validate(&self, bucket: &Bucket) -> Result<()> {
        let refuse = |what: &str| {
            let kind = self.kind;
            let text = format!(
                "bucket \"{bucket}\" has a backend of the kind {kind:?}, which has no {what}"
            );
            Err(Error::invalid(text))
        };
        if let Some(account) = &self.account {
            if !self.kind.has_accounts() {
                return refuse("account");
            }
            check_account(account)?;
        }
        if let Some(region) = &self.region {
            if self.kind != BackendKind::S3 {
                return refuse("region");
            }
            check_word("region", region)?;
        }
        Ok(())
    }
}

impl BucketInfo {
    /// Sets account, region and endpoint, as far as `place` has them; an empty text or null removes one.
    /// Other keys are ignored.
    pub fn set_place(&mut self, place: &Value) -> Result<()> {
        for key in KEYS {
            let value = match place.get(key) {
                None => continue,
                Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.is_empty()),
                Some(_) => {
                    return Err(Error::invalid(format!(
                        "invalid bucket property \"backend.{key}\": it is no text"
                    )));
                }
            };
            let Some(spec) = &mut self.backend else {
                if value.is_none() {
                    continue;
                }
                let text = format!("bucket \"{}\" has no backend, so no {key}", self.bucket);
                return Err(Error::invalid(text));
            };
            let now = match key {
                "account" => &mut spec.account,
                "region" => &mut spec.region,
                _ => &mut spec.endpoint,
            };
            if *now == value {
                continue;
            }
            *now = value;
            if key != "endpoint" {
                continue;
            }
            if !spec.kind.has_accounts() {
                let text = format!("the endpoint of bucket \"{}\" cannot be changed", self.bucket);
                return Err(Error::invalid(text).hint("make a new bucket"));
            }
            // Never accepted: that is for endpoints from before there was a rule.
            self.endpoint_trust = match spec.endpoint {
                Some(_) => EndpointTrust::Judged,
                None => EndpointTrust::Accepted,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::name::Provider;

    fn info(provider: Provider) -> BucketInfo {
        BucketInfo::requested(Bucket::new(provider, "data").unwrap(), None)
    }

    #[test]
    fn account_and_region_are_set_one_by_one_and_removed() {
        let mut info = info(Provider::Aws);
        info.set_place(&json!({"account": "prod", "type": "s3", "bucket": "data"})).unwrap();
        info.set_place(&json!({"region": "eu-west-1"})).unwrap();
        info.validate().unwrap();
        let spec = info.backend.clone().unwrap();
        assert_eq!(
            (spec.account.as_deref(), spec.region.as_deref()),
            (Some("prod"), Some("eu-west-1"))
        );
        let mut elsewhere = spec.clone();
        elsewhere.region = None;
        assert!(spec.is_same_source(&elsewhere));
        elsewhere.account = None;
        assert!(!spec.is_same_source(&elsewhere));
        info.set_place(&json!({"account": "", "region": null})).unwrap();
        assert_eq!(info.backend, self::info(Provider::Aws).backend);
    }

    #[test]
    fn an_endpoint_that_is_set_is_judged_and_never_accepted() {
        let mut info = info(Provider::Azure);
        info.set_place(&json!({"endpoint": "http://10.0.0.1:1"})).unwrap();
        assert_eq!(info.endpoint_trust, EndpointTrust::Judged);
    }

    #[test]
    fn a_place_that_the_backend_cannot_have_is_refused() {
        for (provider, place) in [
            (Provider::Ais, json!({"account": "prod"})),
            (Provider::Gcp, json!({"region": "eu"})),
            (Provider::Aws, json!({"account": "../prod"})),
            (Provider::Aws, json!({"account": 5})),
        ] {
            let mut info = info(provider);
            let set = info.set_place(&place).and_then(|()| info.validate());
            assert_eq!(set.unwrap_err().code, ErrorCode::InvalidArgument, "{place}");
        }
    }

    #[test]
    fn a_bucket_without_account_is_stored_as_before() {
        let text = serde_json::to_value(info(Provider::Aws).backend).unwrap();
        assert_eq!(text, json!({"type": "s3", "bucket": "data"}));
    }
}
