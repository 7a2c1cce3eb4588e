//! S3 on a gateway: buckets and listings are answered here; requests for objects stream through to
//! the owner.

mod buckets;
mod delete;
mod form;
mod list;
mod settings;
mod versions;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use forebay_core::placement;
use forebay_core::request::RequestContext;
use forebay_node::exchange;
use forebay_node::listener::{Handler, Peer, Routes};
use forebay_node::relay::Relay;
use forebay_node::s3::{self, S3Door};
use forebay_node::sender;
use forebay_s3::answers;
use forebay_s3::auth::Identity;
use forebay_s3::{Front, Operation, Request as S3Request, S3Code, S3Error, S3Result, cors};

use crate::changes::Changes;
use crate::http::buckets::Buckets;
use crate::route::{Found, Route};
use crate::targets::Targets;

/// The components that the operations of S3 use.
#[derive(Clone)]
pub(crate) struct S3 {
    pub(crate) door: S3Door,
    pub(crate) route: Route,
    pub(crate) targets: Targets,
    pub(crate) changes: Changes,
    /// The v1 operations on buckets, used where S3 has the same.
    pub(crate) buckets: Buckets,
    pub(crate) relay: Relay,
}

/// Everything that a gateway serves: S3 bypasses the router, because S3 keys may look like its
/// paths.
pub(crate) struct GatewayFront {
    pub(crate) s3: S3,
    pub(crate) routes: Routes,
}

impl Handler for GatewayFront {
    async fn answer(&self, about: RequestContext, request: Request, peer: Peer) -> Response {
        match self.s3.door.front(about.protocol) {
            Some(front) => Box::pin(self.s3.answer(&about, front, request, peer)).await,
            None => self.routes.answer(about, request, peer).await,
        }
    }
}

/// A parsed S3 request with its authenticated sender.
struct Call {
    parts: Parts,
    request: S3Request,
    who: Identity,
}

impl S3 {
    async fn answer(
        &self,
        about: &RequestContext,
        front: &Front,
        request: Request,
        peer: Peer,
    ) -> Response {
        let (mut parts, body) = request.into_parts();
        s3::note_peer(&mut parts, peer);
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        let mut bucket = String::new();
        let headers = parts.headers.contains_key(header::ORIGIN).then(|| parts.headers.clone());
        let done = match s3::parse(&parts, front) {
            Ok(request) => {
                exchange::set_operation(request.operation.name());
                bucket.clone_from(&request.bucket);
                self.dispatch(front, parts, body, request).await
            }
            Err(e) => Err(e),
        };
        let mut response = done.unwrap_or_else(|e| self.door.failure(about.id, &e, &method, &path));
        // Also for a failure, which a browser's page could not read otherwise.
        if let Some(headers) = headers
            && method != Method::OPTIONS
            && let Ok(found) = self.found(&bucket)
        {
            s3::put_cors(&found.info, &method, &headers, response.headers_mut());
        }
        response
    }

    async fn dispatch(
        &self,
        front: &Front,
        parts: Parts,
        body: Body,
        request: S3Request,
    ) -> S3Result<Response> {
        use Operation as O;
        if request.operation == O::Preflight {
            return self.preflight(&parts, &request);
        }
        if let O::Unsupported(name) = request.operation {
            return unserved(name);
        }
        if !request.key.is_empty() {
            return self.pass_on(front, parts, body, &request).await;
        }
        if request.operation == O::PostObject {
            return self.post_object(&parts, body, &request.bucket).await;
        }
        let who = self.door.authenticate(&parts, front)?.identity;
        if let Identity::Key(user) = &who {
            sender::set_user(user);
        }
        let makes = request.operation == O::CreateBucket;
        let known = self.found(&request.bucket);
        match (&known, &request.operation) {
            _ if makes || request.bucket.is_empty() => {
                if who == Identity::Anonymous {
                    return Err(S3Code::AccessDenied.into());
                }
            }
            (Ok(found), _) => {
                self.door.authorize(&who, &found.info, &request, &parts)?;
            }
            (Err(e), _) => {
                return Err(self.door.hide_missing_bucket(&who, &request.bucket, e.clone()));
            }
        }
        let call = Call { parts, request, who };
        match &call.request.operation {
            O::ListBuckets(asked) => self.list_buckets(&call, asked),
            O::CreateBucket => self.create_bucket(&call, body).await,
            O::HeadBucket => self.head_bucket(&call),
            O::DeleteBucket => self.delete_bucket(&call).await,
            O::GetBucketLocation => self.location(&call),
            O::ListObjects(asked) => self.list_objects(&call, asked).await,
            O::ListObjectsV2(asked) => self.list_objects_v2(&call, asked).await,
            O::ListObjectVersions(asked) => self.list_versions(&call, asked).await,
            O::ListMultipartUploads(asked) => self.list_uploads(&call, asked).await,
            O::DeleteObjects => self.delete_objects(&call, body).await,
            operation if settings::serves(operation) => self.setting(&call, body).await,
            operation => Err(S3Error::not_implemented(operation.name())),
        }
    }

