//! Copies from bucket to bucket: each owner of a source object sends its copy to the owner of the
//! destination.

use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::etl::EtlCall;
use forebay_core::job::CopyTask;
use forebay_core::{ErrorCode, ObjectName, Result};

use super::work::Walk;
use crate::object::CopyOptions;

/// Copies one object. Returns the bytes written; `None` if there was nothing to do.
pub(super) async fn one(walk: &Walk<'_>, task: &CopyTask, name: &str) -> Result<Option<u64>> {
    let (objects, source) = (walk.objects(), &*walk.info);
    let call = task.transform.as_ref().map(EtlCall::from);
    let (etls, id) = (&walk.jobs.0.etls, walk.job.spec.id.as_str());
    if task.dry_run
        && let Some(call) = &call
    {
        // A test run returns the transform's result for each object.
        return etls.inspect(source, name, call, id).await.map(Some);
    }
    if task.dry_run {
        return Ok(Some(objects.head(source, name).await?.size));
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
