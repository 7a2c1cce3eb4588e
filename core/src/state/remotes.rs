//! Other clusters whose buckets are accessible from this one.

use std::sync::Arc;

use super::ClusterState;
use crate::bucket::{BackendKind, BackendSpec};
use crate::egress::EndpointTrust;
use crate::error::{Error, ErrorCode, Result};
use crate::name::{Bucket, Provider};

impl ClusterState {
    /// Adds another cluster. Its known buckets change to the new URL.
    pub(super) fn attach(
        &mut self,
        alias: String,
        url: String,
        endpoint_trust: EndpointTrust,
    ) -> Result<()> {
        let fits = alias.len() >= 2
            && alias.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if !fits {
            return Err(Error::invalid(format!("\"{alias}\" cannot be the alias of a cluster"))
                .hint("use at least 2 letters, digits, '-' or '_'"));
        }
        if !(url.starts_with("http://") || url.starts_with("https://")) || url.contains('@') {
            return Err(Error::invalid(format!("the URL of cluster \"{alias}\" is none"))
                .hint("give it as http://host:port, without a user or password"));
        }
        let url = url.trim_end_matches('/').to_owned();
        for info in self.buckets.values_mut().filter(|i| i.bucket.namespace.uuid == alias) {
            let info = Arc::make_mut(info);
            info.endpoint_trust = endpoint_trust;
            if let Some(backend) = &mut info.backend {
                backend.endpoint = Some(url.clone());
            }
        }
        match endpoint_trust {
            EndpointTrust::Judged => self.judged_remotes.insert(alias.clone()),
            EndpointTrust::Accepted => self.judged_remotes.remove(&alias),
        };
        self.remotes.insert(alias, url);
        Ok(())
    }

    /// Removes another cluster and its buckets.
    pub(super) fn detach(&mut self, alias: &str) -> Result<()> {
        self.remotes.remove(alias).ok_or_else(|| unknown_cluster(alias))?;
        self.judged_remotes.remove(alias);
        // Cached objects of its buckets could not be validated any more.
        self.buckets.retain(|_, info| info.bucket.namespace.uuid != alias);
        Ok(())
    }

    /// Whether the URL of an attached cluster was checked when it was attached.
    pub fn trust_of(&self, alias: &str) -> EndpointTrust {
        match self.judged_remotes.contains(alias) {
            true => EndpointTrust::Judged,
            false => EndpointTrust::Accepted,
        }
    }

    /// The backend of a bucket of another cluster, if that is attached.
    pub(super) fn behind(&self, bucket: &Bucket) -> Option<BackendSpec> {
        let url = self.remotes.get(&bucket.namespace.uuid)?;
        let (kind, endpoint) = (BackendKind::Ais, Some(url.clone()));
        let native = bucket.provider == Provider::Ais;
        native.then(|| BackendSpec { endpoint, ..BackendSpec::new(kind, &bucket.name) })
    }
}

fn unknown_cluster(alias: &str) -> Error {
    Error::new(ErrorCode::NodeNotFound, format!("no cluster is attached as \"{alias}\""))
}
