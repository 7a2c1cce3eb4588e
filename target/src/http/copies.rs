//! Copies of native objects between targets: sends them to where they belong, accepts them, and
//! returns that a newer version exists.

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_LENGTH;
use axum::response::Response;
use forebay_core::copies::{COPY_HEADER, CopyHead, CopyRequest, SurveyRequest};
use forebay_core::v1::query::{Query, split_path};
use forebay_core::{Error, ObjectName};
use forebay_node::reply::{Failure, json};
use futures::{StreamExt, TryStreamExt};

use super::Shared;
use crate::object::{OLDER, headers_of};

pub(super) async fn look(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    Ok(json(&context.objects.replication().look(&info, &request).await?))
}

pub(super) async fn peek(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    Ok(json(&context.objects.replication().peek(&info, &request).await?))
}

pub(super) async fn survey(
    State(context): State<Shared>,
    Json(request): Json<SurveyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    Ok(json(&context.objects.replication().survey(&info, &request).await?))
}

pub(super) async fn send(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    context.objects.replication().send_on_request(&info, &request).await?;
    Ok(json(&serde_json::Value::Null))
}

pub(super) async fn send_versions(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    context.objects.replication().hand_over_versions(&info, &request).await?;
    Ok(json(&serde_json::Value::Null))
}

pub(super) async fn remove(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    context.objects.replication().remove_older(&info, &request).await?;
    Ok(json(&serde_json::Value::Null))
}

pub(super) async fn ensure(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    Ok(json(&context.objects.replication().ensure(&info, &request).await?))
}

pub(super) async fn slice(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    let (head, len, body) = context.objects.replication().read_slice(&info, &request).await?;
    let mut response = Response::new(Body::from_stream(body));
    *response.headers_mut() = headers_of(&head)?;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
    Ok(response)
}

pub(super) async fn take(
    State(context): State<Shared>,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().replacen("/internal/v1/copies", "/v1/objects", 1);
    let (bucket, name) = split_path(&path, "objects")?;
    let query = Query::parse(parts.uri.query());
    let bucket = query.bucket(&bucket)?;
    let name = ObjectName::new(name)?;
    let head = parts.headers.get(COPY_HEADER).map_or(&b""[..], |value| value.as_bytes());
    let head = CopyHead::from_header(head)?;
    let info = context.maps.load().bucket(&bucket)?.clone();
    let body = body
        .into_data_stream()
        .map_err(|e| Error::invalid(format!("the other target stopped sending: {e}")))
        .boxed();
    let what = (&*info, name.as_str(), query.flag(OLDER));
    context.objects.replication().receive(what, head, body).await?;
    Ok(json(&serde_json::Value::Null))
}
