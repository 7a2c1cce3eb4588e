//! Requests of `forebay node prestop`, which runs beside this target before it is stopped.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use forebay_client::PeerClient;
use forebay_core::intra::{DecommissionRequest, PrestopAct, PrestopReply, PrestopRequest};
use forebay_core::request::RequestContext;
use forebay_core::state::{ClusterState, Leaving};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::membership::gateway_urls;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_node::scale_down::DECOMMISSION_PATH;
use forebay_routes::internal as rules;

/// Timeout of one wait for the end of the move; shorter than that of the command's requests.
const WAIT_WITHIN: Duration = Duration::from_secs(1);

/// The services for a scale-down; cheap to clone.
#[derive(Clone)]
pub(crate) struct PrestopApi {
    pub(crate) identity: Identity,
    pub(crate) maps: Maps,
    pub(crate) peer: PeerClient,
    /// `cluster.gateways` of the configuration.
    pub(crate) gateways: Vec<String>,
}

pub(crate) fn routes() -> RouteSet<PrestopApi> {
    RouteSet::new().on(&rules::PRESTOP, handle)
}

/// Logs what the command decided, because nobody sees its own output in Kubernetes.
async fn handle(
    State(api): State<PrestopApi>,
    Extension(about): Extension<RequestContext>,
    Json(request): Json<PrestopRequest>,
) -> Result<Response, Failure> {
    let me = &api.identity.id;
    if about.principal.node.as_ref() != Some(me) {
        let text = format!("only a command with the key of {me} may stop it");
        return Err(Error::new(ErrorCode::AccessDenied, text)
            .hint("run `forebay node prestop` beside the target, with its configuration")
            .into());
    }
    if !request.note.is_empty() {
        tracing::info!("prestop: {}", request.note);
    }
    let reply = match request.act {
        PrestopAct::Log => PrestopReply::Stays,
        PrestopAct::Leave => {
            api.leave().await?;
            progress(&api.maps.load(), &api.identity)
        }
        PrestopAct::Wait => api.wait().await,
    };
    Ok(json(&reply))
}

impl PrestopApi {
    /// Asks a gateway to move this target's objects away. The mark on disk comes first, so that the
    /// next process of this target ends the drain.
    async fn leave(&self) -> Result<()> {
        let scale_down = self.identity.scale_down.clone();
        let noted = tokio::task::spawn_blocking(move || scale_down.begin()).await;
        noted
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|e| Error::internal(format!("cannot note the scale-down in node.dir: {e}")))?;
        let request = DecommissionRequest { id: self.identity.id.clone() };
        let mut failure = Error::unavailable("this target knows no gateway");
        for url in gateway_urls(&self.gateways, &self.maps) {
            let asked = self.peer.post_json::<_, ()>(&url, DECOMMISSION_PATH, &request).await;
            let e = match asked.map_err(Error::from) {
                Ok(()) => {
                    tracing::info!(gateway = url, "prestop: native objects move to other targets");
                    return Ok(());
                }
                Err(e) => e,
            };
            tracing::warn!(gateway = url, error = %e, "prestop: the gateway does not drain this target");
            let is_final = e.code != ErrorCode::Unavailable;
            failure = e;
            if is_final {
                break;
            }
        }
        Err(failure)
    }

    /// Waits a moment until this target is empty.
    async fn wait(&self) -> PrestopReply {
        let mut versions = self.maps.subscribe();
        let over = versions
            .wait_for(|_| progress(&self.maps.load(), &self.identity) != PrestopReply::Draining);
        let _ = tokio::time::timeout(WAIT_WITHIN, over).await;
        let reply = progress(&self.maps.load(), &self.identity);
        if reply == PrestopReply::Drained {
            tracing::info!("prestop: all native objects are moved");
        }
        reply
    }
}

/// How far this target has left, by this state. A target that was removed is not in the state.
fn progress(state: &ClusterState, me: &Identity) -> PrestopReply {
    match state.node(&me.id) {
        None => PrestopReply::Drained,
        Some(node) if node.leaving != Some(Leaving::Remove) => PrestopReply::Stays,
        Some(node) if node.emptied => PrestopReply::Drained,
        Some(_) => PrestopReply::Draining,
    }
}
