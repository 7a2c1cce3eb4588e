//! Jobs on a bucket over v1: copies, renames, archives, and jobs on selected objects.

use std::sync::Arc;

use axum::response::Response;
use forebay_core::access::Scope;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::etl::EtlCall;
use forebay_core::job::{CopyTask, JobKind, JobSpec, Selection, Task};
use forebay_core::state::Command;
use forebay_core::{Bucket, Error, ErrorCode, Result, placement};
use forebay_node::clock::unix_ns;
use forebay_node::reply::text;
use forebay_routes::On;
use forebay_v1::action::lower_keys;
use forebay_v1::transfers::Fields;
use serde_json::{Map, Value};

use super::bucket_call::Call;
use super::done;
use crate::bucket_props;
use crate::changes::Changes;
use crate::ids;
use crate::job_control::JobControl;
use crate::route::{Found, Route};
use crate::targets;

/// The components that start jobs on buckets; cheap to clone.
#[derive(Clone)]
pub(crate) struct BucketJobs {
    pub(crate) route: Route,
    pub(crate) changes: Changes,
    pub(crate) control: JobControl,
}

fn spec(kind: JobKind) -> JobSpec {
    JobSpec::new(kind, ids::mint(kind.id_prefix()))
}

/// The bucket of a call, and the fields of its value. The sender must have the rights on the
/// selected objects, also of a bucket that does not exist.
async fn asked(state: &BucketJobs, call: &Call, on: &[On]) -> Result<(Found, Fields)> {
    let bucket = call.bucket()?;
    if !call.is_open() {
        let (grant, selection) = (call.grant()?, selected(call)?);
        on.iter().try_for_each(|on| grant.require_selection(*on, &bucket, &selection))?;
    }
    let found = state.route.bucket(&bucket).await?;
    Ok((found, Fields::new(&call.action.value)?))
}

fn selected(call: &Call) -> Result<Selection> {
    Fields::new(&call.action.value)?.selection()
}

/// Returns an error unless the sender may write the copies of the selected objects.
fn check_copies(call: &Call, task: &CopyTask) -> Result<()> {
    if call.is_open() {
        return Ok(());
    }
    let grant = call.grant()?;
    if task.ext.is_empty() {
        return grant.require_copies(&task.to, &task.prepend, &selected(call)?);
    }
    // The end of a name changes, and with it perhaps a part of the selected prefix.
    grant.require(On::Destination, Scope::Prefix(&task.to, &task.prepend))
}

/// Builds a job on the objects that a value selects.
fn chosen(kind: JobKind, fields: &Fields) -> Result<JobSpec> {
    let mut spec = spec(kind);
    fields.common(&mut spec)?;
    spec.selection = match kind {
        JobKind::Delete => fields.selection_to_delete()?,
        _ => fields.selection()?,
    };
    Ok(spec)
}

/// The destination bucket of a copy or a rename, from the query.
fn bck_to(call: &Call) -> Result<Bucket> {
    let action = &call.action.action;
    let missing = || Error::invalid(format!("{action}: the query lacks bck_to"));
    let uname = call.query.get("bck_to").ok_or_else(missing)?;
    match Bucket::parse_uname(uname)? {
        (bucket, None) => Ok(bucket),
        (_, Some(object)) => Err(Error::invalid(format!(
            "{action}: bck_to names a bucket and not the object \"{}\"",
            object.as_str()
        ))),
    }
}

/// Starts a job that has no options except its selection of objects.
pub(super) async fn each(state: &BucketJobs, kind: JobKind, call: &Call) -> Result<Response> {
    let (found, fields) = asked(state, call, &[On::Selected]).await?;
    let spec = chosen(kind, &fields)?;
    Ok(text(state.control.start(&found, spec).await?))
}

pub(super) async fn prefetch(state: &BucketJobs, call: &Call) -> Result<Response> {
    let (found, fields) = asked(state, call, &[On::Selected]).await?;
    let mut spec = chosen(JobKind::Prefetch, &fields)?;
    spec.task = fields.prefetch()?;
    Ok(text(state.control.start(&found, spec).await?))
}

/// `copy-bck`, and `etl-bck` with a transform.
pub(super) async fn copy_bucket(
    state: &BucketJobs,
    call: &Call,
    transformed: bool,
) -> Result<Response> {
    let (found, fields) = asked(state, call, sources(transformed)).await?;
    let mut task = fields.copy(bck_to(call)?, transformed)?;
    task.remote_too = matches!(call.query.get("presence"), Some("0" | "1" | "5"));
    let kind = if transformed { JobKind::TransformBucket } else { JobKind::CopyBucket };
    copy(state, call, &found, task, kind).await
}

/// The rights on the selected objects that a copy needs; a transform is also a job.
fn sources(transformed: bool) -> &'static [On] {
    if transformed { &[On::Source, On::Selected] } else { &[On::Source] }
}

