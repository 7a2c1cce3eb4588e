//! Whether a node may be stopped for a while: reasons why data would be unavailable meanwhile, or why an
//! acknowledged write could be lost.

use crate::bucket::BucketInfo;
use crate::state::{ClusterState, Node, Role};

/// Names of buckets in one reason.
const MAX_NAMED_BUCKETS: usize = 3;

/// Facts beside the cluster's state, as a gateway has them.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Whether a gateway leads with a majority.
    pub led: bool,
    /// Voting gateways, and those of them that are alive without the node that stops.
    pub voters: usize,
    pub remaining_votes: usize,
    /// Objects on the target that stops, cached ones too; `None` if it has not reported.
    pub objects: Option<u64>,
}

/// The reasons not to stop this node now; empty if it may be stopped.
pub fn reasons(state: &ClusterState, node: &Node, situation: &Situation) -> Vec<String> {
    let mut reasons = Vec::new();
    if !situation.led {
        reasons
            .push("no gateway leads with a majority, so the state may be out of date".to_owned());
    }
    match node.role {
        Role::Gateway => reasons.extend(of_gateway(state, node, situation)),
        Role::Target => of_target(state, node, situation, &mut reasons),
    }
    reasons
}

fn of_gateway(state: &ClusterState, node: &Node, situation: &Situation) -> Option<String> {
    if !state.gateways().any(|other| other.alive && other.id != node.id) {
        return Some("it is the only gateway that is alive: no request would be served".to_owned());
    }
    let Situation { voters, remaining_votes, .. } = *situation;
    (remaining_votes * 2 <= voters).then(|| {
        format!("only {remaining_votes} of {voters} voting gateways would be alive: no majority")
    })
}

fn of_target(state: &ClusterState, node: &Node, situation: &Situation, reasons: &mut Vec<String>) {
    let is_other = |other: &&Node| other.id != node.id && !other.emptied;
    if node.emptied {
        return;
    }
    if !state.targets().filter(is_other).any(|other| other.alive && !other.maintenance) {
        reasons.push("it is the only target in use that is alive".to_owned());
    }
    let native = || state.buckets.values().filter(|info| !info.has_backend());
    if situation.objects != Some(0) {
        let single = native().filter(|info| !info.has_copies());
        reasons.extend(named(single, |buckets| {
            format!(
                "{buckets} one copy of each object, and those on this target would be unavailable: \
                 drain it, or set copies of the bucket"
            )
        }));
    }
    let missing: Vec<_> = state
        .targets()
        .filter(is_other)
        .filter(|other| !other.alive || other.lagging)
        .map(|other| other.id.as_str())
        .collect();
    if missing.is_empty() && state.is_rebalance_complete() {
        return;
    }
    let copied = native().filter(|info| info.has_copies());
    if !state.is_rebalance_complete() {
        reasons.extend(named(copied.clone(), |buckets| {
            format!(
                "objects move between targets, and {buckets} copies that may not be in place yet"
            )
        }));
    }
    let short = copied.filter(|info| tolerated(info) <= missing.len());
    let missing = missing.join(", ");
    reasons.extend(named(short, |buckets| {
        format!("{missing} is down or missed writes, and {buckets} no further copies to spare")
    }));
}

/// Number of targets without which each object of the bucket is readable.
fn tolerated(info: &BucketInfo) -> usize {
    let of_copies = info.copies.saturating_sub(1) as usize;
    info.erasure.map_or(of_copies, |erasure| usize::from(erasure.parity))
}

