//! Copies of native objects between targets: sends them to where they belong, accepts them, and
//! returns that a newer version exists.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_LENGTH;
use axum::response::Response;
use forebay_core::bucket::BucketInfo;
use forebay_core::copies::requests::{
    EnsureRequest, LookRequest, RemoveRequest, SendRequest, SendVersionsRequest, SliceRequest,
    SurveyRequest,
};
use forebay_core::copies::{COPY_HEADER, CopyHead};
use forebay_core::{Bucket, Error, ObjectName, Result};
use forebay_node::maps::Maps;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;
use forebay_v1::query::{Query, split_path};
use futures::{StreamExt, TryStreamExt};

use super::synced::{Current, Synced};
use crate::object::{OLDER, ObjectService, headers_of};

/// The services for copies between targets; cheap to clone.
#[derive(Clone)]
pub(crate) struct CopiesApi {
    pub(crate) objects: ObjectService,
    pub(crate) maps: Maps,
}

impl CopiesApi {
    /// A bucket by the current state.
    fn bucket(&self, bucket: &Bucket) -> Result<Arc<BucketInfo>> {
        self.maps.load().bucket(bucket).cloned()
    }
}

pub(crate) fn routes() -> RouteSet<Synced<CopiesApi>> {
    RouteSet::new()
        .on(&rules::COPY_LOOK, Current(look))
        .on(&rules::COPY_SURVEY, Current(survey))
        .on(&rules::COPY_PEEK, Current(peek))
        .on(&rules::COPY_SEND, Current(send))
        .on(&rules::COPY_SEND_VERSIONS, Current(send_versions))
        .on(&rules::COPY_REMOVE, Current(remove))
        .on(&rules::COPY_ENSURE, Current(ensure))
        .on(&rules::COPY_SLICE, Current(slice))
        .on(&rules::COPY_TAKE, Current(take))
}

async fn look(
    State(api): State<CopiesApi>,
    Json(request): Json<LookRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    Ok(json(&api.objects.replication().look(&info, &request).await?))
}

async fn peek(
    State(api): State<CopiesApi>,
    Json(request): Json<LookRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    Ok(json(&api.objects.replication().peek(&info, &request).await?))
}

async fn survey(
    State(api): State<CopiesApi>,
    Json(request): Json<SurveyRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    Ok(json(&api.objects.replication().survey(&info, &request).await?))
}

async fn send(
    State(api): State<CopiesApi>,
    Json(request): Json<SendRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    api.objects.replication().send_on_request(&info, request).await?;
    Ok(json(&serde_json::Value::Null))
}

async fn send_versions(
    State(api): State<CopiesApi>,
    Json(request): Json<SendVersionsRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    api.objects.replication().hand_over_versions(&info, request).await?;
    Ok(json(&serde_json::Value::Null))
}

async fn remove(
    State(api): State<CopiesApi>,
    Json(request): Json<RemoveRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    api.objects.replication().remove_older(&info, &request).await?;
    Ok(json(&serde_json::Value::Null))
}

async fn ensure(
    State(api): State<CopiesApi>,
    Json(request): Json<EnsureRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    Ok(json(&api.objects.replication().ensure(&info, &request).await?))
}

async fn slice(
    State(api): State<CopiesApi>,
    Json(request): Json<SliceRequest>,
) -> Result<Response, Failure> {
    let info = api.bucket(&request.bucket)?;
    let (head, len, body) = api.objects.replication().read_slice(&info, &request).await?;
    let mut response = Response::new(Body::from_stream(body));
    *response.headers_mut() = headers_of(&head)?;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
    Ok(response)
}

async fn take(State(api): State<CopiesApi>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().replacen("/internal/v1/copies", "/v1/objects", 1);
    let (bucket, name) = split_path(&path, "objects")?;
    let query = Query::parse(parts.uri.query());
    let bucket = query.bucket(&bucket)?;
    let name = ObjectName::new(name)?;
    let head = parts.headers.get(COPY_HEADER).map_or(&b""[..], |value| value.as_bytes());
    let head = CopyHead::from_header(head)?;
    let info = api.bucket(&bucket)?;
    let body = body
        .into_data_stream()
        .map_err(|e| Error::invalid(format!("the other target stopped sending: {e}")))
        .boxed();
    let what = (&*info, name.as_str(), query.flag(OLDER));
    api.objects.replication().receive(what, head, body).await?;
    Ok(json(&serde_json::Value::Null))
}
