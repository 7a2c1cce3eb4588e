//! Multipart uploads and appends over v1, and the list of uploads for gateways.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use forebay_core::upload::UploadsRequest;
use forebay_core::{Error, Result};
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;
use forebay_v1::action::ActionMsg;
use forebay_v1::headers as v1;
use forebay_v1::uploads::{self, AppendQuery, PartQuery};

use super::object_request::{ObjectRequest, body_of};
use super::synced::{Current, Synced};
use crate::object::{Completion, ObjectService, PartRequest, UploadOptions};

/// The requests of gateways.
pub(crate) fn routes() -> RouteSet<Synced<ObjectService>> {
    RouteSet::new().on(&rules::UPLOADS, Current(list))
}

/// `POST` with `mpt-upload`: returns the id, as text.
pub(super) async fn begin(objects: &ObjectService, request: &ObjectRequest) -> Result<Response> {
    request.check_new_name()?;
    let options = UploadOptions::default();
    let (info, name) = (&request.info, request.name.as_str());
    let id = objects.uploads().begin(info, name, options).await?;
    Ok(Response::new(Body::from(id)))
}

/// `PUT` with `uploadId` and `partNumber`.
pub(super) async fn part(
    objects: &ObjectService,
    request: &ObjectRequest,
    part: PartQuery,
    body: Body,
) -> Result<Response> {
    let (info, name, id) = (&request.info, request.name.as_str(), part.upload_id.as_str());
    let (body, len) = body_of(body);
    if len == Some(0) {
        // An unknown upload id is the more important error.
        objects.uploads().get(info, name, id).await?;
        let uri = info.bucket.object_uri(name);
        return Err(Error::invalid(format!("{uri}: put-part invalid size (0)")));
    }
    let announced = v1::announced_checksum(&request.headers)?;
    let sent = PartRequest { body, len, announced, at_end: None };
    let stored = objects.uploads().put_part(info, name, id, part.number, sent).await?;
    objects.wrote(info, stored.size);
    Ok(Response::new(Body::empty()))
}

/// `POST` with `mpt-complete`.
pub(super) async fn complete(
    objects: &ObjectService,
    request: &ObjectRequest,
    action: &ActionMsg,
) -> Result<Response> {
    let id = uploads::upload_id(&request.query)?;
    let parts = uploads::completed_parts(&action.value)?;
    let completion = Completion { parts, all: true, ..Completion::default() };
    let (info, name) = (&request.info, request.name.as_str());
    objects.uploads().complete(info, name, &id, completion).await?;
    Ok(Response::new(Body::empty()))
}

/// `DELETE` with `mpt-abort`.
pub(super) async fn abort(objects: &ObjectService, request: &ObjectRequest) -> Result<Response> {
    let id = uploads::upload_id(&request.query)?;
    objects.uploads().abort(&request.info, request.name.as_str(), &id).await?;
    Ok(Response::new(Body::empty()))
}

/// `PUT` with `append_type`.
pub(super) async fn append(
    objects: &ObjectService,
    request: &ObjectRequest,
    append: AppendQuery,
    body: Body,
) -> Result<Response> {
    let (info, name) = (&request.info, request.name.as_str());
    let mut response = Response::new(Body::empty());
    match append {
        AppendQuery::More(handle) => {
            request.check_new_name()?;
            let (body, len) = body_of(body);
            let handle = objects.appends().append(info, name, handle.as_deref(), body).await?;
            objects.wrote(info, len.unwrap_or(0));
            v1::set(response.headers_mut(), v1::APPEND_HANDLE, &handle);
        }
        AppendQuery::Flush(handle) => {
            let announced = v1::announced_checksum(&request.headers)?;
            objects.appends().flush(info, name, &handle, announced).await?;
        }
    }
    Ok(response)
}

/// The uploads of a bucket on this target.
async fn list(
    State(objects): State<ObjectService>,
    Json(request): Json<UploadsRequest>,
) -> Result<Response, Failure> {
    Ok(json(&objects.uploads().page(&request).await?))
}
