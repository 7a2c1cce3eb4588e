//! Blob downloads over v1: an object is fetched by several ranges at once, as a job.

use axum::body::Body;
use axum::http::request::Parts;
use axum::response::Response;
use forebay_core::bucket::BucketInfo;
use forebay_core::cache_rules::Admission;
use forebay_core::job::JobKind;
use forebay_core::request::{Caller, Principal};
use forebay_core::{Error, ErrorCode, ObjectName, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::reply::text;
use forebay_routes::v1_objects as rules;
use forebay_v1::object::BlobArgs;
use forebay_v1::query::{Query, split_path};

use super::object_request::{ObjectRequest, read_action};
use super::owner::{OwnerCheck, without_proof};
use crate::job::{Jobs, Registration};
use crate::object::{BlobOptions, ObjectService, not_remote};

/// The services for blob downloads; cheap to clone.
#[derive(Clone)]
pub(crate) struct BlobsApi {
    pub(crate) objects: ObjectService,
    pub(crate) jobs: Jobs,
    pub(crate) owner: OwnerCheck,
    pub(crate) lifecycle: Lifecycle,
}

impl BlobsApi {
    /// The actions of POST on a bucket that name their object in the body.
    pub(super) async fn on_bucket(
        &self,
        parts: &Parts,
        sender: &Principal,
        body: Body,
    ) -> Result<Response> {
        let (caller, access) = (sender.caller, &sender.access);
        let query = Query::parse(parts.uri.query());
        let action = read_action(body, caller, &query).await?;
        if action.action != "blob-download" {
            return Err(Error::invalid(format!("unknown action \"{}\" on objects", action.action)));
        }
        let (bucket, _) = split_path(parts.uri.path(), "objects")?;
        let bucket = query.bucket(&bucket)?;
        let name = ObjectName::new(&action.name)?;
        rules::POST.require_action(access, &bucket, "", &action)?;
        let args = BlobArgs::from_value(&action.value)?;
        let info = self.owner.bucket(&bucket)?;
        let elsewhere = self.owner.redirect(&info, &name, sender, &parts.method, &parts.uri)?;
        if let Some(elsewhere) = elsewhere.filter(|_| caller != Caller::Node) {
            return Ok(without_proof(access, &parts.method, elsewhere));
        }
        if !info.has_backend() {
            return Err(not_remote(&info));
        }
        if info.cache.admission == Admission::Never {
            return Err(Error::invalid(format!(
                "bucket \"{}\" has cache.admission never: nothing of it is kept",
                info.bucket
            )));
        }
        Ok(text(self.start(&info, name.as_str(), args.into()).await?))
    }

    /// Starts the fetch of a GET whose object is to be fetched by several ranges at once. The read
    /// itself then follows the fetch like any other.
    pub(super) async fn fetch(&self, request: &ObjectRequest, args: BlobArgs) -> Result<()> {
        let (info, name) = (&request.info, request.name.as_str());
        if !info.has_backend() {
            return Err(not_remote(info));
        }
        if args.threshold > 0 && self.objects.reads().head(info, name).await?.size < args.threshold
        {
            return Ok(());
        }
        self.start(info, name, args.into()).await.map(drop)
    }

    /// Starts the download as a job, which ends at once if the object is present. Returns the job's
    /// id.
    async fn start(&self, info: &BucketInfo, name: &str, how: BlobOptions) -> Result<String> {
        let following = self.objects.cold_cache().blob_begin(info, name, how).await?;
        let what = Registration::new(JobKind::BlobDownload).bucket(&info.bucket);
        let job = self.jobs.register(what)?;
        let id = job.id().to_owned();
        let Some(following) = following else {
            job.end(Ok(()));
            return Ok(id);
        };
        job.expect(1, following.meta.size);
        self.lifecycle.spawn(async move {
            let stop = job.stop_token();
            let outcome = tokio::select! {
                fetched = following.finished() => fetched.map(|bytes| job.done(bytes)),
                () = stop.cancelled() => Err(Error::new(ErrorCode::Conflict, "stopped")),
            };
            job.end(outcome);
        });
        Ok(id)
    }
}
