//! `PUT /v1/cluster`: changes of the configuration and of the cluster's members.

use axum::http::HeaderMap;
use axum::response::Response;
use forebay_core::egress::EndpointTrust;
use forebay_core::settings::{self, Change};
use forebay_core::state::{Command, Leaving, Node, Role};
use forebay_core::{Bucket, Error, ErrorCode, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::maps::Maps;
use forebay_node::reply::text;
use forebay_v1::action::lower_keys;
use forebay_v1::headers as v1;
use forebay_v1::query::Query;
use serde_json::Value;

use super::removal::GatewayRemoval;
use super::{done, naming_no_effect};
use crate::changes::{self, Changes};
use crate::cluster::rebalance::job_id;
use crate::route::Route;

/// Parameters of a request to set the configuration that are not settings themselves.
const NOT_SETTINGS: [&str; 2] = ["transient", "provider"];

/// The intended use of a target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Full,
    None,
    /// Not used, and stops when it is empty.
    Leaving(Leaving),
}

/// Actions of v1 that are no-ops here, because Forebay does not have what they act on.
const NOTHING_TO_DO: [&str; 4] = ["rotate-logs", "reset-stats", "clear-lcache", "reload-creds"];

/// The components for changes of the whole cluster; cheap to clone.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) maps: Maps,
    pub(crate) changes: Changes,
    pub(crate) route: Route,
    pub(crate) removal: GatewayRemoval,
}

impl Admin {
    /// Handles an action of `PUT /v1/cluster`, except start and stop of jobs.
    pub(crate) async fn act(&self, action: &str, value: &Value, query: &Query) -> Result<Response> {
        match action {
            "set-config" => {
                kept(query)?;
                self.configure(settings::parse(value)?, false).await
            }
            "reset-config" => self.configure(Change::new(), true).await,
            "start-maintenance" => self.maintain(value, Use::None).await,
            "stop-maintenance" => self.maintain(value, Use::Full).await,
            "shutdown-node" => self.maintain(value, Use::Leaving(Leaving::Stop)).await,
            "decommission-node" => self.decommission(value).await,
            action if NOTHING_TO_DO.contains(&action) => Ok(done()),
            "shutdown" | "decommission" => {
                Err(Error::unsupported(format!("action \"{action}\" is not served"))
                    .hint("stop the processes where they were started"))
            }
            _ => Err(Error::invalid(format!("unknown action \"{action}\""))),
        }
    }

