//! Clocks: of this machine, and of the nodes against each other.

use forebay_core::clock_offset::{CLOCK_TOLERANCE_S, CLOCK_WARN_S, ClockOffset, ClockVerdict};
use forebay_core::date::format_utc;
use forebay_core::intra::{ClusterInfo, MapReply, NodeInfo};
use forebay_core::sign::GRANT_TTL_S;
use forebay_core::state::Role;
use forebay_s3::auth::MAX_SKEW_S;

use super::finding::{Finding, Verdict};

/// Checks this machine's clock against the gateway's, which is derived from the end of its new
/// grant.
pub(super) fn here(map: &MapReply, now_s: u64) -> Finding {
    let theirs = map.grant_expires_s.saturating_sub(GRANT_TTL_S);
    let apart = theirs.abs_diff(now_s);
    let [here, there] = [now_s, theirs].map(|s| format_utc(s.saturating_mul(1_000_000_000)));
    let detail = format!("this clock says {here}, the gateway's {there}: {apart} s apart");
    let hint =
        format!("set the clocks (NTP); S3 requests may be signed {MAX_SKEW_S} s off at most");
    if apart <= CLOCK_WARN_S {
        return Finding::ok("clock", format!("this clock and the gateway's are {apart} s apart"));
    }
    let verdict = if apart <= MAX_SKEW_S { Verdict::Warn } else { Verdict::Fail };
    Finding::bad(verdict, "clock", detail, hint)
}

/// Checks the nodes' clocks by their measurements against the leading gateway's. Any gateway may
/// sign requests that a target accepts, so a target's clock is compared with all gateways' clocks.
pub(super) fn of_nodes(info: &ClusterInfo) -> Vec<Finding> {
    let zero = ClockOffset { offset_ms: 0, error_ms: 0 };
    let measured = |node: &NodeInfo| node.usage.clock.filter(|_| node.alive);
    let leader = (info.primary.as_str(), zero);
    let gateways = info.nodes.iter().filter(|node| node.role == Role::Gateway);
    let gateways = gateways.filter_map(|node| Some((node.id.as_str(), measured(node)?)));
    let references: Vec<_> = std::iter::once(leader).chain(gateways).collect();
    let mut bad = Vec::new();
    let mut compared = 0;
    for node in info.nodes.iter().filter(|node| node.id != info.primary) {
        let Some(clock) = measured(node) else { continue };
        compared += 1;
        let against = match node.role {
            Role::Target => &references[..],
            Role::Gateway => &references[..1],
        };
        let worst = against
            .iter()
            .max_by_key(|(_, other)| clock.from_other(*other).offset_ms.unsigned_abs());
        let Some((name, other)) = worst else { continue };
        let apart = clock.from_other(*other);
        let verdict = match apart.verdict() {
            ClockVerdict::Ok => continue,
            ClockVerdict::Warn => Verdict::Warn,
            ClockVerdict::Fail => Verdict::Fail,
        };
        let [own, theirs] = [clock, *other].map(|clock| format_utc(clock.at(info.clock_ns)));
        let detail = format!("its clock says {own}, that of {name} {theirs}: {apart}");
        let hint = format!(
            "set the clocks (NTP); more than {CLOCK_TOLERANCE_S} s break redirects of clients, five \
             minutes all that nodes send to each other"
        );
        bad.push(Finding::bad(verdict, format!("clock {}", node.id), detail, hint));
    }
    if bad.is_empty() && compared > 0 {
        let whose = if compared == 1 { "that of 1 node is" } else { "those of all nodes are" };
        let detail = format!("{whose} within {CLOCK_WARN_S} s of the gateways'");
        bad.push(Finding::ok("clocks", detail));
    }
    bad
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::NodeId;
    use forebay_core::intra::NodeUsage;

    use super::*;

    fn node(id: &str, role: Role, offset_ms: i64) -> NodeInfo {
        let clock = Some(ClockOffset { offset_ms, error_ms: 10 });
        NodeInfo {
            id: NodeId::new(id).unwrap(),
            role,
            url: String::new(),
            alive: true,
            maintenance: false,
            emptied: false,
            usage: NodeUsage { clock, ..NodeUsage::default() },
        }
    }

    fn info(nodes: Vec<NodeInfo>) -> ClusterInfo {
        ClusterInfo {
            cluster_id: "c".into(),
            version: 1,
            primary: NodeId::new("gateway-1").unwrap(),
            nodes,
            buckets: 0,
            led: Some(true),
            clock_ns: 100_000 * 1_000_000_000,
        }
    }

    #[test]
    fn a_wrong_clock_is_found_with_both_times() {
        let found = of_nodes(&info(vec![
            node("gateway-1", Role::Gateway, 3),
            node("target-01", Role::Target, -4_000),
            node("target-02", Role::Target, 60_000),
            node("target-03", Role::Target, -10_000),
        ]));
        let verdicts: Vec<_> = found.iter().map(|f| (f.check.as_str(), f.verdict)).collect();
        let expected = [("clock target-02", Verdict::Fail), ("clock target-03", Verdict::Warn)];
        assert_eq!(verdicts, expected);
        for part in ["1970-01-02T03:47:40Z", "gateway-1 1970-01-02T03:46:40Z", "60 s ahead"] {
            assert!(found[0].detail.contains(part), "{part}: {}", found[0].detail);
        }
    }

    #[test]
    fn a_target_is_compared_with_every_gateway_that_may_redirect_to_it() {
        let found = of_nodes(&info(vec![
            node("gateway-1", Role::Gateway, 0),
            node("gateway-2", Role::Gateway, -20_000),
            node("target-01", Role::Target, 20_000),
        ]));
        let verdicts: Vec<_> = found.iter().map(|f| f.verdict).collect();
        assert_eq!(verdicts, [Verdict::Warn, Verdict::Fail], "{found:?}");
        assert!(found[1].detail.contains("that of gateway-2"), "{}", found[1].detail);
    }

    #[test]
    fn clocks_that_agree_are_one_line_and_unknown_ones_none() {
        let right = of_nodes(&info(vec![node("target-01", Role::Target, 20)]));
        assert_eq!((right.len(), right[0].verdict), (1, Verdict::Ok));
        let mut silent = node("target-01", Role::Target, 0);
        silent.usage.clock = None;
        assert!(of_nodes(&info(vec![silent])).is_empty());
    }
}
