//! `forebay cluster safe-to-stop` and `versions`: what to know before a node is stopped or upgraded.

use std::collections::BTreeSet;

use forebay_core::NodeId;
use forebay_core::intra::NodeInfo;
use serde_json::json;

use crate::cluster::status_of;
use crate::failure::{Failure, exit};
use crate::output::{self, Column, Format, Row, Rows};
use crate::session::Session;

/// Shown for a node that does not report its version.
const UNKNOWN: &str = "unknown";

/// Prints whether a node may be stopped; an error if it should not.
pub(crate) async fn safe_to_stop(session: &Session, node: &NodeId) -> Result<(), Failure> {
    let check = session.client.stopping(node).await?;
    let json = json!({ "node": node, "safe": check.safe, "reasons": check.reasons });
    if session.format == Format::Table && !check.safe {
        session.warn(format!("{node} should not be stopped now:"));
        check.reasons.iter().for_each(|reason| session.warn(format!("  {reason}")));
    } else {
        let state = if check.safe { "may be stopped" } else { "should not be stopped" };
        output::one(
            session.format,
            node.as_str(),
            &[("node", node.to_string()), ("state", state.to_owned())],
            &json,
        )?;
    }
    match check.safe {
        true => Ok(()),
        false => Err(Failure::silent(exit::CONFLICT)),
    }
}

/// Prints the version of each node.
pub(crate) async fn versions(session: &Session) -> Result<(), Failure> {
    let cluster = session.client.cluster_info().await?;
    let columns = [
        Column("NODE", false),
        Column("ROLE", false),
        Column("STATE", false),
        Column("VERSION", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for node in &cluster.nodes {
        let (name, version) = (node.id.to_string(), version_of(node));
        let status = status_of(node).as_str();
        let cells = vec![name.clone(), node.role.name().into(), status.into(), version.to_owned()];
        let json = json!({
            "node": node.id, "role": node.role, "state": status,
            "version": Some(version).filter(|version| *version != UNKNOWN),
        });
        rows.push(Row { name, cells, json })?;
    }
    rows.finish()?;
    let known: BTreeSet<_> = cluster.nodes.iter().map(version_of).collect();
    if known.len() > 1 {
        let listed = known.into_iter().collect::<Vec<_>>().join(", ");
        session.note(format!("\nthe nodes have several versions: {listed}"));
    }
    Ok(())
}

fn version_of(node: &NodeInfo) -> &str {
    match node.usage.version.as_str() {
        "" => UNKNOWN,
        version => version,
    }
}
