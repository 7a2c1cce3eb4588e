//! Compositions: one object made of up to 32, each of a given generation.

use forebay_core::bill::RequestClass;
use forebay_core::error::{Error, ErrorCode, Result};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::list::Resource;
use super::{GcsBackend, object_path};
use crate::{Described, RemoteMeta};

/// The settings that decide whether temporary objects cost more than the calls for them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BucketResource {
    storage_class: String,
    soft_delete_policy: Option<Retention>,
    retention_policy: Option<Retention>,
    versioning: Option<Versioning>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Retention {
    retention_duration_seconds: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Versioning {
    enabled: bool,
}

impl BucketResource {
    /// Why temporary objects are unsuitable for this bucket, and which setting would change that.
    fn objection(&self) -> Option<(String, &'static str)> {
        let soft = self.soft_delete_policy.as_ref().map(|soft| &*soft.retention_duration_seconds);
        if let Some(soft) = soft.filter(|soft| !matches!(*soft, "" | "0")) {
            let why = format!("it keeps what was deleted for {soft} seconds more (soft delete)");
            return Some((why, "disable soft delete of the bucket"));
        }
        if self.retention_policy.is_some() {
            let why = "its retention policy forbids to delete what is new".to_owned();
            return Some((why, "use a bucket without a retention policy"));
        }
        if self.versioning.as_ref().is_some_and(|versioning| versioning.enabled) {
            let why = "it keeps the versions of what was deleted".to_owned();
            return Some((why, "disable versioning of the bucket"));
        }
        if !matches!(self.storage_class.as_str(), "" | "STANDARD") {
            let why = format!(
                "objects of its storage class {} cost a minimum time however soon they go",
                self.storage_class
            );
            return Some((why, "use a bucket of storage class STANDARD"));
        }
        None
    }
}

impl GcsBackend {
    /// Fails if temporary objects would cost more than they save.
    pub(super) async fn check_bucket_for_composing(&self) -> Result<()> {
        let path = format!("/storage/v1/b/{}", self.remote);
        let query = [("fields", "storageClass,softDeletePolicy,retentionPolicy,versioning")];
        let request = self.request(RequestClass::B, Method::GET, &path, &query);
        let found = self.json::<BucketResource>(request).await;
        let bucket = &self.errors.place.bucket;
        let force = "or set cloud.compose=force if that is meant";
        let found = found.map_err(|failure| {
            let e = self.errors.of(&failure, None);
            let text = format!("what bucket \"{bucket}\" keeps cannot be seen: {}", e.message);
            match e.code {
                ErrorCode::AccessDenied => Error::new(e.code, text)
                    .hint(format!("give the targets the right storage.buckets.get, {force}")),
                _ => Error { message: text, ..e },
            }
        })?;
        match found.objection() {
            None => Ok(()),
            Some((why, change)) => {
                let text = format!("bucket \"{bucket}\" is not one to compose in: {why}");
                Err(Error::invalid(text).hint(format!("{change}, {force}")))
            }
        }
    }

    /// Current objects from a name on, including temporary ones.
    pub(super) async fn describe_objects(
        &self,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Described>> {
        let fields = "items(name,size,generation,md5Hash,crc32c,contentType,metadata)";
        let listing = self.listing(fields, "", from, limit, "").await?;
        listing.items.into_iter().map(|item| self.described(item)).collect()
    }

    fn described(&self, item: Resource) -> Result<Described> {
        let name = item.name.clone();
        let crc32c = item.checksum();
        match (crc32c, item.meta()) {
            (Some(crc32c), Some(meta)) => Ok(Described { name, meta, crc32c }),
            _ => Err(self.nonsense(&name)),
        }
    }

    pub(super) async fn compose_object(
        &self,
        into: &str,
        parts: &[&Described],
    ) -> Result<RemoteMeta> {
        // No generation in the source itself: that would also find an older one.
        let source = |part: &&Described| json!({"name": part.name, "objectPreconditions": {"ifGenerationMatch": part.meta.version}});
        let sources: Vec<_> = parts.iter().map(source).collect();
        let body = json!({
            "sourceObjects": sources,
            "destination": {"contentType": "application/octet-stream"},
        });
        let path = format!("{}/compose", object_path(&self.remote, into));
        let query = [("ifGenerationMatch", "0"), ("fields", "size,generation,crc32c")];
        let request = self.request(RequestClass::A, Method::POST, &path, &query).json(&body);
        match self.json::<Resource>(request).await {
            Ok(made) => made.meta().ok_or_else(|| self.nonsense(into)),
            Err(failure) => Err(self.errors.of(&failure, Some(into))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn buckets_that_charge_for_deleted_objects_are_detected_by_their_settings() {
        let objection = |settings| {
            let bucket: BucketResource = serde_json::from_value(settings).unwrap();
            bucket.objection().map(|(why, _)| why)
        };
        let good = json!({"storageClass": "STANDARD",
            "softDeletePolicy": {"retentionDurationSeconds": "0"}, "versioning": {"enabled": false}});
        assert_eq!(objection(good), None);
        for (settings, word) in [
            (json!({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}), "604800"),
            (json!({"storageClass": "COLDLINE"}), "COLDLINE"),
            (json!({"versioning": {"enabled": true}}), "versions"),
            (json!({"retentionPolicy": {"retentionPeriod": "60"}}), "retention policy"),
        ] {
            let why = objection(settings).unwrap();
            assert!(why.contains(word), "{why}");
        }
    }
}