    /// Answers a browser's CORS preflight for a bucket.
    fn preflight(&self, parts: &Parts, request: &S3Request) -> S3Result<Response> {
        let rules =
            self.found(&request.bucket).map(|found| found.info.s3.cors.clone()).unwrap_or_default();
        let mut response = s3::empty(StatusCode::OK);
        for (name, value) in cors::preflight(&rules, &parts.headers)? {
            s3::set(response.headers_mut(), name, &value);
        }
        Ok(response)
    }

    /// The bucket of a call; a cloud's bucket must be known to the cluster already.
    fn found(&self, name: &str) -> S3Result<Found> {
        let state = self.route.state();
        if state.version == 0 {
            return Err(S3Code::ServiceUnavailable.into());
        }
        let info = s3::bucket(&state, name)?.clone();
        Ok(Found { state, info })
    }

    /// Forwards a request for an object to its owner, which checks the signature. A client that
    /// waits for `100 Continue` gets a refusal before it sends the body.
    async fn pass_on(
        &self,
        front: &Front,
        parts: Parts,
        body: Body,
        request: &S3Request,
    ) -> S3Result<Response> {
        let found = match self.found(&request.bucket) {
            Ok(found) => found,
            Err(e) => {
                // A signature is checked if it is present.
                let who = self.door.authenticate(&parts, front)?.identity;
                return Err(self.door.hide_missing_bucket(&who, &request.bucket, e));
            }
        };
        if parts.headers.contains_key(header::EXPECT) {
            let who = self.door.authenticate(&parts, front)?.identity;
            self.door.authorize(&who, &found.info, request, &parts)?;
        }
        let owner = placement::owner(&found.state, &found.info, &request.key)?;
        let request = Request::from_parts(parts, body);
        Ok(self.relay.pass(&owner.url, found.state.version, None, request).await?)
    }

    /// Sends a request of this gateway on behalf of `who` to the owner of `key`; returns the
    /// answer.
    async fn ask_owner(
        &self,
        found: &Found,
        key: &str,
        who: &Identity,
        request: Request,
    ) -> S3Result<Response> {
        let owner = placement::owner(&found.state, &found.info, key)?;
        let user = Some(s3::name_of(who));
        Ok(self.relay.pass(&owner.url, found.state.version, user, request).await?)
    }
}

/// Settings that cannot be changed have fixed answers; other operations are refused by name.
fn unserved(name: &'static str) -> S3Result<Response> {
    const NO_NOTIFICATIONS: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <NotificationConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";
    match name {
        "GetBucketRequestPayment" => Ok(s3::xml(StatusCode::OK, answers::request_payment())),
        "GetBucketNotificationConfiguration" => {
            Ok(s3::xml(StatusCode::OK, NO_NOTIFICATIONS.to_owned()))
        }
        _ => Err(S3Error::not_implemented(name)),
    }
}

/// 204.
fn no_content() -> Response {
    s3::empty(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_s3::subresources;

    use super::*;

    /// The words between backticks.
    fn named<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
        lines.into_iter().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
    }

    #[test]
    fn the_table_of_operations_is_what_is_served_and_refused() {
        let docs = include_str!("../../../docs/compat.md");
        let (_, s3) = docs.split_once("\n## S3\n").expect("a chapter on S3");
        let (s3, _) = s3.split_once("\n## ").expect("a chapter behind it");
        let table = named(s3.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next()));
        let (_, refused) = s3.split_once("answered `NotImplemented`").expect("what is refused");
        let refused = named(refused.lines());

        let (fixed, absent): (BTreeSet<_>, BTreeSet<_>) =
            subresources::not_served().partition(|name| unserved(name).is_ok());
        let served: BTreeSet<_> = Operation::SERVED.iter().copied().chain(fixed).collect();
        assert_eq!(table, served);
        assert_eq!(refused, absent);
    }

    #[test]
    fn what_is_not_served_is_refused_by_its_name() {
        let e = unserved("GetBucketWebsite").expect_err("it is not served");
        assert_eq!(e.code, S3Code::NotImplemented);
        assert!(e.message.contains("GetBucketWebsite"), "{e}");
    }
}
