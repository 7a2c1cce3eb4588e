//! Checks of the endpoints that buckets name against the rule for destinations, before they are called.

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::egress::EgressRule;
use forebay_core::error::{Error, Result};

use super::Backends;
use crate::egress::{EndpointGuard, Guarded};

impl Backends {
    /// Checks that this node may call the endpoint that a bucket names. A bucket that names none
    /// passes.
    pub async fn check_endpoint(&self, info: &BucketInfo) -> Result<()> {
        let Some(spec) = &info.backend else { return Ok(()) };
        let guard = self.guard_of(info, spec)?;
        guard.check_name().await.map_err(|e| of_bucket(info, e))?;
        if let (BackendKind::Http, Some(url)) = (spec.kind, &spec.endpoint) {
            let rule: EgressRule = self.settings.origin.egress.web(self.settings.origin.reach);
            Guarded::new(rule, true)?.url(url)?;
        }
        Ok(())
    }

    /// The guard of a bucket's endpoint.
    pub(super) fn guard_of(&self, info: &BucketInfo, spec: &BackendSpec) -> Result<EndpointGuard> {
        let (named, trust) = (spec.endpoint.as_deref(), info.endpoint_trust);
        let guard = match spec.kind {
            BackendKind::S3 => {
                self.clients.s3.of(&self.settings.accounts, info, spec)?.guard(named, trust)
            }
            BackendKind::Gcs => {
                self.clients.gcs.of(&self.settings.accounts, info, spec)?.guard(named, trust)
            }
            BackendKind::Azure => {
                self.clients.azure.of(&self.settings.accounts, info, spec)?.guard(named, trust)
            }
            BackendKind::Ais => {
                let policy = &self.settings.remote.egress;
                EndpointGuard::of(spec.kind, named, trust, None, policy)
            }
            // A web server has its own rule; a folder has no endpoint.
            BackendKind::Http | BackendKind::Folder => {
                EndpointGuard::of(spec.kind, None, trust, None, &self.settings.remote.egress)
            }
        };
        guard.map_err(|e| of_bucket(info, e))
    }
}

fn of_bucket(info: &BucketInfo, e: Error) -> Error {
    Error { message: format!("bucket \"{}\" cannot be used: {}", info.bucket, e.message), ..e }
}