/// `copy-listrange`, and `etl-listrange` with a transform.
pub(super) async fn copy_objects(
    state: &BucketJobs,
    call: &Call,
    transformed: bool,
) -> Result<Response> {
    let (found, fields) = asked(state, call, sources(transformed)).await?;
    let to = fields.destination()?;
    let to =
        to.ok_or_else(|| Error::invalid(format!("{}: tobck is missing", call.action.action)))?;
    let mut task = fields.copy(to, transformed)?;
    task.remote_too = true;
    let kind = if transformed { JobKind::TransformObjects } else { JobKind::CopyObjects };
    copy(state, call, &found, task, kind).await
}

async fn copy(
    state: &BucketJobs,
    call: &Call,
    found: &Found,
    task: CopyTask,
    kind: JobKind,
) -> Result<Response> {
    check_copies(call, &task)?;
    let fields = Fields::new(&call.action.value)?;
    let from = &found.info.bucket;
    if let Some(transform) = &task.transform {
        EtlCall::from(transform).check(&found.state)?;
    }
    let renames = !task.prepend.is_empty() || !task.ext.is_empty();
    // A transform would process its own output.
    let changes = task.transform.is_none() && renames;
    if task.to == *from && !task.dry_run && !found.info.has_backend() && !changes {
        return Err(Error::invalid(format!("cannot copy bucket \"{from}\" onto itself")));
    }
    let mut spec = chosen(kind, &fields)?;
    let found = match task.dry_run {
        true => found.clone(),
        // Targets must know the destination: use the state that contains it.
        false => {
            Found { state: destination(state, call, found, &task.to).await?.state, ..found.clone() }
        }
    };
    spec.task = Task::Copy(Box::new(task));
    Ok(text(state.control.start(&found, spec).await?))
}

/// Writes native objects to a bucket with a backend; `synchronize`: objects that no longer exist
/// are removed there too.
pub(super) async fn write_back(state: &BucketJobs, call: &Call) -> Result<Response> {
    let (found, fields) = asked(state, call, &[On::Source]).await?;
    let to = fields.destination()?;
    let to = to.ok_or_else(|| Error::invalid("write-back: tobck is missing"))?;
    let prepend = fields.prepend()?;
    check_copies(call, &CopyTask { prepend: prepend.clone(), ..CopyTask::new(to.clone()) })?;
    let from = &found.info.bucket;
    if found.info.has_backend() {
        return Err(Error::invalid(format!(
            "write-back: what is written to \"{from}\" is at its backend already"
        ))
        .hint("objects of native buckets are written back"));
    }
    let known = state.route.bucket(&to).await?;
    if !known.info.has_backend() {
        return Err(Error::invalid(format!("write-back: bucket \"{to}\" has no backend"))
            .hint("copies inside of the cluster are made by `copy`"));
    }
    let mut spec = chosen(JobKind::WriteBack, &fields)?;
    let synchronize = fields.synchronize()?;
    let task = CopyTask { prepend, synchronize, ..CopyTask::new(known.info.bucket.clone()) };
    spec.task = Task::Copy(Box::new(task));
    // Targets must know the destination: use the state that contains it.
    let found = Found { state: known.state, ..found };
    Ok(text(state.control.start(&found, spec).await?))
}

/// The destination bucket of copies; a missing native bucket is created with the properties of its
/// source.
async fn destination(
    state: &BucketJobs,
    call: &Call,
    source: &Found,
    to: &Bucket,
) -> Result<Found> {
    match state.route.bucket(to).await {
        Err(e) if e.code == ErrorCode::BucketNotFound && !to.is_remote() => {}
        known => return known,
    }
    call.grant()?.require(On::Created, Scope::Bucket(to))?;
    let mut info = BucketInfo::requested(to.clone(), None);
    info.checksum = source.info.checksum;
    if !source.info.has_backend() {
        info.class = source.info.class;
        info.extra.clone_from(&source.info.extra);
    }
    let command = Command::CreateBucket { info: Box::new(info), now_ns: unix_ns() };
    match state.changes.commit(command).await {
        Err(e) if e.code != ErrorCode::BucketExists => Err(e),
        _ => state.route.known(to),
    }
}

/// Renames a bucket immediately; a job moves its objects to their new owners.
pub(super) async fn rename(state: &BucketJobs, call: &Call) -> Result<Response> {
    let (from, to) = (call.bucket()?, bck_to(call)?);
    let grant = call.grant()?;
    grant.require(On::Source, Scope::Bucket(&from))?;
    grant.require(On::Destination, Scope::Bucket(&to))?;
    let found = state.route.known(&from)?;
    if found.info.has_backend() || to.provider != from.provider {
        return Err(Error::invalid(format!(
            "cannot rename \"{from}\" to \"{to}\": only native buckets are renamed"
        )));
    }
    if from == to {
        return Err(Error::invalid(format!("cannot rename bucket \"{from}\" to itself")));
    }
    found.info.check_access(BucketChange::Rename)?;
    // Checked before anything changes: the job needs all targets.
    targets::all_members(&found.state)?;
    state.changes.commit(Command::RenameBucket { from, to: to.clone() }).await?;
    let found = state.route.known(&to)?;
    Ok(text(state.control.start(&found, spec(JobKind::MoveBucket)).await?))
}

