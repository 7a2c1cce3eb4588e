//! The properties of every request before a handler sees it: its protocol, its route and its
//! sender.
//!
//! A node makes one [`RequestContext`] per request, under both of its HTTP servers, before it
//! selects a handler. Code that needs the protocol of a request, or the proof of its sender, reads
//! only the context.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::access::Access;
use crate::error::{Error, Result};
use crate::name::NodeId;
use crate::sign::{self, GrantUser};
use crate::trace::TraceContext;

/// First segments of paths that a node answers itself. New buckets cannot have these names: at the
/// root of the S3 API their objects would be under these paths.
pub const RESERVED_ROOTS: [&str; 9] =
    ["v1", "api", "internal", "s3", "metrics", "healthz", "readyz", "clusterz", "ui"];

/// The header of a request's id: in every answer of v1 and of the native API, and in the requests
/// of nodes to each other. Answers of S3 have `x-amz-request-id`.
pub const REQUEST_ID_HEADER: &str = "forebay-request-id";

/// The id of a request of a client; printed as 16 hexadecimal digits. The first node that gets the
/// request makes it. The requests that this causes between nodes have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Parses the printed form; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok().map(Self))?
    }

    /// The printed form.
    pub fn digits(self) -> [u8; 16] {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        std::array::from_fn(|place| DIGITS[(self.0 >> (60 - 4 * place)) as usize & 15])
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not the id of a request"))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

/// The API that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// AIStore's REST API under `/v1`, and its easy URLs.
    V1,
    /// The API of Forebay's own clients under `/api`.
    Native,
    /// Requests between nodes under `/internal`.
    Internal,
    /// Health checks, metrics and the console.
    Operations,
    /// S3 under `/s3`.
    S3Prefixed,
    /// S3 whose bucket is named by the host or by the first segment of the path.
    S3Root,
}

/// The subject of a path, as far as it is known before a router sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Objects over v1: `/v1/objects/BUCKET…`.
    Objects,
    /// Everything else.
    Other,
}

/// The properties that determine the protocol of a request.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// As sent, without the query.
    pub path: &'a str,
    /// Whether the host is that of a bucket (virtual-host style of S3).
    pub is_bucket_host: bool,
    /// Whether another node proved that it forwards an S3 request.
    pub is_s3_relay: bool,
}

impl Address<'_> {
    /// The protocol of the request. The host takes precedence over the path: with the host of a
    /// bucket the whole path is a key, even one that begins with `v1/` or `s3/`. `s3_at_root`
    /// returns whether the cluster also serves S3 at `/`.
    pub fn protocol(&self, s3_at_root: impl FnOnce() -> bool) -> Protocol {
        if self.is_bucket_host {
            return Protocol::S3Root;
        }
        let path = self.path.strip_prefix('/').unwrap_or(self.path);
        match path.split('/').next().unwrap_or(path) {
            "s3" => Protocol::S3Prefixed,
            _ if self.is_s3_relay => Protocol::S3Root,
            "v1" => Protocol::V1,
            "api" => Protocol::Native,
            "internal" => Protocol::Internal,
            "metrics" | "healthz" | "readyz" | "clusterz" | "ui" => Protocol::Operations,
            _ if s3_at_root() => Protocol::S3Root,
            _ => Protocol::V1,
        }
    }
}

impl Protocol {
    pub fn is_s3(self) -> bool {
        matches!(self, Self::S3Prefixed | Self::S3Root)
    }

    /// The name in log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::Native => "native",
            Self::Internal => "internal",
            Self::Operations => "operations",
            Self::S3Prefixed | Self::S3Root => "s3",
        }
    }

    /// The route of a path in this protocol.
    pub fn route(self, path: &str) -> Route {
        const OBJECTS: &str = "/v1/objects/";
        match self {
            Self::V1 if path.strip_prefix(OBJECTS).is_some_and(|rest| !rest.is_empty()) => {
                Route::Objects
            }
            _ => Route::Other,
        }
    }
}

/// The kind of sender that a request proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A node of this cluster, on its own behalf.
    Node,
    /// A node of this cluster that forwards an S3 request. It does not have a node's rights.
    S3Relay,
    /// Forebay's own client: it has the map and has to be notified when its map is stale.
    Client,
    /// A foreign client that a gateway redirected here.
    Redirected,
    Anonymous,
}

impl Caller {
    /// Whether the sender routes by the map itself.
    pub fn knows_the_map(self) -> bool {
        matches!(self, Self::Node | Self::Client)
    }
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub caller: Caller,
    /// The node that signed; `None` for nodes of the first version, which did not name themselves.
    pub node: Option<NodeId>,
    /// Why the proof is invalid: a node's proof, or an expired one of a client.
    pub refusal: Option<Arc<Refusal>>,
    /// The rights of the sender.
    pub access: Access,
    /// The user and token of a valid proof of a user, or of the request that a gateway redirected.
    pub user: Option<Arc<GrantUser>>,
    /// Id of the join token that proves the request of a node that is no member yet.
    pub join_token: Option<String>,
}

