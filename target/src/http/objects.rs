//! Objects over v1: `/v1/objects/BUCKET/NAME`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, Method};
use axum::response::{IntoResponse, Response};
use forebay_core::access::Access;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::HEDGED_HEADER;
use forebay_core::request::{Caller, Principal, RequestContext};
use forebay_core::{Error, ErrorCode, ObjectName, Result};
use forebay_node::auth;
use forebay_node::exchange;
use forebay_node::listener::Answer;
use forebay_node::maps::Maps;
use forebay_node::rates::Pass;
use forebay_node::reply::Failure;
use forebay_routes::{Rule, Verb, v1_objects};
use forebay_v1::query::{Query, split_path};
use futures::future::{BoxFuture, ready};

use super::blobs::BlobsApi;
use super::get_request::GetRequest;
use super::object_get::ObjectReads;
use super::object_head;
use super::object_request::ObjectRequest;
use super::object_write::{ObjectWrites, Sent};
use super::owner::{OwnerCheck, without_proof};
use crate::state_sync::StateSync;

static HEDGED: HeaderName = HeaderName::from_static(HEDGED_HEADER);

/// The rules of objects, which bypass the router.
pub(super) static OBJECT_RULES: [&Rule; 6] = [
    &v1_objects::GET,
    &v1_objects::HEAD,
    &v1_objects::PUT,
    &v1_objects::DELETE,
    &v1_objects::PATCH,
    &v1_objects::POST,
];

/// The services that requests for objects are dispatched to.
pub(crate) struct ObjectsApi {
    pub(crate) reads: Arc<ObjectReads>,
    pub(crate) writes: ObjectWrites,
    pub(crate) blobs: BlobsApi,
    pub(crate) owner: OwnerCheck,
    pub(crate) sync: StateSync,
}

/// A request for an object, decoded as far as possible without waiting.
pub(super) enum DecodedRequest {
    Answered(Response),
    /// The request is for the bucket.
    OnBucket(Parts, Principal),
    Get(ObjectRequest, GetRequest),
    Other(ObjectRequest),
}

