//! A request about one object, before it is sent.

use forebay_core::Bucket;
use forebay_v1::query::object_uri;
use http::{HeaderMap, Method};

use crate::body::Body;

/// The part of an object that is requested.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route {
    /// Its bytes and properties.
    Object,
    /// The index of the shard that it is.
    ShardIndex,
}

impl Route {
    pub(crate) fn path(self, bucket: &Bucket, name: &str) -> String {
        let object = object_uri(bucket, name);
        match (self, object.strip_prefix("/v1/objects/")) {
            (Self::ShardIndex, Some(rest)) => format!("/api/v1/shard/{rest}"),
            _ => object,
        }
    }
}

/// A request about one object, which may be sent several times.
pub(crate) struct ObjectCall<'a> {
    pub(crate) method: Method,
    pub(crate) bucket: &'a Bucket,
    pub(crate) name: &'a str,
    /// Where nodes answer it.
    pub(crate) route: Route,
    /// The reader of the answer drives the connection itself. Meant for long answers to idempotent
    /// requests that are read at once.
    pub(crate) caller_driven: bool,
    /// Appended to the query; empty or starting with `&`.
    pub(crate) query: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<&'a Body>,
}
