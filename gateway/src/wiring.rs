//! Builds a gateway from its parts; the one file that sees all of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use forebay_core::config::NodeConfig;
use forebay_core::intra::NodeUsage;
use forebay_core::state::{Command, Role};
use forebay_core::{Error, Result};
use forebay_node::clock::SystemClock;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_node::{listener, membership};

use crate::changes::Changes;
use crate::cluster::liveness;
use crate::cluster::members::Members;
use crate::cluster::publish::Publisher;
use crate::cluster_view::{ClusterView, Reports};
use crate::http::internal::Authority;
use crate::http::{api, batch, buckets, cluster, daemon, internal, jobs, objects, unserved};
use crate::job_control::JobControl;
use crate::meta::MetaLog;
use crate::meta::follower::Follower;
use crate::meta::log::RedbMeta;
use crate::route::Route;
use crate::targets::Targets;

/// Runs one gateway until `lifecycle` is cancelled. `ready` is called once it listens, with its
/// URL. The first gateway of the configuration holds the cluster's metadata, in `node.dir`; the
/// others follow it.
pub async fn run(
    config: NodeConfig,
    lifecycle: Lifecycle,
    ready: impl FnOnce(&str) + Send,
) -> Result<()> {
    let identity = Identity::load(&config, Role::Gateway)?;
    let listener = listener::bind(&config.listen.http).await?;
    let maps = Maps::default();
    let targets = Targets::new(&identity, maps.clone());
    let parts = Parts {
        identity: identity.clone(),
        maps: maps.clone(),
        targets,
        lifecycle: lifecycle.clone(),
    };
    let role = match primary_url(&config, &identity.url) {
        None => parts.primary(&config).await?,
        Some(url) => parts.follower(&config, url),
    };
    let router = parts.router(role);
    tracing::info!(id = %identity.id, url = identity.url, version = maps.version(), "gateway is up");
    ready(&identity.url);
    listener::serve(listener, router, identity, maps, lifecycle).await;
    Ok(())
}

/// URL of the gateway that holds the metadata; `None` when this one does.
fn primary_url(config: &NodeConfig, my_url: &str) -> Option<String> {
    let first = config.cluster.gateways.first()?.trim_end_matches('/');
    (first != my_url).then(|| first.to_owned())
}

/// What both roles are built from.
struct Parts {
    identity: Identity,
    maps: Maps,
    targets: Targets,
    lifecycle: Lifecycle,
}

/// The parts that differ between the primary and the others.
struct RoleParts {
    changes: Changes,
    authority: Authority,
    reports: Reports,
}

impl Parts {
    async fn primary(&self, config: &NodeConfig) -> Result<RoleParts> {
        let path = meta_path(config)?;
        let maps = self.maps.clone();
        let meta = tokio::task::spawn_blocking(move || RedbMeta::open(&path, maps))
            .await
            .map_err(|e| Error::internal(format!("opening the metadata log: {e}")))??;
        let meta: Arc<dyn MetaLog> = Arc::new(meta);
        self.maps.set_primary(self.identity.id.clone());
        self.enter(meta.as_ref()).await?;
        let publisher =
            Publisher::new(self.identity.id.clone(), self.maps.clone(), self.targets.clone());
        let members = Arc::new(Members::new(
            self.identity.id.clone(),
            meta.clone(),
            publisher.clone(),
            Arc::new(SystemClock::default()),
        ));
        self.lifecycle.spawn(liveness::watch(members.clone(), self.lifecycle.clone()));
        self.lifecycle.spawn(publisher.clone().run(self.lifecycle.clone()));
        let changes = Changes::new(meta, Some(publisher));
        Ok(RoleParts {
            authority: Authority::Primary { members: members.clone(), changes: changes.clone() },
            reports: Reports::Here(members),
            changes,
        })
    }

