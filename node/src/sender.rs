//! The sender of the request that the current task answers, for log lines and audit records.

use std::future::Future;
use std::net::IpAddr;
use std::sync::OnceLock;

use forebay_core::NodeId;
use forebay_core::audit::SentBy;
use forebay_core::request::{Protocol, RequestContext, RequestId};

use crate::audit::{Audit, Event};
use crate::exchange;
use crate::listener::Peer;

tokio::task_local! {
    static CURRENT: Sender;
}

/// The sender of one request.
#[derive(Debug)]
pub(crate) struct Sender {
    id: RequestId,
    protocol: Protocol,
    address: IpAddr,
    node: Option<NodeId>,
    user: OnceLock<String>,
    audit: Audit,
}

impl Sender {
    pub(crate) fn new(about: &RequestContext, Peer(address): Peer, audit: &Audit) -> Self {
        Self {
            id: about.id,
            protocol: about.protocol,
            address,
            node: about.principal.node.clone(),
            user: about.user().map_or_else(OnceLock::new, |user| OnceLock::from(user.to_owned())),
            audit: audit.clone(),
        }
    }

    /// Keeps a record of an event that this sender caused.
    pub(crate) fn record(&self, event: Event<'_>) {
        self.audit.record(event, self.sent_by());
    }

    fn sent_by(&self) -> SentBy {
        SentBy {
            from: match &self.node {
                Some(node) => node.to_string(),
                None => self.address.to_canonical().to_string(),
            },
            user: self.user.get().cloned(),
            api: Some(self.protocol.name()),
            request: Some(self.id.to_string()),
        }
    }

    /// Runs the answer to the request so that [`origin`] and [`set_user`] find its sender.
    pub(crate) async fn scope<T>(self, answer: impl Future<Output = T>) -> T {
        CURRENT.scope(self, answer).await
    }
}

/// Records the owner of the request's signature. Does nothing outside of a request.
pub fn set_user(user: &str) {
    exchange::set_user(user);
    let _ = CURRENT.try_with(|sender| sender.user.set(user.to_owned()));
}

/// The sender of the request that the current task answers. Changes that no request caused come
/// from `this node`.
pub fn origin() -> SentBy {
    let of_request = CURRENT.try_with(Sender::sent_by);
    of_request.unwrap_or_else(|_| SentBy { from: "this node".to_owned(), ..SentBy::default() })
}

/// Keeps an audit record of an event that the current request caused. Events that no request caused
/// are not kept.
pub fn record(event: Event<'_>) {
    let _ = CURRENT.try_with(|sender| sender.record(event));
}

#[cfg(test)]
mod tests {
    use forebay_core::request::{Caller, Principal, Route};

    use super::*;

    #[tokio::test]
    async fn a_sender_is_known_while_its_request_is_answered_and_not_after() {
        let about = RequestContext {
            id: RequestId(255),
            protocol: Protocol::S3Root,
            route: Route::Other,
            principal: Principal::new(Caller::Anonymous),
            trace: None,
        };
        let sender = Sender::new(&about, Peer(IpAddr::from([10, 0, 0, 7])), &Audit::default());
        let seen = sender.scope(async {
            set_user("alice");
            origin()
        });
        let seen = seen.await;
        assert_eq!((seen.from.as_str(), seen.api), ("10.0.0.7", Some("s3")));
        assert_eq!(seen.user.as_deref(), Some("alice"));
        assert_eq!(seen.request.as_deref(), Some("00000000000000FF"));
        set_user("nobody");
        assert_eq!(origin(), SentBy { from: "this node".into(), ..SentBy::default() });
    }
}
