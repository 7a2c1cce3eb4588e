//! Actions of v1 on a bucket's objects whose arguments are in the body: `promote` and
//! `blob-download`.

use axum::http::request::Parts;
use axum::response::Response;
use forebay_core::access::{Access, Scope};
use forebay_core::intra::{PromoteRequest, PromoteScan};
use forebay_core::promote::PromoteArgs;
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, ObjectName, Result};
use forebay_node::identity::Identity;
use forebay_node::reply::text;
use forebay_routes::On;
use forebay_routes::v1_objects::POST;
use forebay_v1::action::ActionMsg;
use forebay_v1::object::{BlobArgs, promote_args};
use forebay_v1::query::{Query, split_path};

use super::{access_of, auth, redirect};
use crate::ids;
use crate::route::{Found, Route};
use crate::targets::{self, Targets};

const SCAN: &str = "/internal/v1/promote/scan";
const START: &str = "/internal/v1/promote";

/// The components that start jobs on objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct ObjectJobs {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
    pub(crate) identity: Identity,
}

/// Handles a POST on a bucket's objects.
pub(super) async fn on_bucket(
    state: &ObjectJobs,
    parts: &Parts,
    action: &ActionMsg,
    body: &[u8],
) -> Result<Response> {
    let (bucket, _) = split_path(parts.uri.path(), "objects")?;
    let bucket = Query::parse(parts.uri.query()).bucket(&bucket)?;
    let unknown = || {
        let text = format!("unknown action \"{}\" on objects", action.action);
        Error::invalid(text)
    };
    let access = access_of(&parts.extensions);
    let grant = POST.action(&action.action).ok_or_else(unknown)?.of(&access);
    match action.action.as_str() {
        "promote" => {
            let args = promote_args(&action.name, &action.value)?;
            grant.require(On::Destination, Scope::Prefix(&bucket, &args.object))?;
            let found = state.route.bucket(&bucket).await?;
            Ok(text(promote(state, &found, args).await?))
        }
        "blob-download" => {
            let object = ObjectName::new(&action.name)?;
            BlobArgs::from_value(&action.value)?;
            grant.require(On::Selected, Scope::Object(&bucket, object.as_str()))?;
            let found = state.route.bucket(&bucket).await?;
            if !found.info.has_backend() {
                return Err(Error::invalid(format!(
                    "blob-download: bucket \"{}\" has no backend",
                    found.info.bucket
                ))
                .hint("all of a native bucket is here"));
            }
            let owner = found.owner(object.as_str())?;
            let uri = match access {
                Access::Open => parts.uri.clone(),
                _ => auth::with_body(&parts.uri, body)?,
            };
            redirect(&state.identity, found.state.version, parts, &uri, &owner.url)
        }
        _ => Err(unknown()),
    }
}

/// Starts a promotion on all targets, or on the named one; returns the job's id. Every target must
/// find files: a target without files would be missing without an error.
async fn promote(state: &ObjectJobs, found: &Found, args: PromoteArgs) -> Result<String> {
    check_prefix(&args.object)?;
    let nodes = targets_of(found, &args.target)?;
    let scans = state.targets.post_all::<_, PromoteScan>(nodes.iter().copied(), SCAN, &args).await;
    let scans: Vec<PromoteScan> = scans.into_iter().map(|(_, scan)| scan).collect::<Result<_>>()?;
    let alike = scans.windows(2).all(|pair| pair[0] == pair[1]);
    let shared = scans.len() > 1 && alike && !args.not_shared;
    let id = ids::mint("prm-");
    let bucket = found.info.bucket.clone();
    let request = PromoteRequest { id: id.clone(), bucket, args, shared };
    let started: Vec<(_, Result<serde_json::Value>)> =
        state.targets.post_all(nodes.iter().copied(), START, &request).await;
    if let Some(e) = started.into_iter().find_map(|(_, answer)| answer.err()) {
        // A partial promotion would look like a complete one.
        state.targets.delete_all(nodes, &format!("/internal/v1/job/{id}")).await;
        return Err(e);
    }
    Ok(id)
}

fn targets_of<'a>(found: &'a Found, wanted: &str) -> Result<Vec<&'a Node>> {
    let alive = targets::alive(&found.state)?;
    if wanted.is_empty() {
        return Ok(alive);
    }
    let node = alive.into_iter().find(|node| node.id.as_str() == wanted);
    node.map(|node| vec![node]).ok_or_else(|| {
        Error::new(ErrorCode::NodeNotFound, format!("promote: node \"{wanted}\" does not exist"))
            .hint("the id of a target that is alive")
    })
}

/// Checks the common prefix, which is part of the request; targets check the complete names.
fn check_prefix(prefix: &str) -> Result<()> {
    let inner = prefix.strip_suffix('/').unwrap_or(prefix);
    if inner.is_empty() && prefix.is_empty() {
        return Ok(());
    }
    ObjectName::new(inner)?.check_v1_native()
}
