//! Properties of a bucket: its guarantees, and the backend of its objects.
//!
//! The state of the cluster and the log of commands store [`BucketInfo`] and everything in it. These
//! types belong to no protocol: the fronts of v1 and S3 convert theirs to them.

mod acl;
mod fetch_ranges;
mod place;
mod s3_settings;
mod sections;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use serde::{Deserialize, Serialize};

pub use self::acl::{Acl, Grant, Grantee, Permission};
pub use self::fetch_ranges::FetchRanges;
pub use self::place::check_account;
pub use self::s3_settings::{CorsRule, S3Settings, Tag, Versioning};
use crate::cache_rules::CacheRules;
use crate::checksum::ChecksumKind;
use crate::cloud_rules::CloudRules;
use crate::egress::EndpointTrust;
use crate::erasure::Erasure;
use crate::error::{Error, Result};
use crate::name::{Bucket, Provider};

/// Kinds of backend that exist in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    S3,
    Gcs,
    Azure,
    /// A bucket of another cluster, Forebay or AIStore.
    Ais,
    /// An HTTP(S) origin, which can only be read.
    Http,
    Folder,
}

/// The backend of a bucket's objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendSpec {
    #[serde(rename = "type")]
    pub kind: BackendKind,
    /// The bucket's name at the backend; empty for folders and origins.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bucket: String,
    /// URL of the backend; the provider's own (or the environment's) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Folder backends: absolute path, under one of the configured roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Name of the account in the configuration of the targets; the one of their environment when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Region of a bucket of S3; found out when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// Maximum copies: each copy adds to the cost of every write.
const MAX_COPIES: u32 = 8;

/// The durability of an acknowledged write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Synced to disk before the answer: the default of native buckets.
    #[default]
    Owned,
    /// Not synced: the content can be fetched or produced again.
    Cache,
}

/// When a cached copy of a backend's object must be compared with the backend before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    Never,
    /// After this many seconds since the last comparison.
    Age(u64),
    Always,
}

