//! Grants that were valid, apart from their expiry: a client sends the same one for an hour, with every
//! request.

use std::cell::RefCell;
use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// Grants that are kept for each thread; if there are more, all are checked again.
const MAX_KEPT: usize = 4096;

thread_local! {
    static PROVEN: RefCell<HashSet<[u8; 32]>> = RefCell::default();
}

/// Whether the grant is valid under this key by `check`, which is asked once for each grant.
pub(super) fn is_proven(key: &[u8], grant: &str, check: impl FnOnce() -> bool) -> bool {
    let mut sha = Sha256::new();
    sha.update((key.len() as u64).to_le_bytes());
    sha.update(key);
    sha.update(grant.as_bytes());
    let hash: [u8; 32] = sha.finalize().into();
    if PROVEN.with_borrow(|proven| proven.contains(&hash)) {
        return true;
    }
    let holds = check();
    if holds {
        PROVEN.with_borrow_mut(|proven| {
            if proven.len() >= MAX_KEPT {
                proven.clear();
            }
            proven.insert(hash);
        });
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_grant_is_checked_once_under_its_key_and_an_invalid_one_each_time() {
        assert!(!is_proven(b"key", "grant of this test", || false));
        assert!(is_proven(b"key", "grant of this test", || true));
        assert!(is_proven(b"key", "grant of this test", || panic!("it is known")));
        assert!(!is_proven(b"kez", "grant of this test", || false));
        assert!(!is_proven(b"keygrant", " of this test", || false));
    }
}
