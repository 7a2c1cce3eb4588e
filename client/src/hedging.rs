//! Hedged reads: if a target is silent for `SILENT`, the standby target of the object is asked as
//! well, and the first answer is used. If the object has no standby, the wait ends when a newer map
//! gives the object to another target.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use forebay_core::intra::{HEDGED_HEADER, MapReply};
use forebay_core::placement;
use forebay_core::state::Node;

use crate::body::Upload;
use crate::client::{Client, ObjectCall};
use crate::error::{Error, Result};
use crate::transport::{self, Answered};

/// How long a target may be silent before the read is hedged. A busy target usually answers sooner.
const SILENT: Duration = Duration::from_millis(250);

/// Interval at which a read that still waits checks whether another target owns the object by now;
/// the owner may have been silent for long before the read started. One map request serves all
/// waiting reads.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether this request may be sent twice.
pub(crate) fn is_read(call: &ObjectCall<'_>) -> bool {
    matches!(call.method, Method::GET | Method::HEAD) && call.body.is_none()
}

impl Client {
    /// Sends a read to the owner of its object and, if the owner is silent, also to the standby.
    pub(crate) async fn send_to_either(
        &self,
        call: &ObjectCall<'_>,
        map: &Arc<MapReply>,
        owner: &Node,
    ) -> Answered {
        let mut first = pin!(self.send_read(call, map, owner, false));
        if let Ok(answer) = tokio::time::timeout(SILENT, first.as_mut()).await {
            return answer;
        }
        let mut first = pin!(self.while_it_owns(call, owner, first));
        let info = map.state.bucket(call.bucket).map_err(|e| (e.into(), None))?;
        let Some(other) = placement::hedge_target(&map.state, info, call.name) else {
            return first.await;
        };
        let Ok(_turn) = self.hedge_limit().try_acquire() else { return first.await };
        tracing::debug!(owner = %owner.id, target = %other.id, "the owner is silent");
        // On the heap: most reads never come here and should not carry its size.
        let mut second = Box::pin(self.send_read(call, map, other, true));
        tokio::select! {
            answer = first.as_mut() => match answer {
                // The owner is gone rather than slow; the standby may hang as well.
                Err((e, version)) if e.is_transient() => {
                    match tokio::time::timeout(LOOK_EVERY, second).await {
                        Ok(Ok(answer)) => Ok(answer),
                        _ => Err((e, version)),
                    }
                }
                answer => answer,
            },
            answer = second.as_mut() => match answer {
                Ok(answer) => Ok(answer),
                // The standby rejects the read if a newer map gives the object to another target.
                Err((_, version)) if version.is_some_and(|version| version > map.state.version)
                    && owns_no_more(self.maps().replace(Some(map)).await, call, owner) =>
                {
                    Err(replaced(owner))
                }
                Err(_) => first.await,
            },
        }
    }

    /// Waits for the answer of an object's owner; returns a transient error once another target
    /// owns the object.
    async fn while_it_owns(
        &self,
        call: &ObjectCall<'_>,
        owner: &Node,
        answer: impl Future<Output = Answered>,
    ) -> Answered {
        let looking = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if owns_no_more(self.maps().younger_than(LOOK_EVERY).await, call, owner) {
                    return;
                }
            }
        };
        tokio::select! {
            answer = answer => answer,
            () = looking => Err(replaced(owner)),
        }
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
            builder = builder.header(HEDGED_HEADER, "1");
        }
        if call.caller_driven {
            let request = transport::finish(builder, Bytes::new()).map_err(|e| (e, None))?;
            return self.transport().send_ok_caller_driven(&node.url, request).await;
        }
        let request = transport::finish(builder, Upload::empty()).map_err(|e| (e, None))?;
        self.transport().send_ok(&node.url, request, None).await
    }
}

/// Whether the map, if it could be fetched, gives the object to another target.
fn owns_no_more(map: Result<Arc<MapReply>>, call: &ObjectCall<'_>, owner: &Node) -> bool {
    let Ok(map) = map else { return false };
    let Ok(info) = map.state.bucket(call.bucket) else { return false };
    placement::owner(&map.state, info, call.name).is_ok_and(|now| now.id != owner.id)
}