    /// Handles `PUT /v1/cluster/ITEM…`: the forms whose arguments are in the URL.
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
                // AIStore's clients use headers; people and Forebay's clients use the query.
                let said = |key: &str, header: &str| {
                    let header = headers.get(header).and_then(|v| v.to_str().ok());
                    query.get(key).or(header).unwrap_or_default().to_owned()
                };
                let alias = said("alias", v1::REMOTE_ALIAS);
                let command = match item {
                    "attach" => self.attach(alias, said("url", v1::REMOTE_URL)).await?,
                    _ => Command::DetachCluster { alias },
                };
                self.changes.commit(command).await?;
                Ok(done())
            }
            item @ ("proxy" | "enable-backend" | "disable-backend") => {
                Err(Error::unsupported(format!("PUT /v1/cluster/{item} is not served"))
                    .hint("gateways choose their leader; backends are set in each node's file"))
            }
            _ => Err(Error::invalid(format!("invalid request URI: 'PUT /v1/cluster/{items}'"))),
        }
    }

    /// The change that adds another cluster. Fails if the targets may not call it.
    async fn attach(&self, alias: String, url: String) -> Result<Command> {
        let attach = Command::AttachCluster {
            alias: alias.clone(),
            url: url.clone(),
            endpoint_trust: EndpointTrust::Judged,
        };
        let known = self.maps.load();
        let mut state = known.as_ref().clone();
        let (version, limits) = (state.version, attach.check_limits(&known));
        // A change that the state refuses is refused and logged when it is committed.
        if limits.and_then(|()| state.apply(version, attach.clone())).is_err() {
            return Ok(attach);
        }
        let bucket = Bucket::from_parts("any", "ais", &format!("@{alias}#"))?;
        let checked = self.route.check_endpoint(&state.requested(bucket, None)).await;
        if let (Err(e), Some(summary)) = (&checked, attach.summary(&known)) {
            changes::log(&summary, Err(e));
        }
        checked.map(|()| attach)
    }

    async fn configure(&self, change: Change, reset: bool) -> Result<Response> {
        if change.is_empty() && !reset {
            return Ok(done());
        }
        let kept = settings::without_effect(&change, &self.maps.load().settings);
        self.changes.commit(Command::Configure { change, reset, now_ns: unix_ns() }).await?;
        Ok(naming_no_effect(done(), &kept))
    }

    /// Puts targets into maintenance, or ends it. Their objects move to the other targets; the
    /// answer is the id of that rebalance, if there is one.
    async fn maintain(&self, value: &Value, to: Use) -> Result<Response> {
        let nodes = self.named(value)?;
        for node in &nodes {
            self.may_go(node, to != Use::Full)?;
        }
        for node in nodes {
            // If nothing changes, the version of the map does not change either.
            let is_so = match to {
                Use::Full => !node.maintenance && node.leaving.is_none(),
                Use::None => node.maintenance && node.leaving.is_none(),
                Use::Leaving(_) => false,
            };
            if is_so {
                continue;
            }
            let id = node.id;
            let command = match to {
                Use::Full => Command::SetMaintenance { id, on: false },
                Use::None => Command::SetMaintenance { id, on: true },
                Use::Leaving(leaving) => Command::Retire { id, leaving },
            };
            self.changes.commit(command).await?;
        }
        let state = self.maps.load();
        Ok(match state.is_rebalance_complete() {
            true => done(),
            false => text(job_id(state.targets_changed)),
        })
    }

    /// Removes targets after their objects were moved. A target that is down cannot move objects:
    /// it is removed at once, together with the objects that only it had, if the request asks for
    /// that.
    async fn decommission(&self, value: &Value) -> Result<Response> {
        let nodes = self.named(value)?;
        match nodes.as_slice() {
            [gateway] if gateway.role == Role::Gateway => {
                self.removal.remove(gateway).await?;
                return Ok(done());
            }
            nodes if nodes.iter().any(|n| n.role == Role::Gateway) => {
                return Err(Error::invalid("a gateway leaves by itself, others are named with it")
                    .hint("take out one gateway after the other"));
            }
            _ => {}
        }
        if nodes.iter().all(|n| n.alive) {
            return self.maintain(value, Use::Leaving(Leaving::Remove)).await;
        }
        let state = self.maps.load();
        for node in &nodes {
            self.may_go(node, true)?;
            if node.alive {
                return Err(Error::invalid(format!("node {} is alive, others are down", node.id))
                    .hint("decommission those that are down by themselves"));
            }
            let owned = state.buckets.values().find(|b| !b.has_backend());
            let owned = owned.filter(|_| !node.emptied);
            if let (Some(bucket), false) =
                (owned, lower_keys(value.clone())["rm_user_data"] == Value::Bool(true))
            {
                return Err(Error::new(
                    ErrorCode::Conflict,
                    format!(
                        "node {} is down and may hold the only copies of objects in \"{}\"",
                        node.id, bucket.bucket
                    ),
                )
                .hint("start it, so that they can move; or give them up by rm_user_data"));
            }
        }
        for node in nodes {
            self.changes.commit(Command::Remove { id: node.id }).await?;
        }
        Ok(done())
    }

    fn may_go(&self, node: &Node, goes: bool) -> Result<()> {
        if goes && node.role == Role::Gateway {
            let what = format!("node {} is a gateway: there is nothing on it to move", node.id);
            return Err(Error::invalid(what)
                .hint("stop its process, or take it out of the cluster by `forebay node remove`"));
        }
        Ok(())
    }

    /// The nodes named by `sid` or `sids`.
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

/// Rejects transient settings: every setting here survives a restart.
fn kept(query: &Query) -> Result<()> {
    if query.flag("transient") {
        return Err(Error::unsupported("transient configuration changes are not served")
            .hint("set it without --transient, and back later"));
    }
    Ok(())
}
