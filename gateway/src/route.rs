//! Finds the target that owns an object of a request's bucket, under one snapshot of the cluster's
//! state.

use std::sync::Arc;

use forebay_core::bucket::BucketInfo;
use forebay_core::cloud_name;
use forebay_core::egress::EndpointTrust;
use forebay_core::history;
use forebay_core::intra::BackendHeadRequest;
use forebay_core::origin::Origin;
use forebay_core::placement;
use forebay_core::state::{ClusterState, Command, Node, check_bucket};
use forebay_core::{Bucket, Error, ErrorCode, Provider, Result};
use forebay_node::clock::unix_ns;
use forebay_node::maps::Maps;

use crate::changes::Changes;
use crate::targets::{self, Targets};

/// Path at which a target reports whether a bucket exists at its backend.
const BACKEND_HEAD: &str = "/internal/v1/backend/head";

/// Looks up buckets and owners; cheap to clone.
#[derive(Clone)]
pub(crate) struct Route {
    maps: Maps,
    targets: Targets,
    changes: Changes,
    /// One registration at a time: many clients may use a new cloud bucket at once.
    registering: Arc<tokio::sync::Mutex<()>>,
}

/// A bucket and the state in which it was found.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) state: Arc<ClusterState>,
    pub(crate) info: Arc<BucketInfo>,
}

impl Found {
    /// The same for older versions of the bucket's objects.
    pub(crate) fn history(&self) -> Self {
        let mut found = self.clone();
        let info = Arc::make_mut(&mut found.info);
        info.id = history::id(info.id);
        found
    }

    /// The current owner of an object.
    pub(crate) fn owner(&self, object: &str) -> Result<&Node> {
        placement::owner(&self.state, &self.info, object)
    }
}

/// Whether a bucket of a cloud is in a namespace of this cluster.
pub(crate) fn is_in_cloud_namespace(bucket: &Bucket) -> bool {
    let is_cloud = matches!(bucket.provider, Provider::Aws | Provider::Gcp | Provider::Azure);
    is_cloud && !bucket.namespace.name.is_empty()
}

/// Refuses to register a bucket of a cloud in a namespace by its first use. Such a bucket mostly has an
/// account of its own; with the default account, a bucket that was removed from the cluster would come
/// back with the objects of another.
pub(crate) fn require_registration(bucket: &Bucket) -> Result<()> {
    match is_in_cloud_namespace(bucket) {
        true => Err(bucket.not_found().hint(format!(
            "a bucket in a namespace is made first: forebay mb {bucket}, with --account NAME for \
             another account than the default one"
        ))),
        false => Ok(()),
    }
}

impl Route {
    pub(crate) fn new(maps: Maps, targets: Targets, changes: Changes) -> Self {
        Self { maps, targets, changes, registering: Arc::default() }
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.maps.load()
    }

    /// The bucket, if the cluster knows it already.
    pub(crate) fn known(&self, bucket: &Bucket) -> Result<Found> {
        let state = self.maps.load();
        if state.version == 0 {
            return Err(Error::unavailable("this gateway is starting up").retry_after(1));
        }
        let info = state.bucket(bucket)?.clone();
        Ok(Found { state, info })
    }

    /// The bucket; registers a cloud bucket that exists at its provider.
    pub(crate) async fn bucket(&self, bucket: &Bucket) -> Result<Found> {
        match self.known(bucket) {
            Err(e) if e.code == ErrorCode::RemoteBucketNotFound => {}
            other => return other,
        }
        let _one = self.registering.lock().await;
        if let Ok(found) = self.known(bucket) {
            return Ok(found);
        }
        require_registration(bucket)?;
        let info = self.state().requested(bucket.clone(), None);
        self.check_backend(&info).await?;
        self.create(info).await?;
        self.known(bucket)
    }

    /// The bucket of an origin; registers it if necessary.
    pub(crate) async fn origin(&self, bucket: &Bucket, origin: &Origin) -> Result<Found> {
        match self.known(bucket) {
            Err(e) if e.code == ErrorCode::RemoteBucketNotFound => {}
            found => {
                let found = found?;
                let endpoint = found.info.backend.as_ref().and_then(|b| b.endpoint.as_deref());
                if endpoint.map(|e| e.trim_end_matches('/')) == Some(origin.as_str()) {
                    return Ok(found);
                }
                let text = format!("bucket \"{bucket}\" stands for another origin");
                let hint = format!("the name of yours could be {}", origin.bucket_name());
                return Err(Error::new(ErrorCode::Conflict, text).hint(hint));
            }
        }
        let _one = self.registering.lock().await;
        if self.known(bucket).is_err() {
            let info = self.state().requested(bucket.clone(), Some(origin.backend()));
            self.check_backend(&info).await?;
            self.create(info).await?;
        }
        self.known(bucket)
    }

