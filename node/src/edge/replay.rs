//! Remembers used proofs of nodes, within bounded memory.

use std::collections::HashSet;
use std::sync::Mutex;

use forebay_core::NodeId;
use forebay_core::locks::MutexExt;
use forebay_core::placement;
use forebay_core::sign::NODE_AUTH_TTL_S;

/// Proofs of one generation; there are two, of about 2 MiB each.
const GENERATION_ENTRIES: usize = 1 << 16;
/// After this time no proof of a generation is valid any more: clocks may differ by its lifetime.
const GENERATION_S: u64 = 2 * NODE_AUTH_TTL_S;

/// The last proofs of calls that change something: between 65,536 and 131,072 of them, or those of
/// the last ten minutes. If a node gets more calls than that in five minutes, it drops the oldest.
#[derive(Default)]
pub(super) struct Replays(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    current: HashSet<(u64, u64)>,
    previous: HashSet<(u64, u64)>,
    since: u64,
}

impl Replays {
    /// Records a proof; returns whether it is new.
    pub(super) fn is_first(&self, sender: &NodeId, nonce: u64, now: u64) -> bool {
        let proof = (placement::digest(sender.as_str()), nonce);
        let mut generations = self.0.locked();
        let Generations { current, previous, since } = &mut *generations;
        if current.len() >= GENERATION_ENTRIES || now.saturating_sub(*since) > GENERATION_S {
            *since = now;
            std::mem::swap(current, previous);
            current.clear();
        }
        !previous.contains(&proof) && current.insert(proof)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_counts_once_in_bounded_memory() {
        let (replays, a) = (Replays::default(), NodeId::new("target-1").unwrap());
        let b = NodeId::new("target-2").unwrap();
        assert!(replays.is_first(&a, 1, 0) && replays.is_first(&b, 1, 0));
        assert!(!replays.is_first(&a, 1, 0));
        for nonce in 10..10 + GENERATION_ENTRIES as u64 {
            assert!(replays.is_first(&b, nonce, 1));
        }
        assert!(!replays.is_first(&a, 1, 1), "it is of the generation before");
        for nonce in 0..3 * GENERATION_ENTRIES as u64 {
            replays.is_first(&a, 1_000_000 + nonce, 2);
        }
        let generations = replays.0.lock().unwrap();
        assert!(generations.current.len() <= GENERATION_ENTRIES);
        assert!(generations.previous.len() <= GENERATION_ENTRIES);
    }
}
