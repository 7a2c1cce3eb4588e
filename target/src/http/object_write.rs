//! Writes of an object: PUT, DELETE, and PATCH of its custom metadata; POST of an action.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use forebay_core::object::{SYSTEM_PREFIX, is_system_key};
use forebay_core::request::Caller;
use forebay_core::{Error, Result};
use forebay_routes::v1_objects as rules;
use forebay_v1::custom::check_custom;
use forebay_v1::headers as v1;
use forebay_v1::object::CopyArgs;
use forebay_v1::uploads::{self as actions, AppendQuery, MemberQuery, PartQuery};

use super::object_actions::ObjectActions;
use super::object_request::{ObjectRequest, body_of, read_action, unknown_action};
use super::owner::OwnerCheck;
use super::shard::ShardsApi;
use super::uploads;
use crate::object::{ObjectService, PutRequest};

/// The kind of a PUT's content.
pub(super) enum Sent {
    Stream(Body),
    Whole(Bytes),
}

impl Sent {
    fn body(self) -> Body {
        match self {
            Self::Stream(body) => body,
            Self::Whole(bytes) => Body::from(bytes),
        }
    }

    fn put(self) -> PutRequest {
        match self {
            Self::Stream(body) => {
                let (body, len) = body_of(body);
                PutRequest { len, ..PutRequest::new(body) }
            }
            Self::Whole(bytes) => PutRequest::whole(bytes),
        }
    }
}

/// The services that write objects for v1 requests.
pub(crate) struct ObjectWrites {
    pub(crate) objects: ObjectService,
    pub(crate) owner: OwnerCheck,
    pub(crate) actions: ObjectActions,
    pub(crate) shards: ShardsApi,
}

impl ObjectWrites {
    pub(super) async fn put(&self, request: ObjectRequest, sent: Sent) -> Result<Response> {
        // Boxed: most writes are none of these.
        if let Some(copy) = CopyArgs::parse(&request.query)? {
            return Box::pin(self.actions.copy(&request, copy)).await;
        }
        if let Some(part) = PartQuery::parse(&request.query)? {
            return Box::pin(uploads::part(&self.objects, &request, part, sent.body())).await;
        }
        if let Some(member) = MemberQuery::parse(&request.query, &request.headers)? {
            return Box::pin(self.shards.put_member(&request, member, sent.body())).await;
        }
        if let Some(append) = AppendQuery::parse(&request.query)? {
            return Box::pin(uploads::append(&self.objects, &request, append, sent.body())).await;
        }
        request.check_new_name()?;
        let announced = v1::announced_checksum(&request.headers)?;
        let put = PutRequest { announced, ..sent.put() };
        let meta = match self.objects.writes().put(&request.info, request.name.as_str(), put).await
        {
            Err(e) => return self.owner.moved_meanwhile(&request, e),
            Ok(meta) => meta,
        };
        let size = meta.as_ref().map_or(0, |meta| meta.size);
        if request.caller() != Caller::Node {
            self.objects.wrote(&request.info, size);
        }
        let mut response = Response::new(Body::empty());
        if let Some(meta) = meta {
            v1::put_object_meta(response.headers_mut(), &meta);
        }
        Ok(response)
    }

    pub(super) async fn delete(&self, request: ObjectRequest, body: Body) -> Result<Response> {
        let name = request.name.as_str();
        let action = request.read_action(&rules::DELETE, body).await?;
        match action.action.as_str() {
            "" | "delete" if request.caller() == Caller::Node => {
                self.objects.writes().delete_local(&request.info, name).await?;
            }
            "" | "delete" => {
                if let Err(e) = self.objects.writes().delete(&request.info, name).await {
                    return self.owner.moved_meanwhile(&request, e);
                }
            }
            "evict-listrange" => {
                self.objects.cold_cache().evict(&request.info, name).await?;
            }
            actions::ABORT => return uploads::abort(&self.objects, &request).await,
            other => return Err(unknown_action(other)),
        }
        Ok(Response::new(Body::empty()))
    }

    pub(super) async fn patch(&self, request: ObjectRequest, body: Body) -> Result<Response> {
        let action = read_action(body, request.caller(), &request.query).await?;
        let pairs: BTreeMap<String, String> =
            serde_json::from_value(action.value).map_err(|e| {
                Error::invalid(format!("custom metadata must be an object of strings: {e}"))
            })?;
        if let Some(key) = pairs.keys().find(|key| is_system_key(key)) {
            return Err(Error::invalid(format!("custom metadata \"{key}\" cannot be set"))
                .hint(format!("keys that begin with \"{SYSTEM_PREFIX}\" are the S3 front's own")));
        }
        check_custom(&pairs)?;
        let replace = request.query.flag("set-new-custom");
        let name = request.name.as_str();
        match self.objects.writes().set_custom(&request.info, name, pairs, replace).await {
            Err(e) => self.owner.moved_meanwhile(&request, e),
            Ok(()) => Ok(Response::new(Body::empty())),
        }
    }

    pub(super) async fn post(&self, request: ObjectRequest, body: Body) -> Result<Response> {
        let action = request.read_action(&rules::POST, body).await?;
        match action.action.as_str() {
            actions::BEGIN => uploads::begin(&self.objects, &request).await,
            actions::COMPLETE => uploads::complete(&self.objects, &request, &action).await,
            _ => self.actions.post(&request, &action).await,
        }
    }
}