    /// Creates a bucket that another request may create at the same time.
    async fn create(&self, info: BucketInfo) -> Result<()> {
        let create = Command::CreateBucket { info: Box::new(info), now_ns: unix_ns() };
        match self.changes.commit(create).await {
            Err(e) if e.code != ErrorCode::BucketExists => Err(e),
            _ => Ok(()),
        }
    }

    /// The bucket; creates a missing native bucket, as AIStore does for some jobs.
    pub(crate) async fn bucket_or_new(&self, bucket: &Bucket) -> Result<Found> {
        match self.bucket(bucket).await {
            Err(e) if e.code == ErrorCode::BucketNotFound => {}
            other => return other,
        }
        self.create(self.state().requested(bucket.clone(), None)).await?;
        self.bucket(bucket).await
    }

    /// The bucket, or the one that a request would register, whether it exists or not.
    pub(crate) fn known_or_requested(&self, bucket: &Bucket) -> Result<Found> {
        match self.known(bucket) {
            Err(e) if e.code == ErrorCode::RemoteBucketNotFound => {}
            other => return other,
        }
        require_registration(bucket)?;
        let state = self.state();
        let info = state.requested(bucket.clone(), None);
        self.check_request(&info)?;
        Ok(Found { state, info: info.into() })
    }

    /// Refuses a bucket that no backend could serve.
    fn check_request(&self, info: &BucketInfo) -> Result<()> {
        // Before the backend is called: its errors would contain its URL.
        check_bucket(info)?;
        if let Some(spec) = &info.backend {
            let own: &str = &info.bucket.name;
            let name = if spec.bucket.is_empty() { own } else { &spec.bucket };
            cloud_name::check(spec.kind, name)?;
        }
        if !info.has_backend() {
            if info.bucket.provider == Provider::Ht {
                let name = &info.bucket.name;
                return Err(info.bucket.not_found().hint(format!(
                    "make it with a URL: forebay mb ht://{name} --url https://host/path; or ask for \
                     an object with original_url"
                )));
            }
            let alias = &info.bucket.namespace.uuid;
            if !alias.is_empty() {
                return Err(info.bucket.not_found().hint(format!(
                    "no cluster is attached as \"{alias}\": forebay cluster remote attach \
                     {alias}=http://host:port"
                )));
            }
            if info.bucket.provider.is_remote() {
                return Err(Error::unsupported(format!(
                    "provider {} has no backend in this version",
                    info.bucket.provider
                ))
                .hint("buckets of aws (s3), gcp (gs), azure (az), ht and folders can be used"));
            }
        }
        Ok(())
    }

    /// Checks that the bucket's backend exists and may be used, as some target sees it.
    pub(crate) async fn check_backend(&self, info: &BucketInfo) -> Result<()> {
        self.check_request(info)?;
        if !info.has_backend() {
            return Ok(());
        }
        let state = self.maps.load();
        let request = BackendHeadRequest { info: info.clone().into(), endpoint_only: false };
        let mut last = None;
        for node in targets::alive(&state)? {
            match self.targets.post::<_, serde_json::Value>(node, BACKEND_HEAD, &request).await {
                Ok(_) => return Ok(()),
                // Another target may be able to answer.
                Err(e) if e.code.is_transient() => last = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(last.unwrap_or_else(|| Error::unavailable("no target could reach the backend")))
    }

    /// Checks that a target may call the endpoint that a bucket names. Passes if no target answers: the
    /// endpoint is checked again whenever it is called.
    pub(crate) async fn check_endpoint(&self, info: &BucketInfo) -> Result<()> {
        if !info.has_endpoint() {
            return Ok(());
        }
        // Before a target is called: its errors would contain the URL.
        check_bucket(info)?;
        let state = self.maps.load();
        let request = BackendHeadRequest { info: info.clone().into(), endpoint_only: true };
        for node in state.alive_targets() {
            match self.targets.post::<_, serde_json::Value>(node, BACKEND_HEAD, &request).await {
                Err(e)
                    if matches!(e.code, ErrorCode::AccessDenied | ErrorCode::InvalidArgument) =>
                {
                    return Err(e);
                }
                Ok(_) => return Ok(()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Applies the rule for destinations to an endpoint that was accepted before there was one. An
    /// endpoint that the rule closes stays accepted.
    pub(crate) async fn judge_endpoint(&self, info: &mut BucketInfo) {
        if !info.endpoint_trust.is_accepted() || !info.has_endpoint() {
            return;
        }
        info.endpoint_trust = EndpointTrust::Judged;
        if self.check_endpoint(info).await.is_err() {
            info.endpoint_trust = EndpointTrust::Accepted;
        }
    }
}
