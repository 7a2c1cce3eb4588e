//! `PUT /v1/cluster`: changes of the configuration and of the cluster's members.

use axum::http::HeaderMap;
use axum::response::Response;
use forebay_core::settings::{self, Change};
use forebay_core::state::{Command, Node, Role};
use forebay_core::v1::action::lower_keys;
use forebay_core::v1::headers as v1;
use forebay_core::v1::query::Query;
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::maps::Maps;
use serde_json::Value;

use super::done;
use crate::changes::Changes;

/// Parameters of a request to set the configuration that are not settings themselves.
const NOT_SETTINGS: [&str; 2] = ["transient", "provider"];

/// Actions of v1 that have nothing to do here: what they are for does not exist.
const NOTHING_TO_DO: [&str; 4] = ["rotate-logs", "reset-stats", "clear-lcache", "reload-creds"];

/// What changes the cluster as a whole; cheap to clone.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) maps: Maps,
    pub(crate) changes: Changes,
}

impl Admin {
    /// An action of `PUT /v1/cluster` other than start and stop of jobs.
    pub(crate) async fn act(&self, action: &str, value: &Value, query: &Query) -> Result<Response> {
        match action {
            "set-config" => {
                kept(query)?;
                self.configure(settings::parse(value)?, false).await
            }
            "reset-config" => self.configure(Change::new(), true).await,
            "start-maintenance" => self.maintain(value, true).await,
            "stop-maintenance" => self.maintain(value, false).await,
            "decommission-node" => self.remove(value).await,
            action if NOTHING_TO_DO.contains(&action) => Ok(done()),
            "shutdown" | "decommission" | "shutdown-node" => {
                Err(Error::unsupported(format!("action \"{action}\" is not served"))
                    .hint("stop the processes where they were started"))
            }
            _ => Err(Error::invalid(format!("unknown action \"{action}\""))),
        }
    }

    /// `PUT /v1/cluster/ITEM…`: the forms that have their arguments in the URL.
    pub(crate) async fn act_by_path(
        &self,
        items: &str,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Response> {
        match items.split('/').next().unwrap_or("") {
            "set-config" => {
                kept(query)?;
                let pairs = query.pairs().filter(|(k, _)| !NOT_SETTINGS.contains(k));
                self.configure(settings::parse_pairs(pairs)?, false).await
            }
            item @ ("attach" | "detach") => {
                // AIStore's clients say it in headers, people and ours in the query.
                let said = |key: &str, header: &str| {
                    let header = headers.get(header).and_then(|v| v.to_str().ok());
                    query.get(key).or(header).unwrap_or_default().to_owned()
                };
                let alias = said("alias", v1::REMOTE_ALIAS);
                self.changes
                    .commit(match item {
                        "attach" => {
                            Command::AttachCluster { alias, url: said("url", v1::REMOTE_URL) }
                        }
                        _ => Command::DetachCluster { alias },
                    })
                    .await?;
                Ok(done())
            }
            item @ ("proxy" | "enable-backend" | "disable-backend") => {
                Err(Error::unsupported(format!("PUT /v1/cluster/{item} is not served"))
                    .hint("gateways choose their leader; backends are set in each node's file"))
            }
            _ => Err(Error::invalid(format!("invalid request URI: 'PUT /v1/cluster/{items}'"))),
        }
    }

    async fn configure(&self, change: Change, reset: bool) -> Result<Response> {
        if change.is_empty() && !reset {
            return Ok(done());
        }
        self.changes.commit(Command::Configure { change, reset, now_ns: unix_ns() }).await?;
        Ok(done())
    }

    /// Takes nodes out of use, or gives them back. Buckets with a backend move to the other targets
    /// at once; objects that live only on such a node wait for it.
    async fn maintain(&self, value: &Value, on: bool) -> Result<Response> {
        let nodes = self.named(value)?;
        for node in &nodes {
            self.may_go(node, on)?;
        }
        for node in nodes.iter().filter(|n| n.maintenance != on) {
            let id = node.id.clone();
            self.changes.commit(Command::SetMaintenance { id, on }).await?;
        }
        Ok(done())
    }

    /// Forgets nodes. One that still runs would join again, so it must be in maintenance or away.
    async fn remove(&self, value: &Value) -> Result<Response> {
        let state = self.maps.load();
        let nodes = self.named(value)?;
        for node in &nodes {
            self.may_go(node, true)?;
            if node.alive {
                return Err(Error::new(
                    ErrorCode::Conflict,
                    format!(
                        "node {} is in use, cannot perform action \"decommission-node\"",
                        node.id
                    ),
                )
                .hint("stop its process first, or start its maintenance"));
            }
            let owned = state.buckets.values().find(|b| !b.has_backend());
            if let (Role::Target, Some(bucket), false) =
                (node.role, owned, lower_keys(value.clone())["rm_user_data"] == Value::Bool(true))
            {
                return Err(Error::new(
                    ErrorCode::Conflict,
                    format!(
                        "node {} may hold the only copies of objects in \"{}\"",
                        node.id, bucket.bucket
                    ),
                )
                .hint("rm_user_data gives them up"));
            }
        }
        for node in nodes {
            self.changes.commit(Command::Remove { id: node.id }).await?;
        }
        Ok(done())
    }

    fn may_go(&self, node: &Node, goes: bool) -> Result<()> {
        let leads = self.maps.primary().is_some_and(|p| p == node.id);
        if goes && (leads || node.role == Role::Gateway) {
            let what = if leads { "is the current primary" } else { "is a gateway" };
            return Err(Error::invalid(format!("node {} {what}, it cannot be taken out", node.id))
                .hint("stop its process instead: the other gateways go on without it"));
        }
        Ok(())
    }

    /// The nodes that `sid` or `sids` name.
    fn named(&self, value: &Value) -> Result<Vec<Node>> {
        let value = lower_keys(value.clone());
        let (one, many) = (value["sid"].as_str().unwrap_or(""), value["sids"].as_array());
        let many: Vec<&str> = many.into_iter().flatten().filter_map(Value::as_str).collect();
        let names = match (one, many.as_slice()) {
            ("", []) => return Err(Error::invalid("missing node IDs")),
            ("", many) => many.to_vec(),
            (one, []) => vec![one],
            _ => return Err(Error::invalid("cannot specify both sid and sids")),
        };
        let state = self.maps.load();
        let find = |name: &str| {
            let id = NodeId::new(name)?;
            let unknown = || {
                Error::new(
                    ErrorCode::NodeNotFound,
                    format!("node {id} does not exist in this cluster"),
                )
            };
            state.node(&id).cloned().ok_or_else(unknown)
        };
        names.into_iter().map(find).collect()
    }
}

/// What is set is kept: a change that a restart forgets does not exist.
fn kept(query: &Query) -> Result<()> {
    if query.flag("transient") {
        return Err(Error::unsupported("transient configuration changes are not served")
            .hint("set it without --transient, and back later"));
    }
    Ok(())
}
