//! Easy URLs (§19): `/ais/BUCKET/OBJECT` and similar, for people with curl. Each is an alias of a
//! v1 path and is served as that path. `s3` is not among them: it is the S3 front.

use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use forebay_core::{Error, Provider, Result};
use forebay_node::reply::Failure;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::v1_buckets::EASY;
use forebay_v1::query::Query;

/// Routes that are served by `v1`, whose rules apply to the request.
pub(crate) fn router(v1: &GuardedRouter) -> GuardedRouter {
    routes().with_state(v1.clone())
}

pub(crate) fn routes() -> RouteSet<GuardedRouter> {
    RouteSet::new().on(&EASY, answer)
}

async fn answer(State(mut v1): State<GuardedRouter>, mut request: Request) -> Response {
    match rewritten(request.method(), request.uri()) {
        Ok(uri) => {
            *request.uri_mut() = uri;
            v1.answer(request).await
        }
        Err(e) => Failure(e).into_response(),
    }
}

/// Rewrites an easy URL to its v1 path. Percent-encoding is kept.
fn rewritten(method: &Method, uri: &Uri) -> Result<Uri> {
    let bad = || Error::invalid(format!("invalid request URI: '{method} {}'", uri.path()));
    let path = uri.path().strip_prefix('/').ok_or_else(bad)?;
    let (scheme, rest) = path.split_once('/').unwrap_or((path, ""));
    let provider: Provider = scheme.parse()?;
    let (bucket, object) = rest.split_once('/').unwrap_or((rest, ""));
    let mut to = match (bucket, object) {
        ("", "") => "/v1/buckets".to_owned(),
        ("", _) => return Err(bad()),
        (_, "") if *method == Method::PUT => {
            return Err(Error::invalid("missing destination object name in the \"easy URL\"")
                .hint(format!("/{scheme}/BUCKET/OBJECT")));
        }
        (_, "") => format!("/v1/buckets/{bucket}"),
        _ => format!("/v1/objects/{bucket}/{object}"),
    };
    to.push('?');
    if let Some(query) = uri.query().filter(|q| !q.is_empty()) {
        to.push_str(query);
        to.push('&');
    }
    // The first value of a key wins, so a value from the client takes precedence.
    if Query::parse(uri.query()).get("provider").is_none() {
        to.push_str("provider=");
        to.push_str(provider.as_str());
    }
    let to: PathAndQuery = to.trim_end_matches(['&', '?']).parse().map_err(|_| bad())?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(to);
    Uri::from_parts(parts).map_err(|_| bad())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn easy_urls_are_paths_of_v1() {
        let to = |method: Method, uri: &str| {
            rewritten(&method, &uri.parse().unwrap()).map(|uri| uri.to_string())
        };
        for (easy, v1) in [
            ("/ais", "/v1/buckets?provider=ais"),
            ("/gs/", "/v1/buckets?provider=gcp"),
            ("/ais/b", "/v1/buckets/b?provider=ais"),
            ("/ais/b/", "/v1/buckets/b?provider=ais"),
            ("/ais/b/d/x", "/v1/objects/b/d/x?provider=ais"),
            ("/ais/b/d%2Fx%20y//z", "/v1/objects/b/d%2Fx%20y//z?provider=ais"),
            ("/az/b/o?a=1", "/v1/objects/b/o?a=1&provider=azure"),
            ("/ais/b/o?provider=aws&x", "/v1/objects/b/o?provider=aws&x"),
            ("/ais/b/o?provider=", "/v1/objects/b/o?provider=&provider=ais"),
        ] {
            assert_eq!(to(Method::GET, easy).unwrap(), v1, "{easy}");
        }
        assert!(to(Method::PUT, "/ais/b").is_err());
        assert!(to(Method::GET, "/ais//o").is_err());
    }
}
