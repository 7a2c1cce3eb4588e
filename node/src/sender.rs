//! The sender of the request that the current task answers, for log lines about changes.

use std::future::Future;
use std::net::IpAddr;
use std::sync::OnceLock;

use forebay_core::NodeId;
use forebay_core::request::{Protocol, RequestContext, RequestId};

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
}

/// The sender in a log line. Changes that no request caused come from `this node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Address of the client, or id of the node that sent the request.
    pub from: String,
    /// Name of the API.
    pub api: Option<&'static str>,
    /// Owner of the key that signed, if the API has signatures.
    pub user: Option<String>,
    /// Id of the request; S3 answers carry it.
    pub request: Option<String>,
}

impl Sender {
    pub(crate) fn new(about: &RequestContext, Peer(address): Peer) -> Self {
        Self {
            id: about.id,
            protocol: about.protocol,
            address,
            node: about.principal.node.clone(),
            user: OnceLock::new(),
        }
    }

    /// Runs the answer to the request so that [`origin`] and [`set_user`] find its sender.
    pub(crate) async fn scope<T>(self, answer: impl Future<Output = T>) -> T {
        CURRENT.scope(self, answer).await
    }
}

/// Records the owner of the request's signature. Does nothing outside of a request.
pub fn set_user(user: &str) {
    let _ = CURRENT.try_with(|sender| sender.user.set(user.to_owned()));
}

/// The sender of the request that the current task answers.
pub fn origin() -> Origin {
    let of_request = CURRENT.try_with(|sender| Origin {
        from: match &sender.node {
            Some(node) => node.to_string(),
            None => sender.address.to_canonical().to_string(),
        },
        api: Some(sender.protocol.name()),
        user: sender.user.get().cloned(),
        request: Some(sender.id.to_string()),
    });
    of_request.unwrap_or_else(|_| Origin { from: "this node".to_owned(), ..Origin::default() })
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
        };
        let sender = Sender::new(&about, Peer(IpAddr::from([10, 0, 0, 7])));
        let seen = sender.scope(async {
            set_user("alice");
            origin()
        });
        let seen = seen.await;
        assert_eq!((seen.from.as_str(), seen.api), ("10.0.0.7", Some("s3")));
        assert_eq!(seen.user.as_deref(), Some("alice"));
        assert_eq!(seen.request.as_deref(), Some("00000000000000FF"));
        set_user("nobody");
        assert_eq!(origin(), Origin { from: "this node".into(), ..Origin::default() });
    }
}
