//! Reachability: of each node from this machine, and of each backend from the targets.

use std::time::Instant;

use forebay_client::Client;
use forebay_client::tls::TlsClient;
use forebay_core::bucket::BucketInfo;
use forebay_core::clock_offset::CLOCK_TOLERANCE_S;
use forebay_core::date::format_utc;
use forebay_core::state::Node;
use forebay_v1::list::ListMsg;

use super::finding::{Finding, Verdict};
use crate::bucket::show_backend;
use crate::probe::{self, Answer};

/// Checks a node. `gateway_s`: the gateway's clock a moment ago, unix seconds.
pub(super) async fn health(node: &Node, gateway_s: u64) -> Finding {
    let check = format!("{} {}", node.role.name(), node.id);
    let started = Instant::now();
    match probe::get(&TlsClient::default(), &node.url, "/healthz").await {
        Ok(Answer { status: 200, .. }) if node.alive => {
            let took = started.elapsed().as_millis();
            Finding::ok(check, format!("{} is healthy, in {took} ms", node.url))
        }
        // Other nodes reject a node's signatures while their clocks differ by this much.
        Ok(Answer { status: 200, date_s: Some(date_s), .. })
            if date_s.abs_diff(gateway_s) > CLOCK_TOLERANCE_S =>
        {
            let [own, theirs] = [date_s, gateway_s].map(|s| format_utc(s * 1_000_000_000));
            let detail = format!(
                "{} answers but the cluster counts it as down: its clock says {own}, the gateway's {theirs}",
                node.url
            );
            Finding::bad(Verdict::Fail, check, detail, "set the clocks (NTP)")
        }
        Ok(Answer { status: 200, .. }) => Finding::bad(
            Verdict::Warn,
            check,
            format!("{} answers but the cluster counts it as down", node.url),
            "if this stays, look into its log: it does not reach the primary gateway",
        ),
        Ok(Answer { status, .. }) => {
            let detail = format!("{} answers /healthz with status {status}", node.url);
            Finding::bad(Verdict::Fail, check, detail, "look into its log")
        }
        Err(e) if node.alive && e.kind() == std::io::ErrorKind::ConnectionRefused => Finding::bad(
            Verdict::Fail,
            check,
            format!("no process listens at {}", node.url),
            "start it again with its own command line; the map still has it alive",
        ),
        Err(e) if node.alive => Finding::bad(
            Verdict::Fail,
            check,
            format!("{} is not reachable from here: {e}", node.url),
            "open the way to it (clients go to targets directly), or set its listen.advertise",
        ),
        Err(e) => Finding::bad(
            Verdict::Warn,
            check,
            format!("{} is down: {e}", node.url),
            "start it again with its own command line",
        ),
    }
}

/// Whether the targets can access a bucket's backend.
pub(super) async fn backend(client: &Client, info: &BucketInfo) -> Finding {
    let check = format!("bucket {}", info.bucket);
    let shown = info.backend.as_ref().map(show_backend).unwrap_or_default();
    let one = ListMsg { page_size: 1, props: "name".into(), ..ListMsg::default() };
    match client.list_page(&info.bucket, &one).await {
        Ok(_) => Finding::ok(check, format!("{shown} can be read")),
        Err(e) => {
            let hint = e.hint().unwrap_or("look into the log of the targets").to_owned();
            Finding::bad(Verdict::Fail, check, e.message(), hint)
        }
    }
}
