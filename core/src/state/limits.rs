//! Size limits of the cluster's state. Every node keeps the whole state in memory and every client
//! fetches it, so nothing in it may grow without bound.
//!
//! The limits apply to new commands. A log or a state of an earlier version is applied unchanged.

use serde::Serialize;

use super::{ClusterState, Command};
use crate::bucket::BucketInfo;
use crate::error::{Error, Result};
use crate::etl::Transformer;
use crate::name::{Bucket, check_length};
use crate::request::RESERVED_ROOTS;
use crate::shown_url;

/// Longest URL.
const MAX_URL_BYTES: usize = 2048;
/// Longest alias of another cluster, and each part of a namespace.
const MAX_ALIAS_BYTES: usize = 64;
/// Longest zone of a node.
const MAX_ZONE_BYTES: usize = 256;
/// Longest path of a folder backend.
const MAX_ROOT_BYTES: usize = 4096;
/// Properties of a bucket that other clients set, as JSON: HEAD of the bucket returns them in a
/// header.
const MAX_EXTRA_BYTES: usize = 16 << 10;
/// All properties of a bucket, as JSON. S3 allows 20 KiB for a policy and 64 KiB for CORS rules.
const MAX_BUCKET_BYTES: usize = 128 << 10;
/// The registration of a transform, as JSON.
const MAX_ETL_BYTES: usize = 64 << 10;
/// One change of the cluster's settings, as JSON.
const MAX_SETTINGS_BYTES: usize = 64 << 10;

const MAX_BUCKETS: usize = 100_000;
const MAX_NODES: usize = 4096;
const MAX_ETLS: usize = 1024;
const MAX_REMOTES: usize = 256;

impl Command {
    /// Returns an error if the command would add something to `state` that is too large or too
    /// numerous, or has a name or a URL that is not allowed for new items.
    pub fn check_limits(&self, state: &ClusterState) -> Result<()> {
        match self {
            Self::Join { id, url, zone, .. } => {
                check_length("the URL of a node", url, MAX_URL_BYTES)?;
                check_length("the zone of a node", zone, MAX_ZONE_BYTES)?;
                let is_known = state.nodes.contains_key(id);
                check_count("nodes", state.nodes.len(), is_known, MAX_NODES)
            }
            Self::NodeKey { id, key, .. } => {
                key.check()?;
                let known = &state.node_keys.keys;
                check_count("keys of nodes", known.len(), known.contains_key(id), MAX_NODES)
            }
            Self::CreateBucket { info, .. } => {
                check_new_name(&info.bucket)?;
                check_bucket(info)?;
                let is_known = state.bucket(&info.bucket).is_ok();
                check_count("buckets", state.buckets.len(), is_known, MAX_BUCKETS)
            }
            Self::SetBucket { info } => check_bucket(info),
            Self::RenameBucket { to, .. } => check_new_name(to),
            Self::CreateEtl { etl } => {
                check_size("the specification of a transform", &etl.init, MAX_ETL_BYTES)?;
                if let Transformer::Push { url } | Transformer::Pull { url } = &etl.by {
                    check_url("the URL of a transform", url)?;
                }
                let is_known = state.etls.contains_key(&etl.name);
                check_count("transforms", state.etls.len(), is_known, MAX_ETLS)
            }
            Self::AttachCluster { alias, url, .. } => {
                check_length("the alias of a cluster", alias, MAX_ALIAS_BYTES)?;
                check_url("the URL of a cluster", url)?;
                let is_known = state.remotes.contains_key(alias);
                check_count("attached clusters", state.remotes.len(), is_known, MAX_REMOTES)
            }
            Self::Configure { change, .. } => {
                check_size("the change of settings", change, MAX_SETTINGS_BYTES)
            }
            Self::Access { change, now_ns } => change.check_limits(&state.access, *now_ns),
            _ => Ok(()),
        }
    }
}

/// Refuses a new bucket name that is the root of one of Forebay's paths, and parts that are too
/// long.
fn check_new_name(bucket: &Bucket) -> Result<()> {
    let namespace = &bucket.namespace;
    check_length("the cluster of a namespace", &namespace.uuid, MAX_ALIAS_BYTES)?;
    check_length("the name of a namespace", &namespace.name, MAX_ALIAS_BYTES)?;
    if RESERVED_ROOTS.contains(&bucket.name.as_ref()) {
        return Err(Error::invalid(format!("the bucket name \"{}\" is reserved", bucket.name))
            .hint(format!("names of paths of this server: {}", RESERVED_ROOTS.join(", "))));
    }
    Ok(())
}