impl ObjectsApi {
    /// Handles all methods of an object. For a small object in memory the response is ready when
    /// this returns.
    pub(super) fn handle(&self, about: &RequestContext, request: Request) -> Answer<'_> {
        let method = request.method().clone();
        let (parts, body) = request.into_parts();
        if let Err(e) = auth::check_sender(about, &method, parts.uri.path()) {
            return Answer::Left(ready(self.finish(&method, Err(e))));
        }
        if self.sync.newer(&parts.headers, &parts.uri).is_some() {
            let about = about.clone();
            return self.later(method, async move {
                self.sync.catch_up(&parts.headers, &parts.uri).await?;
                self.resume(self.decode(&about, parts)?, body).await
            });
        }
        let decoded = self.decode(about, parts);
        let result = match decoded.and_then(|decoded| self.complete_now(decoded)) {
            Ok(DecodedRequest::Answered(response)) => Ok(response),
            Ok(decoded) => return self.later(method, self.resume(decoded, body)),
            Err(e) => Err(e),
        };
        Answer::Left(ready(self.finish(&method, result)))
    }

    fn later<'a>(
        &'a self,
        method: Method,
        work: impl Future<Output = Result<Response>> + Send + 'a,
    ) -> Answer<'a> {
        Answer::Right(Box::pin(async move { self.finish(&method, work.await) }))
    }

    /// Names the operation in metrics and logs, and formats a failure.
    pub(super) fn finish(&self, method: &Method, result: Result<Response>) -> Response {
        exchange::set_operation(rule_of(method).map_or("unknown", operation_of));
        result.unwrap_or_else(|e| {
            let code = match e.code {
                // A client that was not redirected gets `Unavailable`, so that it retries.
                ErrorCode::WrongOwner => ErrorCode::Unavailable,
                code => code,
            };
            Failure(Error { code, ..e }).into_response()
        })
    }

    /// Decodes a request that its sender may send.
    pub(super) fn decode(&self, about: &RequestContext, parts: Parts) -> Result<DecodedRequest> {
        let sender = &about.principal;
        if sender.access != Access::Open {
            rule_of(&parts.method)?.admit(about, parts.uri.path(), parts.uri.query())?;
        }
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let (bucket, name) = split_path(parts.uri.path(), "objects")?;
        if name.is_empty() && parts.method == Method::POST {
            return Ok(DecodedRequest::OnBucket(parts, sender.clone()));
        }
        let query = Query::parse(parts.uri.query());
        let bucket = query.bucket(&bucket)?;
        let name = ObjectName::new(name)?;
        let info = self.owner.bucket(&bucket)?.with_request_rules(&parts.headers)?;
        if reads && sender.caller == Caller::Client && parts.headers.contains_key(&HEDGED) {
            self.reads.objects.replication().check_hedged(&info, name.as_str())?;
        } else if sender.caller != Caller::Node
            && let Some(elsewhere) =
                self.owner.redirect(&info, &name, sender, &parts.method, &parts.uri)?
        {
            let elsewhere = without_proof(&sender.access, &parts.method, elsewhere);
            return Ok(DecodedRequest::Answered(elsewhere));
        }
        let (method, uri, headers, sender) =
            (parts.method, parts.uri, parts.headers, sender.clone());
        exchange::set_bucket(&info);
        let mut request = ObjectRequest { info, name, query, sender, method, uri, headers };
        if request.method != Method::GET {
            return Ok(DecodedRequest::Other(request));
        }
        let get = GetRequest::of(&mut request)?;
        Ok(DecodedRequest::Get(request, get))
    }

    /// Completes a GET of a small object in memory.
    fn complete_now(&self, decoded: DecodedRequest) -> Result<DecodedRequest> {
        let DecodedRequest::Get(request, get) = decoded else { return Ok(decoded) };
        if self.is_limited(&request.sender, &request.info) {
            return Ok(DecodedRequest::Get(request, get));
        }
        Ok(match self.reads.fast_path(&request, get)? {
            Ok(found) => DecodedRequest::Answered(found.response(request.caller())),
            Err(get) => DecodedRequest::Get(request, get),
        })
    }

    /// Whether a request has to wait for its turn, or its bytes for theirs.
    pub(super) fn is_limited(&self, about: &Principal, info: &BucketInfo) -> bool {
        about.caller != Caller::Node && self.sync.maps.rates().limits(info, user_of(about))
    }

    /// Performs a request. If its bucket or user has limits, it waits for its turn, and its bytes pass
    /// at their rate.
    async fn resume(&self, decoded: DecodedRequest, body: Body) -> Result<Response> {
        let pass = match self.admission(&decoded) {
            Some(admission) => admission.await?,
            None => None,
        };
        let body = match &pass {
            Some(pass) => pass.shape(body),
            None => body,
        };
        // Awaited at one place only: rustc checks this large future again for each.
        let response = self.perform(decoded, body).await?;
        Ok(match pass {
            Some(pass) => pass.shape_response(response),
            None => response,
        })
    }

    /// The wait for the turn of a request whose bucket or user has limits.
    fn admission(&self, decoded: &DecodedRequest) -> Option<Admission> {
        let (DecodedRequest::Get(request, _) | DecodedRequest::Other(request)) = decoded else {
            return None;
        };
        if !self.is_limited(&request.sender, &request.info) {
            return None;
        }
        let user = user_of(&request.sender).map(str::to_owned);
        Some(admission(&self.sync.maps, request.info.clone(), user))
    }

    async fn perform(&self, decoded: DecodedRequest, body: Body) -> Result<Response> {
        let request = match decoded {
            DecodedRequest::Answered(response) => return Ok(response),
            DecodedRequest::OnBucket(parts, sender) => {
                return Box::pin(self.blobs.on_bucket(&parts, &sender, body)).await;
            }
            DecodedRequest::Get(request, get) => return self.reads.get(request, get).await,
            DecodedRequest::Other(request) => request,
        };
        // Boxed: the future is as large as its largest variant.
        match request.method {
            Method::HEAD => {
                let (objects, identity) = (&self.reads.objects, &self.owner.identity);
                Box::pin(object_head::head(objects, identity, request)).await
            }
            Method::PUT => Box::pin(self.writes.put(request, Sent::Stream(body))).await,
            Method::DELETE => Box::pin(self.writes.delete(request, body)).await,
            Method::PATCH => Box::pin(self.writes.patch(request, body)).await,
            Method::POST => Box::pin(self.writes.post(request, body)).await,
            ref other => Err(not_served(other)),
        }
    }
}

/// The wait for the turn of one request; its result has the limits of the bytes of its bodies.
pub(crate) type Admission = BoxFuture<'static, Result<Option<Arc<Pass>>>>;

/// Waits for the turn of one request for an object.
pub(crate) fn admission(maps: &Maps, info: Arc<BucketInfo>, user: Option<String>) -> Admission {
    let maps = maps.clone();
    Box::pin(async move {
        let targets = maps.load().alive_targets().count();
        maps.rates().admit(&info, user.as_deref(), targets).await
    })
}

/// Name of the user, also of a request that a gateway redirected.
fn user_of(sender: &Principal) -> Option<&str> {
    sender.access.user().or(sender.user.as_deref().map(|user| user.user.as_str()))
}

/// The rule of a method.
fn rule_of(method: &Method) -> Result<&'static Rule> {
    let rule = OBJECT_RULES.into_iter().find(|rule| rule.verb.name() == method.as_str());
    rule.ok_or_else(|| not_served(method))
}

/// The name of a request for an object in metrics.
fn operation_of(rule: &'static Rule) -> &'static str {
    match rule.verb {
        Verb::Post => "post",
        Verb::Delete => "delete",
        _ => rule.operation,
    }
}

fn not_served(method: &Method) -> Error {
    Error::new(ErrorCode::MethodNotAllowed, format!("{method} is not served for objects"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request's future is moved several times before it runs in its connection.
    #[test]
    fn a_request_for_an_object_is_cheap_to_hand_on() {
        let size = size_of::<Answer<'_>>();
        assert!(size <= 512, "{size} bytes");
    }
}
