//! Writes of other targets: objects that they made and this target owns.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::response::Response;
use forebay_core::Error;
use forebay_node::reply::Failure;
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;
use futures::{StreamExt, TryStreamExt};

use super::owner::OwnerCheck;
use super::synced::{Current, Synced};
use crate::object::{Delivery, KEPT, Label, ObjectService};

/// The services for writes of other targets; cheap to clone.
#[derive(Clone)]
pub(crate) struct RemoteWritesApi {
    pub(crate) objects: ObjectService,
    pub(crate) owner: OwnerCheck,
}

pub(crate) fn routes() -> RouteSet<Synced<RemoteWritesApi>> {
    RouteSet::new()
        .on(&rules::OBJECT_ACCEPT, Current(accept))
        .on(&rules::OBJECT_REMOVE, Current(remove))
}

/// Accepts an object that another target made and this target owns.
async fn accept(State(api): State<RemoteWritesApi>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let (info, name) = api.owner.owned(&parts)?;
    let Label { custom, keep_existing } = Label::read(&parts.headers)?;
    let len = http_body::Body::size_hint(&body).exact();
    let body = body
        .into_data_stream()
        .map_err(|e| Error::invalid(format!("the other target stopped sending: {e}")))
        .boxed();
    let delivery = Delivery { body, len, custom, keep_existing };
    let written = api.objects.accept(&info, name.as_str(), delivery).await?;
    let mut response = Response::new(Body::empty());
    if written.is_none() {
        response.headers_mut().insert(KEPT, HeaderValue::from(1));
    }
    Ok(response)
}

/// Removes an object for another target.
async fn remove(State(api): State<RemoteWritesApi>, request: Request) -> Result<Response, Failure> {
    let (parts, _) = request.into_parts();
    let (info, name) = api.owner.owned(&parts)?;
    api.objects.writes().delete(&info, name.as_str()).await?;
    Ok(Response::new(Body::empty()))
}
