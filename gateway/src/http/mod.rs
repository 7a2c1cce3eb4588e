//! The gateway's HTTP: one file per subject, each with its routes and their state.

pub(crate) mod accounts;
pub(crate) mod admin;
pub(crate) mod api;
pub(crate) mod authn;
pub(crate) mod backend_access;
pub(crate) mod batch;
pub(crate) mod bill;
mod bucket_call;
pub(crate) mod bucket_jobs;
pub(crate) mod buckets;
pub(crate) mod cluster;
pub(crate) mod console;
pub(crate) mod content;
pub(crate) mod daemon;
pub(crate) mod disks;
pub(crate) mod download;
pub(crate) mod dsort;
pub(crate) mod easy_url;
pub(crate) mod etl;
pub(crate) mod feeds;
pub(crate) mod internal;
pub(crate) mod jobs;
pub(crate) mod list;
mod list_stream;
pub(crate) mod node_status;
pub(crate) mod object_jobs;
pub(crate) mod objects;
pub(crate) mod objects_page;
pub(crate) mod openapi;
pub(crate) mod overview;
pub(crate) mod removal;
pub(crate) mod requests_live;
pub(crate) mod summary;
pub(crate) mod traces;
pub(crate) mod warmth;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::access::Access;
use forebay_core::request::RequestContext;
use forebay_core::settings::{NO_EFFECT_HEADER, no_effect_value};
use forebay_core::{Error, Result};
use forebay_node::auth;
use forebay_node::body_budget::read_admitted;
use forebay_node::exchange;
use forebay_node::identity::Identity;
use forebay_node::reply::Failure;

/// Maximum bytes of a control message: a job may name many objects.
pub(crate) const MAX_CONTROL: usize = 64 << 20;

/// The rights of the sender of a request.
pub(crate) fn access_of(extensions: &Extensions) -> Access {
    let about = extensions.get::<RequestContext>();
    about.map_or(Access::Anonymous, |about| about.access().clone())
}

/// Names the operation in metrics and logs, and formats a failure.
pub(crate) fn answered(operation: &'static str, result: Result<Response>) -> Response {
    exchange::set_operation(operation);
    result.unwrap_or_else(|e| Failure(e).into_response())
}

/// Reads a whole request body of at most `limit` bytes, within the budget of all such bodies.
pub(crate) async fn read_body(body: Body, limit: usize) -> Result<Bytes> {
    read_admitted(body, limit).await
}

/// Like [`read_body`], for messages of nodes: they do not use the budget of client bodies.
pub(crate) async fn read_message(body: Body) -> Result<Bytes> {
    axum::body::to_bytes(body, MAX_CONTROL).await.map_err(|e| {
        Error::invalid(format!("the request's body cannot be read: {e}"))
            .hint(format!("at most {MAX_CONTROL} bytes"))
    })
}

/// Redirects the client of a request to a target, with the path and query of `uri`.
pub(crate) fn redirect(
    identity: &Identity,
    version: u64,
    parts: &Parts,
    uri: &Uri,
    target_url: &str,
) -> Result<Response> {
    let about = parts.extensions.get::<RequestContext>();
    let user = about.and_then(|about| about.principal.user.as_deref());
    let method = &parts.method;
    let location = auth::redirect_location(identity, version, user, method, uri, target_url)?;
    let location = HeaderValue::try_from(location)
        .map_err(|_| Error::invalid("the request's URL cannot stand in a header"))?;
    let status = if *method == Method::GET && uri.path().starts_with("/v1/objects/") {
        StatusCode::MOVED_PERMANENTLY
    } else {
        StatusCode::TEMPORARY_REDIRECT
    };
    Ok((status, [(header::LOCATION, location)]).into_response())
}

/// 200 without a body.
pub(crate) fn done() -> Response {
    Response::new(Body::empty())
}

/// Adds to the answer of a change, and to the log, the names of its settings that have no effect.
pub(crate) fn naming_no_effect(mut answer: Response, names: &[String]) -> Response {
    if let Some(value) = no_effect_value(names) {
        tracing::info!(settings = value, "stored without effect");
        if let Ok(value) = HeaderValue::try_from(value) {
            answer.headers_mut().insert(HeaderName::from_static(NO_EFFECT_HEADER), value);
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_routes::{Rule, table};

    use super::*;

    fn served() -> Vec<&'static Rule> {
        [
            objects::routes().rules(),
            objects_page::routes().rules(),
            content::routes().rules(),
            console::routes().rules(),
            buckets::routes().rules(),
            batch::routes().rules(),
            jobs::routes().rules(),
            dsort::routes().rules(),
            etl::routes().rules(),
            download::routes().rules(),
            backend_access::routes().rules(),
            bill::routes().rules(),
            traces::routes().rules(),
            forebay_node::trace::routes().rules(),
            warmth::routes().rules(),
            feeds::routes().rules(),
            disks::routes().rules(),
            cluster::routes().rules(),
            api::routes().rules(),
            accounts::routes().rules(),
            authn::routes().rules(),
            openapi::routes().rules(),
            overview::routes().rules(),
            requests_live::routes().rules(),
            internal::routes().rules(),
            daemon::routes().rules(),
            easy_url::routes().rules(),
        ]
        .concat()
    }

    #[test]
    fn every_route_of_gateways_has_one_handler() {
        let name = |rule: &&'static Rule| (rule.verb.name(), rule.paths[0]);
        let served: Vec<_> = served().iter().map(name).collect();
        let is_here = |rule: &&'static Rule| rule.is_of_gateways() && !rule.is_of_s3();
        let table: BTreeSet<_> = table().filter(is_here).map(|rule| name(&rule)).collect();
        assert_eq!(served.iter().copied().collect::<BTreeSet<_>>(), table);
        assert_eq!(served.len(), table.len());
    }
}