/// Writes objects into one shard, on the target that will own it.
pub(super) async fn archive(state: &BucketJobs, call: &Call) -> Result<Response> {
    let (found, fields) = asked(state, call, &[On::Source]).await?;
    let task = fields.archive(&found.info.bucket)?;
    call.grant()?.require(On::Destination, Scope::Object(&task.to, &task.name))?;
    let to = state.route.bucket(&task.to).await?;
    let runner = placement::owner(&to.state, &to.info, &task.name)?;
    if !found.info.has_backend() {
        targets::all_members(&found.state)?;
    }
    let mut spec = chosen(JobKind::Archive, &fields)?;
    spec.bucket = Some(found.info.bucket.clone());
    spec.task = Task::Archive(Box::new(task));
    Ok(text(state.control.launch(spec, vec![runner]).await?))
}

/// Sets the number of copies of each object; the job creates missing copies and removes surplus
/// ones.
pub(super) async fn make_copies(state: &BucketJobs, call: &Call) -> Result<Response> {
    call.grant()?.require(On::Bucket, Scope::Bucket(&call.bucket()?))?;
    let found = state.route.bucket(&call.bucket()?).await?;
    let copies = match &call.action.value {
        Value::Number(n) => n.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let copies = copies.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    let copies = copies
        .ok_or_else(|| Error::invalid("make-n-copies: the value must be a number of copies"))?;
    let mut info = Arc::unwrap_or_clone(found.info.clone());
    if info.copies != copies {
        let mirror = serde_json::json!({"mirror": {"enabled": copies > 1, "copies": copies}});
        bucket_props::apply(&mut info, &mirror)?;
        info.copies = copies;
        info.validate()?;
        state.changes.commit(Command::SetBucket { info: Box::new(info) }).await?;
    }
    let found = state.route.bucket(&found.info.bucket).await?;
    Ok(text(state.control.start(&found, spec(JobKind::MakeCopies)).await?))
}

/// Sets the erasure coding of a bucket; the job creates missing slices and removes surplus ones. It
/// also runs if the setting does not change, for example after a loss.
pub(super) async fn encode(state: &BucketJobs, call: &Call) -> Result<Response> {
    call.grant()?.require(On::Bucket, Scope::Bucket(&call.bucket()?))?;
    let found = state.route.bucket(&call.bucket()?).await?;
    let mut info = Arc::unwrap_or_clone(found.info.clone());
    let mut section = erasure_section(&call.action.value)?;
    // On by default, unless the request turns it off.
    let on = info.erasure.is_some() && section.is_empty();
    if !on {
        section.entry("enabled").or_insert(Value::Bool(true));
        bucket_props::apply(&mut info, &serde_json::json!({ "ec": section }))?;
    }
    if info != *found.info {
        state.changes.commit(Command::SetBucket { info: Box::new(info) }).await?;
    }
    let found = state.route.bucket(&found.info.bucket).await?;
    Ok(text(state.control.start(&found, spec(JobKind::EcEncode)).await?))
}

/// The job that converts objects to the layout of changed properties; none if the layout does not
/// change.
pub(super) fn made_necessary(before: &BucketInfo, after: &BucketInfo) -> Option<JobKind> {
    if before.erasure != after.erasure {
        return Some(JobKind::EcEncode);
    }
    (before.copies != after.copies).then_some(JobKind::MakeCopies)
}

/// Starts the job for a change of properties that was made already; the answer is the job's id.
/// Targets do the work in any case: if the job cannot start, the answer is that the properties are
/// set.
pub(super) async fn follow_up(
    state: &BucketJobs,
    bucket: &Bucket,
    kind: JobKind,
) -> Result<Response> {
    let found = state.route.bucket(bucket).await?;
    match state.control.start(&found, spec(kind)).await {
        Ok(id) => Ok(text(id)),
        Err(e) => {
            tracing::warn!(%bucket, error = %e, "no job watches the change of the bucket's copies");
            Ok(done())
        }
    }
}

/// The erasure section of an `ec-encode`: an object, or a string that contains one; it may be
/// missing.
fn erasure_section(value: &Value) -> Result<Map<String, Value>> {
    let bad = || {
        Error::invalid(
            "ec-encode: the value must be a JSON object such as {\"data_slices\": 4, \"parity_slices\": 2}",
        )
    };
    let value = match value {
        Value::String(text) if text.is_empty() => Value::Null,
        Value::String(text) => serde_json::from_str(text).map_err(|_| bad())?,
        other => other.clone(),
    };
    match lower_keys(value) {
        Value::Null => Ok(Map::new()),
        Value::Object(section) => Ok(section),
        _ => Err(bad()),
    }
}

/// The answer to actions that this version does not support.
pub(super) async fn lacking(state: &BucketJobs, call: &Call) -> Result<Response> {
    call.grant()?.require(On::Selected, Scope::Prefix(&call.bucket()?, ""))?;
    state.route.bucket(&call.bucket()?).await?;
    let action = &call.action.action;
    Err(Error::unsupported(format!("{action} is not supported"))
        .hint("objects lie in pieces as the store sees fit"))
}
