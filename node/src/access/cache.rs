//! Tokens that were checked, by the SHA-256 of their text.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use forebay_core::access::TokenIdentity;
use forebay_core::locks::RwLockExt;

/// Tokens that are kept; if there are more, all are dropped and checked again.
const MAX_TOKENS: usize = 20_000;

/// A checked token.
#[derive(Clone, Debug)]
pub(super) struct CachedToken {
    /// Epoch of the section of users that it was checked with.
    pub(super) epoch: u64,
    pub(super) identity: Arc<TokenIdentity>,
}

#[derive(Debug, Default)]
pub(super) struct TokenCache(RwLock<HashMap<[u8; 32], CachedToken>>);

pub(super) fn hash(token: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

impl TokenCache {
    /// A token that was checked in this epoch and has not expired.
    pub(super) fn get(
        &self,
        hash: &[u8; 32],
        epoch: u64,
        now_s: u64,
    ) -> Option<Arc<TokenIdentity>> {
        let tokens = self.0.read_locked();
        let known = tokens.get(hash)?;
        let is_current = known.epoch == epoch && now_s <= known.identity.expires_s;
        is_current.then(|| known.identity.clone())
    }

    pub(super) fn put(&self, hash: [u8; 32], token: CachedToken) {
        let mut tokens = self.0.write_locked();
        if tokens.len() >= MAX_TOKENS {
            tokens.clear();
        }
        tokens.insert(hash, token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checked_token_counts_in_its_epoch_until_it_expires() {
        let cache = TokenCache::default();
        let identity =
            TokenIdentity { access: Default::default(), token: "t".into(), expires_s: 100 };
        let key = hash(b"token");
        cache.put(key, CachedToken { epoch: 7, identity: Arc::new(identity) });
        assert!(cache.get(&key, 7, 100).is_some());
        assert!(cache.get(&key, 7, 101).is_none(), "expired");
        assert!(cache.get(&key, 8, 100).is_none(), "users changed since");
        assert!(cache.get(&hash(b"other"), 7, 100).is_none());
    }
}
