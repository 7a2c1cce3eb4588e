//! Endpoints that were accepted before there was a rule for destinations, and the entry of `egress.allow`
//! that would cover each.

use forebay_core::bucket::BackendKind;
use forebay_core::egress::{AllowEntry, Egress, EgressRule, Server, is_clouds_own};
use forebay_core::etl::Transformer;
use forebay_core::state::ClusterState;

use super::finding::{Finding, Verdict};

/// The buckets, attached clusters and transforms whose endpoints no version has checked.
pub(super) fn accepted(state: &ClusterState) -> Vec<Finding> {
    // Nodes on loopback open loopback themselves.
    let reach = if is_on_loopback(state) { Egress::Loopback } else { Egress::Public };
    let rule = EgressRule::from(reach);
    let finding = |check: String, kind: BackendKind, url: &str, then: String| {
        let server = Server::of(url)?;
        if is_clouds_own(kind, &server) || rule.covers_loopback(&server.host) {
            return None;
        }
        let entry = AllowEntry::exactly(&server.host, server.port);
        let detail = format!("{url} was accepted before there was a rule for destinations");
        let hint = format!("put \"{entry}\" into egress.allow of all targets, then {then}");
        Some(Finding::bad(Verdict::Warn, check, detail, hint))
    };
    let buckets = state.buckets.values().filter_map(|info| {
        let spec = info.backend.as_ref()?;
        let guarded = !matches!(spec.kind, BackendKind::Http | BackendKind::Folder);
        let endpoint = spec.endpoint.as_deref()?;
        // Buckets of an attached cluster have its URL.
        let own = info.bucket.namespace.uuid.is_empty();
        let then = format!("set a property of the bucket: forebay bucket set {} …", info.bucket);
        let is_listed = guarded && own && info.endpoint_trust.is_accepted();
        is_listed.then(|| finding(format!("bucket {}", info.bucket), spec.kind, endpoint, then))?
    });
    let clusters = state.remotes.iter().filter_map(|(alias, url)| {
        let then = format!("attach it again: forebay cluster remote attach {alias}={url}");
        let check = || finding(format!("cluster @{alias}"), BackendKind::Ais, url, then);
        state.trust_of(alias).is_accepted().then(check)?
    });
    let transforms = state.etls.values().filter_map(|etl| {
        let (Transformer::Push { url } | Transformer::Pull { url }) = &etl.by else { return None };
        let then = "remove it and register it again".to_owned();
        let check = || finding(format!("etl {}", etl.name), BackendKind::Ais, url, then);
        etl.endpoint_trust.is_accepted().then(check)?
    });
    buckets.chain(clusters).chain(transforms).collect()
}

fn is_on_loopback(state: &ClusterState) -> bool {
    let loopback = EgressRule::from(Egress::Loopback);
    let mut servers = state.nodes.values().map(|node| Server::of(&node.url));
    servers.all(|server| server.is_some_and(|server| loopback.covers_loopback(&server.host)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::bucket::{BackendSpec, BucketInfo};
    use forebay_core::egress::EndpointTrust;
    use forebay_core::state::{Command, Role};
    use forebay_core::{Bucket, NodeId, Provider};

    use super::*;

    /// A cluster with a node at this URL and a bucket with this endpoint.
    fn state(node: &str, endpoint: &str, endpoint_trust: EndpointTrust) -> ClusterState {
        let mut state = ClusterState::default();
        let join = Command::Join {
            id: NodeId::new("target-01").unwrap(),
            role: Role::Target,
            url: node.into(),
            weight: 1,
            zone: String::new(),
            instance: 0,
            https: String::new(),
            external: String::new(),
        };
        state.apply(1, join).unwrap();
        let spec = BackendSpec {
            endpoint: Some(endpoint.into()),
            ..BackendSpec::new(BackendKind::S3, "b")
        };
        let bucket = Bucket::new(Provider::Ais, "near").unwrap();
        let info = BucketInfo { endpoint_trust, ..BucketInfo::requested(bucket, Some(spec)) };
        state.apply(2, Command::CreateBucket { info: Box::new(info), now_ns: 1 }).unwrap();
        let url = "http://10.0.0.7:7400".to_owned();
        let attach = Command::AttachCluster { alias: "far".into(), url, endpoint_trust };
        state.apply(3, attach).unwrap();
        state
    }

    #[test]
    fn each_endpoint_that_was_accepted_is_listed_with_its_entry() {
        let old = EndpointTrust::Accepted;
        let found = accepted(&state("http://10.0.0.1:7400", "http://minio.lab:9000", old));
        let (bucket, cluster) = (&found[0], &found[1]);
        assert_eq!((found.len(), bucket.check.as_str()), (2, "bucket ais://near"));
        assert!(bucket.hint.contains("\"minio.lab:9000\""), "{bucket:?}");
        assert!(cluster.hint.contains("\"10.0.0.7:7400\""), "{cluster:?}");
        let local = "http://127.0.0.1:9000";
        assert_eq!(accepted(&state("http://10.0.0.1:7400", local, old)).len(), 2);
        assert_eq!(accepted(&state("http://127.0.0.1:7400", local, old)).len(), 1);
        let amazon = "https://s3.us-west-2.amazonaws.com";
        assert_eq!(accepted(&state("http://10.0.0.1:7400", amazon, old)).len(), 1);
        let judged = EndpointTrust::Judged;
        assert!(accepted(&state("http://10.0.0.1:7400", local, judged)).is_empty());
    }
}
