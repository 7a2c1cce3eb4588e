//! Copies from bucket to bucket: each owner of a source sends its copies to their owners.

use forebay_core::job::CopyTask;
use forebay_core::{Error, ErrorCode, ObjectName, Result};

use super::work::Walk;
use crate::object::CopyOptions;

/// Copies one object. The bytes written; `None` when nothing had to be.
pub(super) async fn one(walk: &Walk<'_>, task: &CopyTask, name: &str) -> Result<Option<u64>> {
    let (objects, source) = (walk.objects(), &walk.info);
    if task.dry_run {
        return Ok(Some(objects.head(source, name).await?.size));
    }
    let destination = objects.state().bucket(&task.to)?.clone();
    let copy = ObjectName::new(task.name_of(name))?;
    if !destination.has_backend() {
        copy.check_v1_native()?;
    }
    let (from, to) = ((source, name), (&destination, copy.as_str()));
    if task.transform.is_some() {
        return Err(Error::unsupported("transforms of whole buckets are not served yet"));
    }
    let how = CopyOptions { latest: task.latest, sync: task.synchronize, keep_existing: false };
    match objects.copy(from, to, how).await {
        // It went at the destination too, as it should.
        Err(e) if task.synchronize && e.code == ErrorCode::ObjectNotFound => Ok(None),
        done => done,
    }
}