/// Why a proof is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was made with the cluster's secret for this very request, but has expired or is not yet
    /// valid.
    OutOfTime(Error),
    Other(Error),
}

impl Refusal {
    pub fn error(&self) -> &Error {
        match self {
            Self::OutOfTime(e) | Self::Other(e) => e,
        }
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        Self::Other(e)
    }
}

impl Principal {
    pub fn new(caller: Caller) -> Self {
        let (node, refusal, user, join_token) = Default::default();
        Self { caller, node, refusal, access: Access::Open, user, join_token }
    }
}

/// The context of one request, shared by all handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    pub id: RequestId,
    pub protocol: Protocol,
    pub route: Route,
    pub principal: Principal,
    /// The span of the sender, if the request has one.
    pub trace: Option<TraceContext>,
}

impl RequestContext {
    pub fn caller(&self) -> Caller {
        self.principal.caller
    }

    /// The rights of the sender.
    pub fn access(&self) -> &Access {
        &self.principal.access
    }

    /// Name of the user, also that of a request that a gateway redirected.
    pub fn user(&self) -> Option<&str> {
        let redirected = self.principal.user.as_deref().map(|user| user.user.as_str());
        self.access().user().or(redirected)
    }

    /// Returns an error unless a node of this cluster sent the request on its own behalf.
    pub fn require_node(&self) -> Result<()> {
        match (self.caller(), &self.principal.refusal) {
            (Caller::Node, _) => Ok(()),
            (_, Some(refusal)) => Err(refusal.error().clone()),
            (_, None) => Err(sign::not_a_node()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(path: &str) -> Address<'_> {
        Address { path, is_bucket_host: false, is_s3_relay: false }
    }

    #[test]
    fn an_id_is_printed_and_parsed_as_16_digits() {
        for id in [0, 0xFF, 0x0123_4567_89AB_CDEF, u64::MAX].map(RequestId) {
            let text = id.to_string();
            assert_eq!(id.digits(), *text.as_bytes());
            assert_eq!(RequestId::parse(&text), Some(id));
        }
        for bad in ["", "FF", "+123456789ABCDEF", "0123456789ABCDEFG", "0123456789abcdeé"] {
            assert_eq!(RequestId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_first_segment_decides_and_only_as_a_whole() {
        for (path, protocol) in [
            ("/v1/objects/b/o", Protocol::V1),
            ("/v1", Protocol::V1),
            ("/ais/b/o", Protocol::V1),
            ("/", Protocol::V1),
            ("/api/v1/map", Protocol::Native),
            ("/internal/v1/join", Protocol::Internal),
            ("/metrics", Protocol::Operations),
            ("/s3", Protocol::S3Prefixed),
            ("/s3/b/v1/objects/x", Protocol::S3Prefixed),
            ("/s3x/b", Protocol::V1),
        ] {
            assert_eq!(address(path).protocol(|| false), protocol, "{path}");
        }
        for path in ["/metrics-of-may/x", "/v1x/objects", "/b", "/", "/ais/b"] {
            assert_eq!(address(path).protocol(|| true), Protocol::S3Root, "{path}");
        }
        for root in RESERVED_ROOTS {
            let path = format!("/{root}/objects/b/o");
            assert_ne!(address(&path).protocol(|| true), Protocol::S3Root, "{path}");
        }
    }

    #[test]
    fn behind_the_host_of_a_bucket_every_path_is_a_key() {
        for path in ["/v1/objects/b/o", "/s3/x", "/internal/v1/state", "/metrics", "/"] {
            let protocol = Address { is_bucket_host: true, ..address(path) }.protocol(|| false);
            assert_eq!(protocol, Protocol::S3Root, "{path}");
            assert_eq!(protocol.route(path), Route::Other, "{path}");
        }
    }

    #[test]
    fn a_relayed_request_is_never_one_of_v1() {
        for path in ["/v1/objects/b/o", "/internal/v1/job", "/api/v1/batch", "/b/k"] {
            let relayed = Address { is_s3_relay: true, ..address(path) };
            assert_eq!(relayed.protocol(|| false), Protocol::S3Root, "{path}");
        }
        let prefixed = Address { is_s3_relay: true, ..address("/s3/b/k") };
        assert_eq!(prefixed.protocol(|| false), Protocol::S3Prefixed);
    }

    #[test]
    fn objects_of_v1_are_those_under_their_path() {
        assert_eq!(Protocol::V1.route("/v1/objects/b"), Route::Objects);
        for path in ["/v1/objects/", "/v1/objects", "/v1/buckets/b", "/v1/objectsx/b"] {
            assert_eq!(Protocol::V1.route(path), Route::Other, "{path}");
        }
        assert_eq!(Protocol::S3Root.route("/v1/objects/b/o"), Route::Other);
    }
}
