//! Requests about an object, which go straight to the target that owns it.

use std::sync::Arc;

use http::{Method, Response};

use forebay_core::intra::MapReply;
use forebay_core::state::Node;
use forebay_core::{Error as CoreError, ErrorCode, placement};

use super::{Client, ObjectCall};
use crate::body::{Progress, Upload};
use crate::error::{Error, Result};
use crate::hedging;
use crate::retry::{Attempts, GrantRenewal};
use crate::timing;
use crate::transport::{self, Download};

impl Client {
    /// Begins a request straight to a target.
    pub(crate) fn direct(
        &self,
        call: &ObjectCall<'_>,
        node: &Node,
        map: &MapReply,
    ) -> http::request::Builder {
        let path = format!("{}{}", call.route.path(call.bucket, call.name), call.query);
        let mut builder = transport::direct(call.method.clone(), &node.url, &path, map);
        if let Some(headers) = builder.headers_mut() {
            headers.extend(call.headers.iter().map(|(k, v)| (k.clone(), v.clone())));
            if call.method == Method::GET && timing::is_observed() {
                timing::ask(headers);
            }
        }
        builder
    }

    /// Sends a request to the owner of an object until it succeeds or fails permanently.
    pub(crate) async fn ask_owner(
        &self,
        call: &ObjectCall<'_>,
        tries: &mut Attempts,
    ) -> Result<(Response<Download>, u64)> {
        forebay_core::ObjectName::new(call.name)?;
        loop {
            match self.ask_owner_once(call, tries).await {
                Ok(answer) => return Ok(answer),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    async fn ask_owner_once(
        &self,
        call: &ObjectCall<'_>,
        tries: &mut Attempts,
    ) -> Result<(Response<Download>, u64)> {
        let map = self.map_with(call.bucket).await?;
        let info = map.state.bucket(call.bucket)?;
        let node = match placement::owner(&map.state, info, call.name) {
            Ok(node) => node,
            Err(mut e) => {
                // The map is requested, not the dead node: that is cheap, so no long pause.
                e.retry_after_s = None;
                self.maps().replace(Some(&map)).await?;
                return Err(e.into());
            }
        };
        let (upload, progress) = match call.body {
            Some(body) => body.open().await?,
            None => (Upload::empty(), Arc::<Progress>::default()),
        };
        let mut timed = timing::begin();
        let turn = self.inner.pace.turn().await;
        let answer = if hedging::is_read(call) {
            self.send_to_either(call, &map, node).await
        } else {
            let request = transport::finish(self.direct(call, node, &map), upload)?;
            self.transport().send_ok(&node.url, request, Some(&progress)).await
        };
        turn.end(answer.as_ref().err().map(|(e, _)| e.code()));
        match answer {
            Ok(mut answer) => {
                if let Some(version) = transport::map_version(answer.headers()) {
                    self.maps().saw(version);
                }
                if let Some(mut timed) = timed {
                    timed.answered(answer.headers());
                    answer.body_mut().observe(timed);
                }
                Ok((answer, progress.sent()))
            }
            Err((e, version)) => {
                if let Some(timed) = &mut timed {
                    timed.refused(e.code() == ErrorCode::TooManyRequests);
                }
                // A target that could not replicate a removal in time has made it nevertheless.
                let is_late = matches!(&e, Error::Api(_))
                    && matches!(e.code(), ErrorCode::Unavailable | ErrorCode::Timeout);
                tries.ambiguous |= call.method == Method::DELETE && is_late;
                Err(self.explain(e, version, &map, node, &tries.grant).await)
            }
        }
    }

    /// Classifies the failure of a try, given the map that was used; refreshes that map where it
    /// may be the cause.
    pub(crate) async fn explain(
        &self,
        error: Error,
        version: Option<u64>,
        map: &Arc<MapReply>,
        node: &Node,
        renewal: &GrantRenewal,
    ) -> Error {
        let Error::Api(e) = &error else {
            // No answer: the node may be gone. If the map cannot be fetched either, the next try
            // reports that.
            let _ = self.maps().replace(Some(map)).await;
            return error;
        };
        let known = map.state.version;
        match e.code {
            ErrorCode::WrongOwner => {
                let _ = self.maps().replace(Some(map)).await;
                error
            }
            code if code.is_refusal() && renewal.is_worth_it(&map.grant, e) => {
                match self.maps().replace(Some(map)).await {
                    // The gateways refuse this client, too.
                    Err(Error::Api(e)) if e.code.is_refusal() => return error,
                    Ok(new) if new.grant == map.grant && e.retry_after_s.is_none() => return error,
                    _ => {}
                }
                let message = format!("target {} refused the grant: {}", node.id, e.message);
                Error::Api(CoreError::new(ErrorCode::Unavailable, message))
            }
            // Either the node does not have the bucket yet, or this client does not have its
            // removal yet.
            ErrorCode::BucketNotFound | ErrorCode::RemoteBucketNotFound
                if version.is_some_and(|v| v != known) =>
            {
                if version.is_some_and(|v| v > known) {
                    let _ = self.maps().replace(Some(map)).await;
                }
                Error::Api(CoreError::new(ErrorCode::Unavailable, e.message.clone()))
            }
            code if code.is_transient() => {
                if version.is_some_and(|v| v > known) {
                    let _ = self.maps().replace(Some(map)).await;
                }
                error
            }
            _ => error,
        }
    }
}
