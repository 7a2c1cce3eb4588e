//! The owner of an object: rendezvous (highest random weight) hashing over targets.
//!
//! With equal weights this is, bit for bit, the function that clients of AIStore v1 compute
//! themselves for direct reads (wire reference §3.4).

use xxhash_rust::xxh64::xxh64;

use crate::bucket::BucketInfo;
use crate::error::{Error, Result};
use crate::name::{Bucket, joined};
use crate::state::{ClusterState, Node};

/// Seed of every digest that placement uses.
const SEED: u64 = 1_103_515_245;

/// Digest of a node id or of an object's uname.
pub fn digest(text: &str) -> u64 {
    xxh64(text.as_bytes(), SEED)
}

/// Digest of `bucket uname + object name` without joining them.
pub fn object_digest(bucket_uname: &str, object: &str) -> u64 {
    // Short names, which are most names, are hashed in one call: half the time of hashing in
    // pieces.
    joined([bucket_uname, object], |name| xxh64(name, SEED))
}

/// [`object_digest`] of an object of a bucket.
pub fn digest_in(bucket: &Bucket, object: &str) -> u64 {
    bucket.with_uname(|uname| object_digest(uname, object))
}

/// The published mixing function of the rendezvous: two rounds of a 64-bit finaliser.
pub fn mix(x: u64) -> u64 {
    let round = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let z = round(x.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    round(z).wrapping_mul(5).rotate_left(7).wrapping_mul(9)
}

/// A node and its mixed hash with one object.
#[derive(Clone, Copy, Debug)]
struct Scored<'a> {
    node: &'a Node,
    weight: u32,
    score: u64,
}

impl<'a> Scored<'a> {
    fn new(node: &'a Node, object: u64) -> Self {
        Self { node, weight: node.weight, score: mix(node.id.digest() ^ object) }
    }

    /// The comparison key of nodes with unequal weights.
    fn weighted(self) -> f64 {
        let unit = (self.score as f64 + 0.5) / (u64::MAX as f64 + 1.0);
        -f64::from(self.weight) / unit.ln()
    }
}

/// The node with the highest score for `object`, among those given.
///
/// Equal weights compare the mixed hash itself; otherwise −w / ln(h / 2^64), which gives each node
/// a share in proportion to its weight.
pub fn highest<'a>(nodes: impl Iterator<Item = &'a Node> + Clone, object: u64) -> Option<&'a Node> {
    best(nodes.map(|node| Scored::new(node, object)))
}

fn best<'a>(nodes: impl Iterator<Item = Scored<'a>> + Clone) -> Option<&'a Node> {
    let first = nodes.clone().next()?.weight;
    let mut equal = true;
    // One pass if all weights are equal, which is the usual case.
    let plain = nodes.clone().inspect(|n| equal &= n.weight == first).max_by_key(|n| n.score);
    if equal {
        return plain.map(|n| n.node);
    }
    let weighted = nodes.map(|n| (n.node, n.weighted()));
    weighted.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(node, _)| node)
}

/// The targets that have a part of an object of a native bucket, dead or alive, by rank: as many as
/// the bucket has copies, or with its slices; in different zones if there are enough zones.
pub fn holders<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    object_digest: u64,
) -> Vec<&'a Node> {
    let copies = info.places();
    let mut left = Vec::with_capacity(state.nodes.len());
    left.extend(state.owning_targets().map(|node| Scored::new(node, object_digest)));
    let mut chosen: Vec<&Node> = Vec::with_capacity(copies);
    let mut zones: Vec<&str> = Vec::new();
    while chosen.len() < copies {
        let elsewhere = |n: &Scored<'a>| !zones.contains(&n.node.zone.as_str());
        let next = match zones.is_empty() {
            true => None,
            false => best(left.iter().copied().filter(elsewhere)),
        };
        let Some(next) = next.or_else(|| best(left.iter().copied())) else { break };
        left.retain(|n| !std::ptr::eq(n.node, next));
        // Targets without a zone do not share one.
        zones.extend(Some(next.zone.as_str()).filter(|zone| !zone.is_empty()));
        chosen.push(next);
    }
    chosen
}

/// The holders, by rank, that have a part of every object of the bucket, whatever its size.
pub fn metadata_holders<'n, 'a>(info: &BucketInfo, holders: &'n [&'a Node]) -> &'n [&'a Node] {
    &holders[..holders.len().min(info.metadata_holders())]
}

