//! Copies of native objects between targets: what one has, sent to where it belongs, taken, and told
//! that it was overtaken.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use forebay_core::copies::{COPY_HEADER, CopyHead, CopyRequest, SurveyRequest};
use forebay_core::v1::query::{Query, split_path};
use forebay_core::{Error, ObjectName};
use forebay_node::reply::{Failure, json};
use futures::{StreamExt, TryStreamExt};

use super::Shared;
use crate::object::{OLDER, Which};

pub(super) async fn look(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    Ok(json(&context.objects.look(&info, &request).await?))
}

pub(super) async fn peek(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    Ok(json(&context.objects.peek(&info, &request).await?))
}

pub(super) async fn survey(
    State(context): State<Shared>,
    Json(request): Json<SurveyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    Ok(json(&context.objects.survey(&info, &request).await?))
}

pub(super) async fn send(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    context.objects.hand_over(&info, &request).await?;
    Ok(json(&serde_json::Value::Null))
}

pub(super) async fn remove(
    State(context): State<Shared>,
    Json(request): Json<CopyRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    let CopyRequest { name, stamp, by, .. } = request;
    context.objects.overtaken(&info, &name, stamp, by.as_ref()).await?;
    Ok(json(&serde_json::Value::Null))
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
    let which = Which { info: &info, name: name.as_str(), older: query.flag(OLDER) };
    context.objects.accept_copy(which, head, body).await?;
    Ok(json(&serde_json::Value::Null))
}
