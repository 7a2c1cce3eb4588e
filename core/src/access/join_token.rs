//! Join tokens: a target without the secret of the cluster proves with one that it may join.

use serde::{Deserialize, Serialize};

use super::records::Opaque;
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;

/// Lifetime of a join token if the request has none, seconds.
pub const DEFAULT_JOIN_TOKEN_TTL_S: u64 = 3_600;
/// Longest lifetime of a join token, seconds.
pub const MAX_JOIN_TOKEN_TTL_S: u64 = 24 * 3_600;
/// Most joins by one token.
pub const MAX_JOIN_TOKEN_USES: u32 = 1_000;

/// A join token, by its id in the section of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenRecord {
    /// The text of the token, sealed.
    pub secret: Opaque,
    /// Id of the only node that may join; empty: any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Joins that are left.
    pub uses: u32,
    /// Unix seconds.
    pub expires_s: u64,
    #[serde(default)]
    pub created_ns: u64,
}

impl JoinTokenRecord {
    /// Whether this node may join by the token now.
    pub fn admits(&self, node: &NodeId, now_s: u64) -> bool {
        let is_for_node = self.node.is_empty() || self.node == node.as_str();
        is_for_node && self.uses > 0 && !self.has_expired(now_s)
    }

    /// Whether the lifetime of the token has ended.
    pub fn has_expired(&self, now_s: u64) -> bool {
        self.expires_s < now_s
    }
}

/// `POST /api/v1/auth/join-tokens`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JoinTokenRequest {
    /// Seconds; absent: [`DEFAULT_JOIN_TOKEN_TTL_S`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
    /// Targets that may join by the token; absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// Id of the only target that may join; empty: any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
}

impl JoinTokenRequest {
    /// The lifetime in seconds and the number of uses. Returns an error for values out of range.
    pub fn checked(&self) -> Result<(u64, u32)> {
        let ttl_s = self.ttl_s.unwrap_or(DEFAULT_JOIN_TOKEN_TTL_S);
        if !(1..=MAX_JOIN_TOKEN_TTL_S).contains(&ttl_s) {
            let text = format!("the lifetime of a join token is {ttl_s} s");
            return Err(Error::invalid(text).hint("it may be 1 second to 24 hours"));
        }
        let uses = self.uses.unwrap_or(1);
        if !(1..=MAX_JOIN_TOKEN_USES).contains(&uses) {
            let text = format!("a join token for {uses} targets");
            return Err(Error::invalid(text).hint(format!("it may be 1 to {MAX_JOIN_TOKEN_USES}")));
        }
        if !self.node.is_empty() {
            NodeId::new(&self.node)?;
        }
        Ok((ttl_s, uses))
    }
}

/// A new join token; its text cannot be read again.
#[derive(Clone, Serialize, Deserialize)]
pub struct JoinTokenReply {
    pub id: String,
    pub token: String,
    /// Unix seconds.
    pub expires_s: u64,
}

/// A join token without its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenInfo {
    pub id: String,
    /// As in [`JoinTokenRequest::node`].
    pub node: String,
    /// Joins that are left.
    pub uses: u32,
    /// Unix seconds.
    pub expires_s: u64,
}

/// The error for a join by a token that is expired, used up, removed, or for another node.
pub fn no_join_token() -> Error {
    Error::new(ErrorCode::AccessDenied, "the join token is not valid for this node (any more)")
        .hint("make another one with `forebay node join-token create`")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_admits_its_node_until_it_expires_or_is_used_up() {
        let node = |id: &str| NodeId::new(id).unwrap();
        let token = JoinTokenRecord { uses: 1, expires_s: 100, ..JoinTokenRecord::default() };
        assert!(token.admits(&node("target-01"), 100));
        assert!(!token.admits(&node("target-01"), 101));
        assert!(!JoinTokenRecord { uses: 0, ..token.clone() }.admits(&node("target-01"), 1));
        let bound = JoinTokenRecord { node: "target-02".into(), ..token };
        assert!(bound.admits(&node("target-02"), 1) && !bound.admits(&node("target-01"), 1));
    }

    #[test]
    fn lifetime_uses_and_node_are_checked() {
        let request =
            |text: &str| serde_json::from_str::<JoinTokenRequest>(text).unwrap().checked();
        assert_eq!(request("{}").unwrap(), (DEFAULT_JOIN_TOKEN_TTL_S, 1));
        assert_eq!(request(r#"{"ttl_s": 60, "uses": 3}"#).unwrap(), (60, 3));
        for wrong in
            [r#"{"ttl_s": 0}"#, r#"{"ttl_s": 86401}"#, r#"{"uses": 0}"#, r#"{"uses": 1001}"#]
        {
            assert!(request(wrong).is_err(), "{wrong}");
        }
        assert!(request(r#"{"node": "x"}"#).is_err(), "no id of a node");
    }
}