impl Default for Freshness {
    /// Ten minutes: a change of the data between epochs is noticed, and an epoch needs no lookups.
    fn default() -> Self {
        Self::Age(600)
    }
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Everything the cluster keeps about a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfo {
    pub bucket: Bucket,
    /// Never reused; part of every key on disk, so that a recreated bucket starts empty.
    pub id: u64,
    /// Unix nanoseconds.
    pub created_ns: u64,
    /// Version of the cluster's state at which it was created.
    pub created_version: u64,
    #[serde(default)]
    pub class: Class,
    /// Number of targets that have a copy of each object of a native bucket.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub copies: u32,
    /// Erasure coding of a native bucket: slices on several targets, in addition to the whole
    /// object on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasure: Option<Erasure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendSpec>,
    /// Whether the endpoint of the backend was checked when the bucket was made; absent without one.
    #[serde(default, skip_serializing_if = "EndpointTrust::is_accepted")]
    pub endpoint_trust: EndpointTrust,
    #[serde(default)]
    pub freshness: Freshness,
    #[serde(default)]
    pub checksum: ChecksumKind,
    #[serde(default, skip_serializing_if = "CacheRules::is_default")]
    pub cache: CacheRules,
    #[serde(default, skip_serializing_if = "CloudRules::is_default")]
    pub cloud: CloudRules,
    /// Settings that only S3 has.
    #[serde(default, skip_serializing_if = "S3Settings::is_default")]
    pub s3: S3Settings,
    /// Sections of properties that clients set and read back; [`Self::set_section`] changes one.
    /// Values with a meaning for Forebay are in the other fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl BucketInfo {
    /// Whether objects of this bucket may be dropped from the cluster, because its backend has
    /// them.
    pub fn has_backend(&self) -> bool {
        self.backend.is_some()
    }

    /// Whether the backend has an endpoint that a caller named.
    pub fn has_endpoint(&self) -> bool {
        self.backend.as_ref().is_some_and(|spec| spec.endpoint.is_some())
    }

    /// The bucket with the rules of a request that has these headers.
    pub fn with_request_rules(self: Arc<Self>, headers: &HeaderMap) -> Result<Arc<Self>> {
        let cloud = self.cloud.with_request_rules(headers)?;
        Ok(if cloud == self.cloud { self } else { self.with_cloud(cloud) })
    }

    fn with_cloud(&self, cloud: CloudRules) -> Arc<Self> {
        Arc::new(Self { cloud, ..self.clone() })
    }

    /// The bucket with some rules overridden.
    pub fn asked_by(self: Arc<Self>, rules: &CloudRules) -> Arc<Self> {
        let cloud = self.cloud.overlaid(rules);
        if cloud == self.cloud { self } else { self.with_cloud(cloud) }
    }

    /// Whether each object is on several targets, as copies or as slices.
    pub fn has_copies(&self) -> bool {
        (self.copies > 1 || self.erasure.is_some()) && !self.has_backend()
    }

    /// Whether older versions of its objects are kept, or some were.
    pub fn keeps_versions(&self) -> bool {
        !self.has_backend() && self.s3.versioning != Versioning::Unset
    }

    /// Number of targets that have some part of an object.
    pub fn places(&self) -> usize {
        self.erasure.map_or(self.copies as usize, |erasure| erasure.width())
    }

    /// Number of targets that have the metadata of every object; one of them is its owner.
    pub fn metadata_holders(&self) -> usize {
        self.erasure.map_or(self.copies as usize, |erasure| erasure.metadata_holders())
    }

    /// Checks rules that involve several properties.
    pub fn validate(&self) -> Result<()> {
        self.cache.validate()?;
        if let Some(spec) = &self.backend {
            spec.validate(&self.bucket)?;
        }
        if !(1..=MAX_COPIES).contains(&self.copies) {
            let text = format!("bucket \"{}\": {} copies of each object", self.bucket, self.copies);
            return Err(Error::invalid(text).hint(format!("there can be 1 to {MAX_COPIES}")));
        }
        if self.copies > 1 && self.has_backend() {
            return Err(Error::invalid(format!(
                "bucket \"{}\" has a backend, which keeps its objects: there are no copies of them",
                self.bucket
            )));
        }
        if self.copies > 1 && self.s3.versioning != Versioning::Unset {
            return Err(Error::invalid(format!(
                "bucket \"{}\" keeps versions of its objects: those have one copy",
                self.bucket
            )));
        }
        if let Some(erasure) = &self.erasure {
            self.validate_erasure(erasure)?;
        }
        if !self.has_backend() && !self.cache.is_default() {
            return Err(Error::invalid(format!(
                "bucket \"{}\" has no backend: its objects are never dropped, so rules of the cache \
                 do not apply",
                self.bucket
            )));
        }
        if self.has_backend() && self.quota().is_set() {
            return Err(Error::invalid(format!(
                "bucket \"{}\" has a backend, which keeps its objects: it cannot have a quota",
                self.bucket
            ))
            .hint("share limits what is cached of it"));
        }
        if !self.has_backend() && !self.cloud.is_default() {
            return Err(Error::invalid(format!(
                "bucket \"{}\" has no backend: rules of its cloud do not apply",
                self.bucket
            )));
        }
        Ok(())
    }

    fn validate_erasure(&self, erasure: &Erasure) -> Result<()> {
        erasure.validate()?;
        let bucket = &self.bucket;
        if self.has_backend() {
            return Err(Error::invalid(format!(
                "bucket \"{bucket}\" has a backend, which keeps its objects: they are not erasure coded"
            )));
        }
        if self.copies > 1 {
            return Err(Error::invalid(format!(
                "bucket \"{bucket}\" has {} copies of each object: it cannot be erasure coded as well",
                self.copies
            ))
            .hint("set copies to 1 in the same request, or first"));
        }
        if self.s3.versioning != Versioning::Unset {
            return Err(Error::invalid(format!(
                "bucket \"{bucket}\" keeps versions of its objects: those are not erasure coded"
            )));
        }
        Ok(())
    }

    /// The properties of a new `bucket`, before the cluster gives it an id.
    pub fn requested(bucket: Bucket, backend: Option<BackendSpec>) -> Self {
        let backend = backend.or_else(|| implied_backend(&bucket));
        let class = if backend.is_some() { Class::Cache } else { Class::Owned };
        let names_endpoint = backend.as_ref().is_some_and(|spec| spec.endpoint.is_some());
        let endpoint_trust =
            if names_endpoint { EndpointTrust::Judged } else { EndpointTrust::Accepted };
        Self {
            bucket,
            id: 0,
            created_ns: 0,
            created_version: 0,
            class,
            copies: 1,
            erasure: None,
            backend,
            endpoint_trust,
            freshness: Freshness::default(),
            checksum: ChecksumKind::default(),
            cache: CacheRules::default(),
            cloud: CloudRules::default(),
            s3: S3Settings::default(),
            extra: BTreeMap::new(),
        }
    }
}

/// The backend implied by a provider; `None` for native buckets and providers without one yet.
pub fn implied_backend(bucket: &Bucket) -> Option<BackendSpec> {
    let kind = match bucket.provider {
        Provider::Aws => BackendKind::S3,
        Provider::Gcp => BackendKind::Gcs,
        Provider::Azure => BackendKind::Azure,
        Provider::Ais | Provider::Ht => return None,
    };
    Some(BackendSpec::new(kind, &bucket.name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn info(provider: Provider) -> BucketInfo {
        BucketInfo::requested(Bucket::new(provider, "b").unwrap(), None)
    }

    #[test]
    fn a_state_from_before_there_were_rules_of_the_cache_is_read() {
        let written = serde_json::to_value(info(Provider::Aws)).unwrap();
        assert!(written.get("cache").is_none(), "nor does an older version see an unknown field");
        let read: BucketInfo = serde_json::from_value(written).unwrap();
        assert_eq!(read, info(Provider::Aws));
    }

    #[test]
    fn an_endpoint_from_before_there_was_a_rule_is_accepted_and_written_as_before() {
        let bucket = serde_json::to_value(info(Provider::Ais).bucket).unwrap();
        let old = serde_json::json!({
            "bucket": bucket, "id": 7, "created_ns": 1, "created_version": 2, "class": "cache",
            "backend": {"type": "s3", "bucket": "b", "endpoint": "http://10.0.0.1:9000"},
            "freshness": {"age": 600}, "checksum": ChecksumKind::default(),
        });
        let read: BucketInfo = serde_json::from_value(old.clone()).unwrap();
        assert_eq!(read.endpoint_trust, EndpointTrust::Accepted);
        assert_eq!(serde_json::to_value(&read).unwrap(), old);
        let made = BucketInfo::requested(read.bucket.clone(), read.backend.clone());
        assert_eq!(made.endpoint_trust, EndpointTrust::Judged);
        let written = serde_json::to_value(&made).unwrap();
        assert_eq!(written["endpoint_trust"], "judged");
        assert_eq!(serde_json::from_value::<BucketInfo>(written).unwrap(), made);
        let plain = serde_json::to_value(info(Provider::Aws)).unwrap();
        assert!(plain.get("endpoint_trust").is_none(), "it names no endpoint");
    }

    #[test]
    fn copies_are_for_native_buckets_that_keep_no_versions() {
        BucketInfo { copies: 3, ..info(Provider::Ais) }.validate().unwrap();
        let mut versioned = BucketInfo { copies: 2, ..info(Provider::Ais) };
        versioned.s3.versioning = Versioning::Enabled;
        let (none, many) = (0, MAX_COPIES + 1);
        for bad in [
            BucketInfo { copies: 2, ..info(Provider::Aws) },
            BucketInfo { copies: none, ..info(Provider::Ais) },
            BucketInfo { copies: many, ..info(Provider::Ais) },
            versioned,
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn erasure_coding_is_for_native_buckets_of_one_copy_that_keep_no_versions() {
        let erasure = Some(Erasure::default());
        let coded = BucketInfo { erasure, ..info(Provider::Ais) };
        coded.validate().unwrap();
        assert!(coded.has_copies());
        assert_eq!((coded.places(), coded.metadata_holders()), (5, 3));
        let mut versioned = coded.clone();
        versioned.s3.versioning = Versioning::Enabled;
        for (bad, word) in [
            (BucketInfo { erasure, ..info(Provider::Aws) }, "backend"),
            (BucketInfo { copies: 2, ..coded.clone() }, "copies"),
            (versioned, "versions"),
        ] {
            let e = bad.validate().unwrap_err();
            assert!(e.message.contains(word), "{e}");
        }
        let plain = serde_json::to_value(info(Provider::Ais)).unwrap();
        assert!(plain.get("erasure").is_none(), "an older version sees what it knows");
    }

    #[test]
    fn rules_of_the_cache_are_for_buckets_with_a_backend() {
        let rules = CacheRules { pin: true, ..CacheRules::default() };
        let cloud = BucketInfo { cache: rules, ..info(Provider::Aws) };
        cloud.validate().unwrap();
        let native = BucketInfo { cache: rules, ..info(Provider::Ais) };
        assert!(native.validate().unwrap_err().message.contains("no backend"));
        info(Provider::Ais).validate().unwrap();
    }
}