/// A reason about these buckets, if there are any: "ais://a and 2 other buckets have".
fn named<'a>(
    buckets: impl Iterator<Item = &'a std::sync::Arc<BucketInfo>>,
    reason: impl Fn(&str) -> String,
) -> Option<String> {
    let names: Vec<_> = buckets.map(|info| info.bucket.to_string()).collect();
    let shown = names.get(..MAX_NAMED_BUCKETS).unwrap_or(&names).join(", ");
    match names.len() {
        0 => None,
        1 => Some(reason(&format!("bucket {shown} has"))),
        count if count <= MAX_NAMED_BUCKETS => Some(reason(&format!("buckets {shown} have"))),
        count => Some(reason(&format!("{count} buckets ({shown}, ...) have"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::NodeId;
    use crate::bucket::BucketInfo;
    use crate::name::{Bucket, Provider};

    fn node(id: &str, role: &str) -> Node {
        let json = serde_json::json!({
            "id": id, "role": role, "url": format!("http://{id}"), "alive": true, "alive_since": 1,
        });
        serde_json::from_value(json).unwrap()
    }

    /// Three gateways and three targets.
    fn cluster() -> ClusterState {
        let mut state = ClusterState::default();
        for number in 1..=3 {
            for role in ["gateway", "target"] {
                let id = format!("{role}-{number}");
                state.nodes.insert(NodeId::new(&id).unwrap(), node(&id, role));
            }
        }
        state
    }

    fn with_bucket(mut state: ClusterState, copies: u32) -> ClusterState {
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let info = BucketInfo { copies, ..BucketInfo::requested(bucket, None) };
        state.buckets.insert("ais/@#/b/".into(), info.into());
        state
    }

    fn reasons_of(state: &ClusterState, id: &str, alive_voters: usize) -> String {
        let situation =
            Situation { led: true, voters: 3, remaining_votes: alive_voters, objects: Some(7) };
        reasons(state, state.node(&NodeId::new(id).unwrap()).unwrap(), &situation).join("; ")
    }

    fn change(state: &mut ClusterState, id: &str, change: impl Fn(&mut Node)) {
        change(state.nodes.get_mut(&NodeId::new(id).unwrap()).unwrap());
    }

    #[test]
    fn a_gateway_may_stop_while_a_majority_remains() {
        let mut state = cluster();
        assert_eq!(reasons_of(&state, "gateway-1", 2), "");
        assert!(reasons_of(&state, "gateway-1", 1).contains("only 1 of 3 voting gateways"));
        change(&mut state, "gateway-2", |node| node.alive = false);
        change(&mut state, "gateway-3", |node| node.alive = false);
        assert!(reasons_of(&state, "gateway-1", 0).contains("the only gateway that is alive"));
    }

    #[test]
    fn a_target_with_the_only_copies_must_be_drained_first() {
        let mut state = with_bucket(cluster(), 1);
        assert!(reasons_of(&state, "target-1", 3).contains("bucket ais://b has one copy"));
        let none = Situation { led: true, voters: 3, remaining_votes: 3, objects: Some(0) };
        assert!(reasons(&state, &node("target-1", "target"), &none).is_empty());
        change(&mut state, "target-1", |node| (node.maintenance, node.emptied) = (true, true));
        assert_eq!(reasons_of(&state, "target-1", 3), "");
    }

    #[test]
    fn copies_are_enough_while_the_other_targets_are_alive_and_complete() {
        let mut state = with_bucket(cluster(), 2);
        assert_eq!(reasons_of(&state, "target-1", 3), "");
        change(&mut state, "target-2", |node| node.alive = false);
        assert!(reasons_of(&state, "target-1", 3).contains("target-2 is down or missed writes"));
        change(&mut state, "target-2", |node| (node.alive, node.lagging) = (true, true));
        assert!(reasons_of(&state, "target-1", 3).contains("target-2 is down or missed writes"));
        let three = with_bucket(state, 3);
        assert_eq!(reasons_of(&three, "target-1", 3), "");
    }

    #[test]
    fn a_cache_of_a_cloud_may_lose_every_target_but_the_last() {
        let mut state = cluster();
        change(&mut state, "target-2", |node| node.alive = false);
        assert_eq!(reasons_of(&state, "target-1", 3), "");
        change(&mut state, "target-3", |node| node.alive = false);
        assert!(reasons_of(&state, "target-1", 3).contains("the only target in use"));
    }

    #[test]
    fn without_a_leader_nothing_is_safe() {
        let state = cluster();
        let situation = Situation { led: false, voters: 3, remaining_votes: 2, objects: Some(0) };
        let found = reasons(&state, &node("target-1", "target"), &situation);
        assert!(found[0].contains("no gateway leads"), "{found:?}");
    }
}
