//! Proofs between nodes and for clients: HMAC-SHA-256 by the cluster's secret, with an expiry.
//!
//! Times are unix seconds, passed in.

use std::cell::RefCell;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, ErrorCode, Result};

/// Header by which a node proves that it belongs to the cluster.
pub const NODE_AUTH_HEADER: &str = "forebay-auth";
/// Header by which a client shows the grant that came with its map.
pub const GRANT_HEADER: &str = "forebay-grant";
/// Query keys of a signed redirect: expiry and signature.
pub const REDIRECT_EXPIRY: &str = "fbx";
pub const REDIRECT_SIGNATURE: &str = "fbs";
/// How long a redirect may be followed, seconds.
pub const REDIRECT_TTL_S: u64 = 30;
/// How long a client's grant holds, seconds.
pub const GRANT_TTL_S: u64 = 3600;
/// How long a node's proof of one request holds, seconds (clocks of nodes may differ by this much).
pub const NODE_AUTH_TTL_S: u64 = 300;

/// A grant, and the secret that it was made with.
struct Proven {
    secret: Vec<u8>,
    grant: String,
}

thread_local! {
    /// The last grant that was found to hold, its expiry aside.
    static PROVEN: RefCell<Option<Proven>> = const { RefCell::new(None) };
}

/// Whether two texts are the same, in a time that does not tell where they differ.
fn is_same(a: &str, b: &str) -> bool {
    let differ = |(a, b): (u8, u8)| a ^ b;
    a.len() == b.len() && a.bytes().zip(b.bytes()).map(differ).fold(0, |all, bits| all | bits) == 0
}

/// The cluster's secret. Never printed.
#[derive(Clone)]
pub struct ClusterSecret(Vec<u8>);

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterSecret(…)")
    }
}

impl ClusterSecret {
    /// From the text of a secret file; white space around it is not part of it.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() < 16 {
            return Err(Error::invalid("the cluster secret is shorter than 16 characters"));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    fn mac(&self, purpose: &str, parts: &[&str], expiry: u64) -> Hmac<Sha256> {
        // A key of any length is a valid HMAC key.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key length");
        mac.update(purpose.as_bytes());
        for part in parts {
            mac.update(b"\n");
            mac.update(part.as_bytes());
        }
        mac.update(b"\n");
        mac.update(expiry.to_string().as_bytes());
        mac
    }

    fn seal(&self, purpose: &str, parts: &[&str], expiry: u64) -> String {
        hex::encode(self.mac(purpose, parts, expiry).finalize().into_bytes())
    }

    fn check(&self, purpose: &str, parts: &[&str], expiry: u64, tag: &str, now: u64) -> bool {
        let Ok(tag) = hex::decode(tag) else { return false };
        now <= expiry && self.mac(purpose, parts, expiry).verify_slice(&tag).is_ok()
    }

    /// Query to append to a redirect of `method path` (path as sent, percent-encoded).
    pub fn sign_redirect(&self, method: &str, path: &str, now: u64) -> String {
        let expiry = now + REDIRECT_TTL_S;
        let tag = self.seal("redirect", &[method, path], expiry);
        format!("{REDIRECT_EXPIRY}={expiry}&{REDIRECT_SIGNATURE}={tag}")
    }

    pub fn verify_redirect(
        &self,
        method: &str,
        path: &str,
        expiry: &str,
        tag: &str,
        now: u64,
    ) -> bool {
        expiry.parse().is_ok_and(|e| self.check("redirect", &[method, path], e, tag, now))
    }

    /// A grant for direct access to targets, valid for [`GRANT_TTL_S`].
    pub fn grant(&self, now: u64) -> String {
        let expiry = now + GRANT_TTL_S;
        format!("{expiry}.{}", self.seal("grant", &[], expiry))
    }

    pub fn verify_grant(&self, grant: &str, now: u64) -> bool {
        let Some((expiry, tag)) = grant.split_once('.') else { return false };
        let Ok(expiry) = expiry.parse() else { return false };
        if now > expiry {
            return false;
        }
        // A client shows the same one for an hour, with every request.
        PROVEN.with_borrow_mut(|proven| {
            let is_known = |known: &Proven| known.secret == self.0 && is_same(&known.grant, grant);
            if proven.as_ref().is_some_and(is_known) {
                return true;
            }
            let holds = self.check("grant", &[], expiry, tag, now);
            if holds {
                *proven = Some(Proven { secret: self.0.clone(), grant: grant.to_owned() });
            }
            holds
        })
    }

    /// Value of [`NODE_AUTH_HEADER`] for one request.
    pub fn sign_node(&self, method: &str, path_and_query: &str, now: u64) -> String {
        let expiry = now + NODE_AUTH_TTL_S;
        format!("{expiry}.{}", self.seal("node", &[method, path_and_query], expiry))
    }

    pub fn verify_node(
        &self,
        method: &str,
        path_and_query: &str,
        value: &str,
        now: u64,
    ) -> Result<()> {
        let ok = value.split_once('.').is_some_and(|(expiry, tag)| {
            expiry.parse().is_ok_and(|e| self.check("node", &[method, path_and_query], e, tag, now))
        });
        if ok {
            return Ok(());
        }
        Err(Error::new(ErrorCode::AccessDenied, "not signed by a node of this cluster")
            .hint("nodes of one cluster need the same secret file and clocks within 5 minutes"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn proofs_hold_for_what_was_signed_and_no_longer_than_said() {
        let s = ClusterSecret::new("0123456789abcdef\n").unwrap();
        let q = s.sign_redirect("PUT", "/v1/objects/b/o", 100);
        let (x, t) = q.split_once('&').unwrap();
        let (x, t) = (x.strip_prefix("fbx=").unwrap(), t.strip_prefix("fbs=").unwrap());
        assert!(s.verify_redirect("PUT", "/v1/objects/b/o", x, t, 130));
        assert!(!s.verify_redirect("PUT", "/v1/objects/b/o", x, t, 131));
        assert!(!s.verify_redirect("DELETE", "/v1/objects/b/o", x, t, 100));
        assert!(!s.verify_redirect("PUT", "/v1/objects/b/other", x, t, 100));
        assert!(!s.verify_redirect("PUT", "/v1/objects/b/o", "99999999", t, 100));
        let g = s.grant(5);
        assert!(s.verify_grant(&g, 5 + GRANT_TTL_S) && !s.verify_grant(&g, 6 + GRANT_TTL_S));
        let other = ClusterSecret::new("fedcba9876543210").unwrap();
        assert!(!other.verify_grant(&g, 5));
        let forged = format!("{}.{}", 6 + GRANT_TTL_S, g.split_once('.').unwrap().1);
        assert!(!s.verify_grant(&forged, 5) && s.verify_grant(&g, 5));
        let n = s.sign_node("POST", "/internal/v1/join?x=1", 9);
        assert!(s.verify_node("POST", "/internal/v1/join?x=1", &n, 9).is_ok());
        assert!(s.verify_node("POST", "/internal/v1/join", &n, 9).is_err());
        assert!(!s.verify_grant(&n, 9), "a proof for one purpose must not serve another");
    }

    #[test]
    fn the_secret_is_not_in_debug_output() {
        let s = ClusterSecret::new("0123456789abcdef").unwrap();
        assert!(!format!("{s:?}").contains("0123"));
    }
}