fn replaced(owner: &Node) -> (Error, Option<u64>) {
    (Error::broken(&owner.url, "it was silent until another target took its place"), None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use forebay_core::{ErrorCode, NodeId};

    use super::*;
    use crate::scripted_server::{
        Reply, Seen, Server, after, bucket, client, json, map, not_here, reply,
    };

    const FOR_EVER: Duration = Duration::from_secs(60);
    /// No read of these tests may take this long.
    const LONG_TIMEOUT: Duration = Duration::from_secs(4);

    type Script = Arc<dyn Fn(bool) -> Reply + Send + Sync>;

    /// Two targets with a copy of each object, scripted by `owner` and `hedging`; the map marks the
    /// owner as dead once `dead` is set.
    async fn cluster(owner: Script, hedging: Script, dead: Arc<AtomicBool>) -> [Server; 3] {
        let twice = |first: &str, second: &str| {
            let mut reply = map(7, &[("target-01", first), ("target-02", second)]);
            reply.state.rebalanced_version = reply.state.targets_changed;
            for info in reply.state.buckets.values_mut() {
                Arc::make_mut(info).copies = 2;
            }
            reply
        };
        let known = twice("http://one", "http://two");
        let info = known.state.bucket(&bucket()).unwrap();
        let owns = placement::owner(&known.state, info, "o").unwrap().id.clone();
        let stands_by = |seen: &Seen| seen.headers.contains_key(HEDGED_HEADER);
        let target = |id: &str| {
            let script = if owns.as_str() == id { owner.clone() } else { hedging.clone() };
            Server::start(move |seen| script(stands_by(seen)))
        };
        let (first, second) = (target("target-01").await, target("target-02").await);
        let urls = (first.url.clone(), second.url.clone());
        let gateway = Server::start(move |seen| {
            if seen.path != "/api/v1/map" {
                return not_here();
            }
            let mut reply = twice(&urls.0, &urls.1);
            if dead.load(Ordering::SeqCst) {
                let node = reply.state.nodes.get_mut(&NodeId::clone(&owns)).unwrap();
                (node.alive, node.lagging) = (false, true);
                reply.state.version = 9;
            }
            json(&reply)
        })
        .await;
        [gateway, first, second]
    }

    fn silent() -> Script {
        Arc::new(|_| after(FOR_EVER, reply(200, &[], "too late")))
    }

    async fn the_new_owner_is_read_soon(hedging: Script, dead: Arc<AtomicBool>) {
        let servers = cluster(silent(), hedging, dead).await;
        let started = Instant::now();
        let client = client(&servers[0].url, FOR_EVER);
        assert_eq!(client.get_bytes(&bucket(), "o", None).await.unwrap(), "owner now");
        assert!(started.elapsed() < LONG_TIMEOUT);
    }

    #[tokio::test]
    async fn the_other_copy_is_read_while_the_owner_is_silent() {
        let hedging: Script = Arc::new(|stands_by| match stands_by {
            true => reply(200, &[], "copy"),
            false => not_here(),
        });
        let servers = cluster(silent(), hedging, Arc::default()).await;
        let client = client(&servers[0].url, FOR_EVER);
        assert_eq!(client.get_bytes(&bucket(), "o", None).await.unwrap(), "copy");
    }

    #[tokio::test]
    async fn what_the_owner_says_at_last_is_taken_though_the_other_is_silent() {
        let owner: Script = Arc::new(|_| after(SILENT * 2, reply(404, &[], "no such object")));
        let servers = cluster(owner, silent(), Arc::default()).await;
        let started = Instant::now();
        let client = client(&servers[0].url, FOR_EVER);
        let error = client.get_bytes(&bucket(), "o", None).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ObjectNotFound);
        assert!(started.elapsed() < LONG_TIMEOUT);
    }

    #[tokio::test]
    async fn an_owner_replaced_just_after_it_was_asked_is_waited_for_no_longer() {
        let dead: Arc<AtomicBool> = Arc::default();
        let died = dead.clone();
        // When it is asked as the standby, it has become the owner.
        let hedging: Script = Arc::new(move |stands_by| {
            died.store(true, Ordering::SeqCst);
            match stands_by {
                true => reply(503, &[("forebay-map", "9")], "it does not stand in"),
                false => reply(200, &[], "owner now"),
            }
        });
        the_new_owner_is_read_soon(hedging, dead).await;
    }

    #[tokio::test]
    async fn who_waits_for_a_silent_owner_sees_soon_that_it_is_replaced() {
        let dead: Arc<AtomicBool> = Arc::default();
        let died = dead.clone();
        let hedging: Script = Arc::new(move |stands_by| match stands_by {
            // It hangs as well, or waits for the owner itself.
            true => {
                died.store(true, Ordering::SeqCst);
                after(FOR_EVER, reply(200, &[], "too late"))
            }
            false => reply(200, &[], "owner now"),
        });
        the_new_owner_is_read_soon(hedging, dead).await;
    }
}
