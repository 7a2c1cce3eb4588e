//! Transformed objects on GET, and requests of gateways about transforms.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Uri, header};
use axum::response::Response;
use forebay_core::Result;
use forebay_core::etl::{Etl, EtlCall, EtlQuestion};
use forebay_node::maps::Maps;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::{internal, v1_objects};
use forebay_v1::etl::pulled_object;

use super::object_request::ObjectRequest;
use super::synced::{Current, Synced};
use crate::etl::{Etls, Transformed};

/// The services for transforms; cheap to clone.
#[derive(Clone)]
pub(crate) struct TransformsApi {
    pub(crate) etls: Etls,
    pub(crate) maps: Maps,
}

/// The requests of gateways.
pub(crate) fn routes() -> RouteSet<Synced<TransformsApi>> {
    RouteSet::new().on(&internal::ETL_CHECK, Current(check)).on(&internal::ETL_PART, Current(part))
}

/// The requests of services that pull objects.
pub(crate) fn pull_routes() -> RouteSet<TransformsApi> {
    RouteSet::new().on(&v1_objects::ETL_OBJECT, pulled)
}

impl TransformsApi {
    /// `GET /v1/objects/BUCKET/NAME?etl_name=…`: the transformed object. Ranges are not
    /// supported, because a range refers to the stored object.
    pub(super) async fn get(&self, request: &ObjectRequest, call: &EtlCall) -> Result<Response> {
        let made = self.etls.transform(&request.info, request.name.as_str(), call, None).await?;
        Ok(answer(made))
    }
}

/// The object that a pulling service reads, if this target is its `AIS_TARGET_URL`.
async fn pulled(State(api): State<TransformsApi>, asked: Uri) -> Result<Response, Failure> {
    let (bucket, name) = pulled_object(asked.path())?;
    let info = api.maps.load().bucket(&bucket)?.clone();
    Ok(answer(api.etls.plain(&info, name.as_str()).await?))
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
async fn check(
    State(api): State<TransformsApi>,
    Json(etl): Json<Etl>,
) -> Result<Response, Failure> {
    api.etls.check(&etl).await?;
    Ok(json(&serde_json::Value::Null))
}

/// This target's part of the status of a transform.
async fn part(
    State(api): State<TransformsApi>,
    Json(question): Json<EtlQuestion>,
) -> Result<Response, Failure> {
    let state = api.maps.load();
    let etl = state.etl(&question.name)?;
    Ok(json(&api.etls.part(etl, question.job.as_deref(), question.look).await))
}