/// Returns an error if properties of the bucket are too large, or have a URL with a password.
pub fn check_bucket(info: &BucketInfo) -> Result<()> {
    if let Some(backend) = &info.backend {
        if let Some(endpoint) = &backend.endpoint {
            check_url("the endpoint of a backend", endpoint)?;
        }
        let root = backend.root.as_deref().unwrap_or_default();
        check_length("the folder of a backend", root, MAX_ROOT_BYTES)?;
        check_length("the name of a backend's bucket", &backend.bucket, MAX_URL_BYTES)?;
    }
    check_size("what other clients set (\"extra\")", &info.extra, MAX_EXTRA_BYTES)?;
    check_size("the properties of the bucket", info, MAX_BUCKET_BYTES)
}

/// Refuses a URL that is too long, or contains a user, a password or a query, which may be a signature:
/// everybody may read the state.
fn check_url(what: &str, url: &str) -> Result<()> {
    check_length(what, url, MAX_URL_BYTES)?;
    if shown_url(url) != url {
        // Without the URL: the invalid part may be a password.
        return Err(Error::invalid(format!("{what} has a user or a password in it, or a query"))
            .hint("everybody can read it: configure credentials at the nodes instead"));
    }
    Ok(())
}

fn check_size(what: &str, value: &impl Serialize, limit: usize) -> Result<()> {
    let json = serde_json::to_vec(value)
        .map_err(|e| Error::invalid(format!("{what} cannot be written as JSON: {e}")))?;
    if json.len() <= limit {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} has {} bytes as JSON, the limit is {limit}", json.len())))
}

fn check_count(what: &str, count: usize, is_known: bool, limit: usize) -> Result<()> {
    if is_known || count < limit {
        return Ok(());
    }
    Err(Error::invalid(format!("the cluster has {count} {what}, the limit is {limit}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bucket::{BackendKind, BackendSpec};
    use crate::egress::EndpointTrust;
    use crate::name::Provider;

    fn create(name: &str) -> BucketInfo {
        BucketInfo::requested(Bucket::new(Provider::Ais, name).unwrap(), None)
    }

    fn refused(command: &Command) -> String {
        command.check_limits(&ClusterState::default()).unwrap_err().message
    }

    fn creates(info: BucketInfo) -> Command {
        Command::CreateBucket { info: Box::new(info), now_ns: 1 }
    }

    #[test]
    fn roots_of_our_paths_are_no_names_of_new_buckets() {
        for name in RESERVED_ROOTS {
            let bucket = Bucket::new(Provider::Aws, name).unwrap();
            let create = creates(BucketInfo::requested(bucket.clone(), None));
            assert!(refused(&create).contains("reserved"), "{name}");
            let from = Bucket::new(Provider::Ais, "old").unwrap();
            assert!(refused(&Command::RenameBucket { from, to: bucket }).contains("reserved"));
            // Existing items stay.
            let mut state = ClusterState::default();
            state.apply(1, create).unwrap();
        }
        assert!(creates(create("v1x")).check_limits(&ClusterState::default()).is_ok());
    }

    #[test]
    fn nothing_in_the_state_is_larger_than_its_limit() {
        let long = "x".repeat(50_000);
        let url = format!("http://{long}");
        let attach = |alias: &str, url: &str| Command::AttachCluster {
            alias: alias.to_owned(),
            url: url.to_owned(),
            endpoint_trust: EndpointTrust::Judged,
        };
        assert!(refused(&attach("far", &url)).contains("the limit is 2048"));
        assert!(refused(&attach(&long, "http://far:1")).contains("the limit is 64"));
        let mut info = create("b");
        info.extra.insert("custom".into(), long.clone().into());
        assert!(refused(&creates(info)).contains("the limit is 16384"));
        let mut info = create("b");
        info.bucket = Bucket::from_parts("b", "ais", &format!("#{long}")).unwrap();
        assert!(refused(&creates(info)).contains("the limit is 64"));
        let mut state = ClusterState::default();
        for n in 0..MAX_REMOTES {
            state.remotes.insert(format!("far-{n}"), "http://far:1".into());
        }
        let e = attach("more", "http://far:1").check_limits(&state).unwrap_err();
        assert!(e.message.contains("the limit is 256"), "{e}");
        assert!(attach("far-1", "http://far:2").check_limits(&state).is_ok());
    }

    #[test]
    fn no_url_in_the_state_has_a_password() {
        for url in [
            "http://user:planted@far:1/x",
            "https://planted@far",
            "http://a:planted@b?c",
            "http://far:1/?sig=planted",
            "http://far:1/x#planted",
        ] {
            let endpoint_trust = EndpointTrust::Judged;
            let attach =
                Command::AttachCluster { alias: "far".into(), url: url.into(), endpoint_trust };
            let mut info = create("b");
            info.backend = Some(BackendSpec {
                endpoint: Some(url.into()),
                ..BackendSpec::new(BackendKind::S3, "b")
            });
            let set = Command::SetBucket { info: Box::new(info) };
            for message in [refused(&attach), refused(&set)] {
                assert!(message.contains("a user or a password"), "{message}");
                assert!(!message.contains("planted"), "{message}");
            }
        }
    }
}
