//! Copies from bucket to bucket, transformed or not: each owner of a source object sends its copy to
//! the owner of the destination.

use async_trait::async_trait;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::etl::EtlCall;
use forebay_core::job::CopyTask;
use forebay_core::{Error, ErrorCode, ObjectName, Result};

use super::scope::{Item, Scope, Source};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;
use crate::etl::Etls;
use crate::object::CopyOptions;

pub(super) struct CopyObjects {
    pub(super) task: CopyTask,
    pub(super) etls: Etls,
}

#[async_trait]
impl ObjectJob for CopyObjects {
    fn scope(&self) -> Scope {
        Scope { sources: sources(&self.task), ..Scope::OWNED }
    }

    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        self.copy(walk, &item.name).await.map(Outcome::from)
    }

    fn ends_at(&self, error: &Error) -> bool {
        !self.task.continue_on_error && error.code != ErrorCode::ObjectNotFound
    }
}

/// The listings that a copy from a bucket with a backend walks.
pub(super) fn sources(task: &CopyTask) -> &'static [Source] {
    match (task.remote_too, task.synchronize) {
        (false, _) => &[Source::Here],
        // Objects that the backend does not have any more are found only among the copies here.
        (true, true) => &[Source::Here, Source::Backend],
        (true, false) => &[Source::Backend],
    }
}

impl CopyObjects {
    /// Copies one object. Returns the bytes written; `None` if there was nothing to do.
    async fn copy(&self, walk: &Walk<'_>, name: &str) -> Result<Option<u64>> {
        let (task, objects, source) = (&self.task, walk.objects, &*walk.info);
        let call = task.transform.as_ref().map(EtlCall::from);
        let (etls, id) = (&self.etls, walk.job.spec.id.as_str());
        if task.dry_run
            && let Some(call) = &call
        {
            // A test run returns the transform's result for each object.
            return etls.inspect(source, name, call, id).await.map(Some);
        }
        if task.dry_run {
            return Ok(Some(objects.reads().head(source, name).await?.size));
        }
        let destination = objects.state().bucket(&task.to)?.clone();
        let copy = ObjectName::new(task.name_of(name))?;
        // A name that only S3 allows, such as `a/`, is copied unchanged; the job's options cannot
        // produce one.
        if !destination.has_backend() && ObjectName::new(name)?.check_v1_native().is_ok() {
            copy.check_v1_native()?;
        }
        let (from, to) = ((source, name), (&*destination, copy.as_str()));
        if let Some(call) = &call {
            let mut info = BucketInfo::clone(source);
            if task.latest || task.synchronize {
                info.freshness = Freshness::Always;
            }
            return etls.copy((&info, name), to, call, Some(id)).await;
        }
        let how = CopyOptions { latest: task.latest, sync: task.synchronize, keep_existing: false };
        match objects.copy(from, to, how).await {
            // It was removed at the destination too, as intended.
            Err(e) if task.synchronize && e.code == ErrorCode::ObjectNotFound => Ok(None),
            done => done,
        }
    }
}
