//! Commands for the disks of one target, forwarded to it: Forebay's own and those of v1.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use forebay_core::intra::{DiskAction, DiskCommand, DiskUsage, NodeDiskCommand};
use forebay_core::state::{Role, Summary};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::maps::Maps;
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::native;
use forebay_v1::action::ActionMsg;
use forebay_v1::query::Query;

use super::answered;
use crate::changes;
use crate::targets::Targets;

#[derive(Clone)]
pub(crate) struct DisksFront {
    pub(crate) maps: Maps,
    pub(crate) targets: Targets,
}

pub(crate) fn router(state: DisksFront) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<DisksFront> {
    RouteSet::new().on(&native::DISKS, disks)
}

async fn disks(State(front): State<DisksFront>, Json(request): Json<NodeDiskCommand>) -> Response {
    let result = front.pass_on(&request.node, &request.command).await;
    answered("disks", result.map(|disks| json(&disks)))
}

impl DisksFront {
    /// Handles an action of v1 on `mountpaths`: attach, detach, enable, disable, rescan.
    pub(crate) async fn act(&self, node: &NodeId, body: &[u8], query: &Query) -> Result<()> {
        let command = command(&ActionMsg::parse(body)?, query)?;
        self.pass_on(node, &command).await.map(drop)
    }

    async fn pass_on(&self, id: &NodeId, command: &DiskCommand) -> Result<Vec<DiskUsage>> {
        let state = self.maps.load();
        let node = state.node(id).ok_or_else(|| {
            let text = format!("node {id} does not exist in this cluster");
            Error::new(ErrorCode::NodeNotFound, text)
        })?;
        if node.role != Role::Target {
            return Err(Error::invalid(format!("node {id} is a gateway: it has no disks")));
        }
        if !node.alive {
            return Err(Error::unavailable(format!("target {id} is down")));
        }
        let done = self.targets.post(node, "/internal/v1/disks", command).await;
        let change = match command.action {
            DiskAction::Show | DiskAction::Check => return done,
            DiskAction::Attach => "disk attached",
            DiskAction::Detach => "disk detached",
            DiskAction::Disable => "disk disabled",
            DiskAction::Enable => "disk enabled",
        };
        let detail = format!("node={id}, force={}", command.force);
        let summary = Summary::new(change, &command.path).with(detail);
        changes::log(&summary, done.as_ref().map(|_| None));
        done
    }
}

fn command(message: &ActionMsg, query: &Query) -> Result<DiskCommand> {
    let action = match message.action.as_str() {
        "attach-mp" => DiskAction::Attach,
        "detach-mp" => DiskAction::Detach,
        "enable-mp" => DiskAction::Enable,
        "disable-mp" => DiskAction::Disable,
        "rescan-mp" | "fshc-mp" => DiskAction::Check,
        other => return Err(Error::invalid(format!("unknown action \"{other}\" on mountpaths"))),
    };
    let path = message.value.as_str().filter(|path| Path::new(path).is_absolute());
    let path = path.ok_or_else(|| {
        let text = format!("invalid mountpath {}: an absolute path is needed", message.value);
        Error::invalid(text)
    })?;
    // Without a move first, the data on the disk is given up.
    let gives_up = matches!(action, DiskAction::Detach | DiskAction::Disable);
    let force = gives_up && query.flag("dont_resilver");
    Ok(DiskCommand { force, ..DiskCommand::new(action, path) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(action: &str, value: serde_json::Value, query: &str) -> Result<DiskCommand> {
        let body = json!({"action": action, "value": value}).to_string();
        command(&ActionMsg::parse(body.as_bytes()).unwrap(), &Query::parse(Some(query)))
    }

    #[test]
    fn actions_of_v1_become_commands() {
        let detach = parsed("detach-mp", json!("/mnt/a"), "").unwrap();
        assert_eq!((detach.action, detach.path.as_str()), (DiskAction::Detach, "/mnt/a"));
        assert!(!detach.force);
        assert!(parsed("disable-mp", json!("/a"), "dont_resilver=true").unwrap().force);
        // A flag for another purpose must not make the content of a new disk trusted.
        assert!(!parsed("attach-mp", json!("/a"), "dont_resilver=true").unwrap().force);
        for (action, value) in
            [("attach-mp", json!("mnt/a")), ("attach-mp", json!(7)), ("x", json!("/a"))]
        {
            assert_eq!(parsed(action, value, "").unwrap_err().code, ErrorCode::InvalidArgument);
        }
    }
}
