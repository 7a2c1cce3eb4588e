//! Transformed objects on GET, and requests of gateways about transforms.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Uri, header};
use axum::response::Response;
use forebay_core::Result;
use forebay_core::etl::{Etl, EtlCall, EtlQuestion};
use forebay_core::v1::etl::pulled_object;
use forebay_node::reply::{Failure, json};

use super::objects::ObjectRequest;
use super::{Context, Shared};
use crate::etl::Transformed;

/// `GET /v1/objects/BUCKET/NAME?etl_name=…`: the transformed object. Ranges are not supported,
/// because a range refers to the stored object.
pub(super) async fn get(
    context: &Context,
    request: &ObjectRequest,
    call: &EtlCall,
) -> Result<Response> {
    let made = context.etls.transform(&request.info, request.name.as_str(), call, None).await?;
    Ok(answer(made))
}

/// The object that a pulling service reads, if this target is its `AIS_TARGET_URL`.
pub(super) async fn pulled(State(context): State<Shared>, asked: Uri) -> Result<Response, Failure> {
    let (bucket, name) = pulled_object(asked.path())?;
    let info = context.maps.load().bucket(&bucket)?.clone();
    Ok(answer(context.etls.plain(&info, name.as_str()).await?))
}

fn answer(made: Transformed) -> Response {
    let mut response = Response::new(Body::from_stream(made.body));
    let headers = response.headers_mut();
    let content_type = made.content_type.and_then(|t| HeaderValue::try_from(t).ok());
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, content_type.unwrap_or(unknown));
    if let Some(len) = made.len {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    }
    response
}

/// Whether a transform that is to be registered can be used from this target.
pub(super) async fn check(
    State(context): State<Shared>,
    Json(etl): Json<Etl>,
) -> Result<Response, Failure> {
    context.etls.check(&etl).await?;
    Ok(json(&serde_json::Value::Null))
}

/// This target's part of the status of a transform.
pub(super) async fn part(
    State(context): State<Shared>,
    Json(question): Json<EtlQuestion>,
) -> Result<Response, Failure> {
    let state = context.maps.load();
    let etl = state.etl(&question.name)?;
    Ok(json(&context.etls.part(etl, question.job.as_deref(), question.look).await))
}