    /// The primary is a member of its own cluster.
    async fn enter(&self, meta: &dyn MetaLog) -> Result<()> {
        let me = &self.identity;
        let known = meta.state().node(&me.id).cloned();
        if known
            .is_some_and(|n| n.alive && n.url == me.url && n.role == me.role && n.zone == me.zone)
        {
            return Ok(());
        }
        let (id, role, url, zone) = (me.id.clone(), me.role, me.url.clone(), me.zone.clone());
        meta.propose(Command::Join { id, role, url, weight: 1, zone }).await?;
        Ok(())
    }

    fn follower(&self, config: &NodeConfig, primary_url: String) -> RoleParts {
        let peer = self.targets.peer().clone();
        let others: Vec<String> = config
            .cluster
            .gateways
            .iter()
            .map(|url| url.trim_end_matches('/').to_owned())
            .filter(|url| *url != self.identity.url)
            .collect();
        let started = self.identity.started;
        let usage =
            move || NodeUsage { uptime_s: started.elapsed().as_secs(), ..NodeUsage::default() };
        membership::follow(
            self.identity.clone(),
            self.maps.clone(),
            peer.clone(),
            others,
            Arc::new(usage),
            &self.lifecycle,
        );
        let meta = Follower::new(peer.clone(), primary_url.clone(), self.maps.clone());
        RoleParts {
            changes: Changes::new(Arc::new(meta), None),
            authority: Authority::Follower { peer: peer.clone(), primary_url: primary_url.clone() },
            reports: Reports::At { peer: Box::new(peer), primary_url },
        }
    }

    fn router(&self, role: RoleParts) -> Router {
        let Self { identity, maps, targets, lifecycle } = self;
        let RoleParts { changes, authority, reports } = role;
        let metrics = Metrics::default();
        let route = Route::new(maps.clone(), targets.clone(), changes.clone());
        let job_control = JobControl::new(maps.clone(), targets.clone());
        let view = ClusterView { maps: maps.clone(), reports, identity: identity.clone() };
        Router::new()
            .merge(objects::router(objects::Objects {
                route: route.clone(),
                identity: identity.clone(),
                metrics: metrics.clone(),
                lifecycle: lifecycle.clone(),
            }))
            .merge(buckets::router(buckets::Buckets {
                route: route.clone(),
                targets: targets.clone(),
                changes,
                jobs: job_control.clone(),
                metrics: metrics.clone(),
                lifecycle: lifecycle.clone(),
            }))
            .merge(batch::router(batch::Batches {
                route: route.clone(),
                identity: identity.clone(),
                metrics: metrics.clone(),
            }))
            .merge(jobs::router(jobs::JobsFront {
                route,
                jobs: job_control.clone(),
                metrics: metrics.clone(),
            }))
            .merge(cluster::router(cluster::ClusterFront {
                maps: maps.clone(),
                view: view.clone(),
                jobs: job_control,
                identity: identity.clone(),
                metrics: metrics.clone(),
            }))
            .merge(api::router(api::Api {
                maps: maps.clone(),
                view,
                identity: identity.clone(),
                metrics: metrics.clone(),
            }))
            .merge(internal::router(internal::Internal {
                authority,
                identity: identity.clone(),
                maps: maps.clone(),
            }))
            .merge(daemon::router(daemon::Daemon {
                maps: maps.clone(),
                identity: identity.clone(),
                metrics: metrics.clone(),
            }))
            .merge(unserved::router(metrics))
    }
}

fn meta_path(config: &NodeConfig) -> Result<PathBuf> {
    if config.node.dir.is_empty() {
        return Err(Error::invalid("node.dir is not set")
            .hint("the primary gateway keeps the cluster's metadata there"));
    }
    let dir = Path::new(&config.node.dir);
    std::fs::create_dir_all(dir)
        .map_err(|e| Error::invalid(format!("cannot make {}: {e}", dir.display())))?;
    Ok(dir.join("meta.redb"))
}