/// The holder that owns an object: the first one that is alive and not lagging. If all are alive
/// they know everything together, whatever each of them missed.
fn answering<'a>(holders: &[&'a Node]) -> Option<&'a Node> {
    let whole = holders.iter().find(|n| n.alive && !n.lagging);
    let first = holders.first().filter(|_| holders.iter().all(|n| n.alive));
    whole.or(first).copied()
}

/// The target that may serve an object with two copies while its owner is silent: the other holder,
/// if all targets that hold anything are alive and not lagging. Every acknowledged write has
/// reached it, as long as it has a lease; and a write in progress that it serves survives the death
/// of either target. With a third holder, which may not have that write yet, the death of both
/// could undo a write that was read.
pub fn hedge_target<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    object: &str,
) -> Option<&'a Node> {
    if info.copies != 2 || info.has_backend() || !state.is_quiescent() {
        return None;
    }
    holders(state, info, digest_in(&info.bucket, object)).get(1).copied()
}

/// The target that must answer for an object now.
///
/// For buckets with a backend, dead targets are skipped (another target can fetch the object
/// again). A native object belongs to its holders even while they are dead, which is a transient
/// error.
pub fn owner<'a>(state: &'a ClusterState, info: &BucketInfo, object: &str) -> Result<&'a Node> {
    owner_by_digest(state, info, digest_in(&info.bucket, object), object)
}

/// As [`owner`], for callers that hash many names of one bucket.
pub fn owner_by_digest<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    object_digest: u64,
    object: &str,
) -> Result<&'a Node> {
    if info.has_copies() {
        let holders = holders(state, info, object_digest);
        return match answering(metadata_holders(info, &holders)) {
            Some(node) => Ok(node),
            None if holders.is_empty() => Err(none_at_all(state)),
            None => Err(Error::unavailable(format!(
                "the targets that have {} are down, or missed what those had that are",
                info.bucket.object_uri(object)
            ))
            .hint("the object is not lost; it is served again when they are back")),
        };
    }
    let node = if info.has_backend() {
        highest(state.owning_targets().filter(|n| n.alive), object_digest)
    } else {
        highest(state.owning_targets(), object_digest)
    };
    match node {
        Some(node) if node.alive => Ok(node),
        Some(node) => Err(Error::unavailable(format!(
            "target {} that owns {} is down",
            node.id,
            info.bucket.object_uri(object)
        ))
        .hint("the object is not lost; it is served again when the target is back")),
        None => Err(none_at_all(state)),
    }
}

/// Whether a target other than those that are alive or dead in `after` may have owned objects between two
/// states that a node had one after the other: a target was removed, or went into or out of maintenance.
/// If the node did not get all states between them, any change of placement counts.
pub fn owners_may_have_left(before: &ClusterState, after: &ClusterState) -> bool {
    // Before its first state a node served nothing.
    if before.version == 0 || after.targets_changed <= before.version {
        return false;
    }
    let has_changed =
        |node: &Node| after.node(&node.id).is_none_or(|now| now.maintenance != node.maintenance);
    after.version > before.version + 1 || before.targets().any(has_changed)
}

/// Whether another target may have owned an object of a bucket with a backend after the version
/// `validated` of the state, although `me` owns it now. That target may have written the object, so a
/// copy that `me` compared with the backend at that version may be stale. `owners_left` is the version
/// for which [`owners_may_have_left`] was last true on this node.
pub fn may_be_superseded(
    state: &ClusterState,
    me: &Node,
    owners_left: u64,
    validated: u64,
    object_digest: impl FnOnce() -> u64,
) -> bool {
    if validated < me.alive_since.max(owners_left) {
        return true;
    }
    // A target that is down now has owned its objects from its return until its end.
    let were_alive = |n: &&Node| !n.alive && n.alive_since > validated;
    let mut others = state.owning_targets().filter(were_alive).peekable();
    if others.peek().is_none() {
        return false;
    }
    let object_digest = object_digest();
    others.any(|other| {
        let first = highest([me, other].into_iter(), object_digest);
        first.is_some_and(|node| node.id == other.id)
    })
}

fn none_at_all(state: &ClusterState) -> Error {
    match state.targets().next() {
        Some(_) => Error::unavailable("no storage target of the cluster is alive"),
        None => Error::invalid("no storage targets in the cluster")
            .hint("start a target that joins this cluster"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout)]
mod ring_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod superseded_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
