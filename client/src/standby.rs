//! Reads that do not wait for a target that hangs: after a moment of silence the one that stands by is
//! asked as well, and whoever answers first is read from. Where nobody stands by, the wait ends when
//! another target answers for the object.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::sync::Semaphore;

use forebay_core::intra::{MapReply, STANDBY_HEADER};
use forebay_core::lease::DEAD_AFTER_MS;
use forebay_core::placement;
use forebay_core::state::Node;

use crate::body::Upload;
use crate::client::{Client, ObjectCall};
use crate::error::Error;
use crate::transport::{self, Answered};

/// So long a target may be silent before another is asked too. A busy one takes less.
const SILENT: Duration = Duration::from_millis(250);
/// Most requests of a client that two targets work at: where all are slow, more would make them slower.
const AT_ONCE: usize = 64;

/// No target is replaced earlier by another one, unless it refuses connections.
const FIRST_LOOK: Duration = Duration::from_millis(DEAD_AFTER_MS);
/// How often who waits longer asks whether another one answers for the object by now.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Turns of those requests.
#[derive(Debug)]
pub(crate) struct SecondAsks(Semaphore);

impl Default for SecondAsks {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

/// Whether such a request may be sent twice.
pub(crate) fn is_read(call: &ObjectCall<'_>) -> bool {
    matches!(call.method, Method::GET | Method::HEAD) && call.body.is_none()
}

impl Client {
    /// Sends a read to the owner of its object, and when that says nothing to the one that stands by.
    pub(crate) async fn send_to_either(
        &self,
        call: &ObjectCall<'_>,
        map: &MapReply,
        owner: &Node,
    ) -> Answered {
        let mut first = pin!(self.send_read(call, map, owner, false));
        if let Ok(answer) = tokio::time::timeout(SILENT, first.as_mut()).await {
            return answer;
        }
        let mut first = pin!(self.while_it_owns(call, owner, first));
        let info = map.state.bucket(call.bucket).map_err(|e| (e.into(), None))?;
        let Some(standby) = placement::standby(&map.state, info, call.name) else {
            return first.await;
        };
        let Ok(_turn) = self.second_asks().0.try_acquire() else { return first.await };
        tracing::debug!(owner = %owner.id, standby = %standby.id, "the owner is silent");
        // On the heap: most reads never come here, and carry no room for it.
        let mut second = Box::pin(self.send_read(call, map, standby, true));
        tokio::select! {
            answer = first.as_mut() => match answer {
                Ok(answer) => Ok(answer),
                // Gone rather than slow.
                Err(e) => second.await.map_err(|_| e),
            },
            answer = second.as_mut() => match answer {
                Ok(answer) => Ok(answer),
                Err(_) => first.await,
            },
        }
    }

    /// The answer of an object's owner; an error worth another try once another one answers for it.
    async fn while_it_owns(
        &self,
        call: &ObjectCall<'_>,
        owner: &Node,
        answer: impl Future<Output = Answered>,
    ) -> Answered {
        let replaced = async {
            tokio::time::sleep(FIRST_LOOK).await;
            while !self.owns_no_more(call, owner).await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            answer = answer => answer,
            () = replaced => {
                let silent = "it was silent until another target took its place";
                Err((Error::broken(&owner.url, silent), None))
            }
        }
    }

    async fn owns_no_more(&self, call: &ObjectCall<'_>, owner: &Node) -> bool {
        let Ok(map) = self.maps().younger_than(LOOK_EVERY).await else { return false };
        let Ok(info) = map.state.bucket(call.bucket) else { return false };
        placement::owner(&map.state, info, call.name).is_ok_and(|now| now.id != owner.id)
    }

    async fn send_read(
        &self,
        call: &ObjectCall<'_>,
        map: &MapReply,
        node: &Node,
        stands_by: bool,
    ) -> Answered {
        let mut builder = self.direct(call, node, map);
        if stands_by {
            builder = builder.header(STANDBY_HEADER, "1");
        }
        if call.driven {
            let request = transport::finish(builder, Bytes::new()).map_err(|e| (e, None))?;
            return self.transport().send_ok_driven(&node.url, request).await;
        }
        let request = transport::finish(builder, Upload::empty()).map_err(|e| (e, None))?;
        self.transport().send_ok(&node.url, request, None).await
    }
}
