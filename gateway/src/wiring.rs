//! Builds a gateway from its parts; the only file that uses all of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::config::NodeConfig;
use forebay_core::intra::NodeUsage;
use forebay_core::state::Role;
use forebay_core::state::backup::Backup;
use forebay_core::{Error, Result};
use forebay_node::access::Authenticator;
use forebay_node::audit::Audit;
use forebay_node::edge::Edge;
use forebay_node::exchange::Observer;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::Routes;
use forebay_node::machine::machine;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_node::relay::Relay;
use forebay_node::routing::GuardedRouter;
use forebay_node::s3::S3Door;
use forebay_node::tls::NodeTls;
use forebay_node::trace::Tracer;
use forebay_node::traffic::StreamLimit;
use forebay_node::{listener, membership};

use crate::accounts::Accounts;
use crate::changes::Changes;
use crate::cluster::leadership::LeaderWatch;
use crate::cluster::leading::Leading;
use crate::cluster::membership::{LocalMembership, MembershipService};
use crate::cluster_view::ClusterView;
use crate::http::bucket_jobs::BucketJobs;
use crate::http::object_jobs::ObjectJobs;
use crate::http::removal::GatewayRemoval;
use crate::http::{
    accounts as account_routes, admin, api, authn, backend_access, batch, bill, buckets, cluster,
    console, content, daemon, disks, download, dsort, easy_url, etl, feeds, internal, jobs,
    objects, objects_page, openapi, overview, requests_live, traces, warmth,
};
use crate::job_control::JobControl;
use crate::meta;
use crate::meta::front::RaftMeta;
use crate::meta::group::Group;
use crate::overview::Overviews;
use crate::route::Route;
use crate::s3::{GatewayFront, S3};
use crate::targets::Targets;

/// Timeout for a single gateway to catch up at its start; after it, the gateway starts anyway.
const START_WITHIN: Duration = Duration::from_secs(5);
/// Timeout for the last user of the metadata log at the end.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Runs one gateway until `lifecycle` is cancelled. Calls `ready` with the gateway's URL once it
/// listens. Every gateway of a cluster has a copy of its metadata in its `node.dir`; the gateways
/// in the configuration form a new group, or admit this gateway to theirs.
pub async fn run(
    config: NodeConfig,
    lifecycle: Lifecycle,
    ready: impl FnOnce(&str) + Send,
) -> Result<()> {
    let identity = Identity::load(&config, Role::Gateway)?;
    let tls = NodeTls::load(&config)?;
    let (metrics, node_dir) = (Metrics::of(Role::Gateway), Path::new(&config.node.dir));
    let audit = Audit::start(&config.audit, &identity, node_dir, &lifecycle, metrics.audit())?;
    let listener = listener::bind(&config.listen.http).await?;
    let maps = Maps::default();
    let targets = Targets::new(&identity, maps.clone()).secured_by(tls.as_ref());
    let peer = targets.peer().clone();
    let tracer =
        Tracer::start(&config.trace, &identity, &maps, &peer, &lifecycle, metrics.traces())?;
    let (path, gateways) = (meta_path(&config)?, &config.cluster.gateways);
    let (group, closing) =
        Group::open(&path, &identity.url, gateways, peer.clone(), maps.clone(), &lifecycle).await?;
    let group = group.of_node(&identity.id);
    let (sender, leadership) = LeaderWatch::channel();
    let jobs = JobControl::new(maps.clone(), targets.clone());
    let leading = Leading {
        me: identity.id.clone(),
        instance: identity.instance,
        group: group.clone(),
        maps: maps.clone(),
        targets: targets.clone(),
        jobs: jobs.clone(),
        lifecycle: lifecycle.clone(),
    };
    lifecycle.spawn(leading.run(sender));
    let users = Authenticator::new(&config.auth, &config.s3, &identity, &maps)?;
    users.follow_issuers(&lifecycle);
    let relay = Relay::new(&identity, &peer);
    let parts = Parts {
        users: users.clone(),
        membership: MembershipService::new(leadership.clone(), peer, maps.clone()),
        identity: identity.clone(),
        maps: maps.clone(),
        targets,
        jobs,
        group: group.clone(),
        leadership: leadership.clone(),
        lifecycle: lifecycle.clone(),
        metrics: metrics.clone(),
        tracer: tracer.clone(),
    };
    if let Some(tls) = &tls {
        tls.count_in(metrics.tls());
        tls.watch(&lifecycle);
    }
    let membership = lifecycle.spawn(parts.membership());
    let accounts = parts.accounts(&config);
    if let Some(admin) = accounts.first_admin()? {
        let stop = lifecycle.token();
        let created = accounts.clone().bootstrap(admin, leadership.clone());
        lifecycle.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = created => {}
            }
        });
    }
    let front = parts.front(&config, accounts);
    let finding = discover(group.clone(), lifecycle.clone());
    if group.is_alone() {
        // A single gateway decides alone, so it catches up within milliseconds.
        finding.await;
        wait_until_member(&maps, &identity).await;
    } else {
        lifecycle.spawn(finding);
    }
    lifecycle.spawn(persist_identity(group.clone(), lifecycle.clone()));
    lifecycle.spawn(metrics.traffic().clone().run(lifecycle.token()));
    tracing::info!(id = %identity.id, url = identity.url, version = maps.version(), "gateway is up");
    ready(&identity.url);
    let edge = Edge::new(&config.s3, &identity, &maps).named_by(&config).relaying(relay);
    let observer = Observer::new(metrics.requests().clone(), &config.log);
    let observer = observer.counting(metrics.traffic().clone()).traced_by(tracer);
    let observer = observer.following(&lifecycle);
    let edge = edge.audited_by(audit).observed_by(observer).with_tls(tls).with_users(users);
    let life = lifecycle.clone();
    let limits = config.limits.clone();
    listener::serve(listener, front, edge, lifecycle, limits, config.http).await;
    // It leaves the cluster as a member of the group, and leaves the group after that.
    if let Err(e) = membership.await {
        tracing::error!(error = %e, "could not leave the cluster");
    }
    group.stop().await;
    let ended = group.ended();
    drop((group, leadership));
    if !closing.done(CLOSE_WITHIN).await {
        tracing::warn!(path = %path.display(), "the metadata log is still in use");
    }
    ended.map_or_else(|| life.outcome(), Err)
}

/// Forms a group or joins one. After a failure, the gateway answers from what it has.
async fn discover(group: Group, lifecycle: Lifecycle) {
    let stop = lifecycle.token();
    tokio::select! {
        () = stop.cancelled() => {}
        found = group.discover() => if let Err(e) = found {
            tracing::error!(error = %e, "cannot start the metadata log");
        },
    }
}

/// Checks whether the group removed this gateway.
async fn persist_identity(group: Group, lifecycle: Lifecycle) {
    let stop = lifecycle.token();
    tokio::select! {
        () = stop.cancelled() => {}
        () = group.persist_identity() => {}
    }
}

async fn wait_until_member(maps: &Maps, identity: &Identity) {
    let mut versions = maps.subscribe();
    let known = versions.wait_for(|_| {
        maps.load().node(&identity.id).is_some_and(|n| n.alive && n.url == identity.url)
    });
    let _ = tokio::time::timeout(START_WITHIN, known).await;
}

/// The parts that the handlers are built from.
struct Parts {
    users: Arc<Authenticator>,
    identity: Identity,
    maps: Maps,
    targets: Targets,
    jobs: JobControl,
    group: Group,
    leadership: LeaderWatch,
    membership: MembershipService,
    lifecycle: Lifecycle,
    metrics: Metrics,
    tracer: Tracer,
}

impl Parts {
    /// A gateway is a member of the cluster like any node, admitted and monitored by the leader.
    fn membership(&self) -> impl Future<Output = ()> + Send + 'static {
        let started = self.identity.started;
        let usage = move || NodeUsage {
            uptime_s: started.elapsed().as_secs(),
            machine: machine(),
            ..NodeUsage::default()
        };
        let door =
            LocalMembership { membership: self.membership.clone(), group: self.group.clone() };
        let (identity, maps) = (self.identity.clone(), self.maps.clone());
        let (door, usage) = (Arc::new(door), Arc::new(usage));
        membership::follow_through(identity, maps, door, usage, &self.lifecycle).1
    }

    fn changes(&self) -> Changes {
        let (peer, leadership) = (self.targets.peer().clone(), self.leadership.clone());
        let meta = RaftMeta::new(self.group.clone(), leadership.clone(), peer, self.maps.clone());
        Changes::new(meta, leadership)
    }

    fn accounts(&self, config: &NodeConfig) -> Accounts {
        let (users, auth) = (self.users.clone(), config.auth.clone());
        Accounts::new(self.maps.clone(), self.changes(), users, auth)
    }

    fn front(&self, config: &NodeConfig, accounts: Accounts) -> GatewayFront {
        let changes = self.changes();
        let Self { users, identity, maps, targets, jobs, .. } = self;
        let Self { group, leadership, membership, lifecycle, .. } = self;
        let peer = targets.peer().clone();
        let route = Route::new(maps.clone(), targets.clone(), changes.clone());
        let job_control = jobs.clone();
        let jobs_front = jobs::JobsFront { route: route.clone(), jobs: job_control.clone() };
        let disks_front = disks::DisksFront { maps: maps.clone(), targets: targets.clone() };
        let view = ClusterView {
            maps: maps.clone(),
            leadership: leadership.clone(),
            peer,
            identity: identity.clone(),
        };
        let traffic = self.metrics.traffic();
        let overviews = Overviews::new(view.clone(), job_control.clone(), traffic.clone());
        lifecycle.spawn(overviews.clone().run(lifecycle.clone()));
        let overview_api = overview::OverviewApi {
            overviews,
            traffic: traffic.clone(),
            identity: identity.clone(),
            streams: StreamLimit::default(),
            lifecycle: lifecycle.clone(),
        };
        let buckets = buckets::Buckets {
            route: route.clone(),
            targets: targets.clone(),
            changes: changes.clone(),
            jobs: BucketJobs {
                route: route.clone(),
                changes: changes.clone(),
                control: job_control,
            },
            lifecycle: lifecycle.clone(),
        };
        let relay = Relay::new(identity, targets.peer());
        let s3 = S3 {
            door: S3Door::new(&config.s3).with_users(users.clone(), maps),
            route: route.clone(),
            targets: targets.clone(),
            changes: changes.clone(),
            buckets: buckets.clone(),
            relay: relay.clone(),
        };
        let router = GuardedRouter::default()
            .merge(objects::router(objects::Objects {
                route: route.clone(),
                targets: targets.clone(),
                jobs: ObjectJobs {
                    route: route.clone(),
                    targets: targets.clone(),
                    identity: identity.clone(),
                },
                identity: identity.clone(),
                lifecycle: lifecycle.clone(),
            }))
            .merge(objects_page::router(objects_page::ObjectPages {
                route: route.clone(),
                targets: targets.clone(),
            }))
            .merge(content::router(content::Contents {
                route: route.clone(),
                identity: identity.clone(),
                relay,
            }))
            .merge(buckets::router(buckets))
            .merge(batch::router(batch::Batches {
                route: route.clone(),
                identity: identity.clone(),
            }))
            .merge(jobs::router(jobs_front.clone()))
            .merge(dsort::router(jobs_front.clone()))
            .merge(etl::router(etl::Etls {
                route: route.clone(),
                targets: targets.clone(),
                changes: changes.clone(),
                identity: identity.clone(),
            }))
            .merge(download::router(download::Downloads {
                route: route.clone(),
                targets: targets.clone(),
            }))
            .merge(backend_access::router(backend_access::AccessFront {
                route: route.clone(),
                targets: targets.clone(),
            }))
            .merge(bill::router(bill::BillFront { route: route.clone(), targets: targets.clone() }))
            .merge(warmth::router(warmth::WarmthApi {
                route: route.clone(),
                targets: targets.clone(),
            }))
            .merge(feeds::router(feeds::FeedsApi {
                board: Arc::default(),
                maps: maps.clone(),
                peer: targets.peer().clone(),
                identity: identity.clone(),
            }))
            .merge(traces::router(traces::TracesApi {
                tracer: self.tracer.clone(),
                maps: maps.clone(),
                peer: targets.peer().clone(),
                identity: identity.clone(),
            }))
            .merge(disks::router(disks_front.clone()))
            .merge(cluster::router(cluster::ClusterFront {
                maps: maps.clone(),
                disks: disks_front,
                view: view.clone(),
                jobs: jobs_front,
                admin: admin::Admin {
                    maps: maps.clone(),
                    changes: changes.clone(),
                    route: route.clone(),
                    removal: GatewayRemoval {
                        group: group.clone(),
                        leadership: leadership.clone(),
                        peer: targets.peer().clone(),
                        maps: maps.clone(),
                    },
                },
                identity: identity.clone(),
            }))
            .merge(account_routes::router(account_routes::Auth { accounts: accounts.clone() }))
            .merge(authn::router(authn::AuthN {
                accounts: accounts.clone(),
                identity: identity.clone(),
            }))
            .merge(api::router(api::Api {
                accounts,
                maps: maps.clone(),
                view,
                leadership: leadership.clone(),
                identity: identity.clone(),
            }))
            .merge(openapi::router())
            .merge(requests_live::router(overview_api.clone()))
            .merge(overview::router(overview_api))
            .merge(console::router())
            .merge(internal::router(internal::Internal {
                membership: membership.clone(),
                changes,
                group: group.clone(),
                maps: maps.clone(),
                identity: identity.clone(),
            }))
            .merge(daemon::router(daemon::Daemon {
                maps: maps.clone(),
                identity: identity.clone(),
                peer: targets.peer().clone(),
                group: group.clone(),
                leadership: leadership.clone(),
                sums: Arc::default(),
                metrics: self.metrics.clone(),
            }));
        let easy = easy_url::router(&router);
        GatewayFront { s3, routes: Routes::new(router.merge(easy), Role::Gateway) }
    }
}

/// Creates the metadata of this configuration's gateway from a backup; the gateway must not run
/// meanwhile and must have no metadata yet. Every gateway of the group needs the same backup before
/// the first of them starts. Blocks on the disk.
pub fn restore(config: &NodeConfig, backup: Backup) -> Result<()> {
    let identity = Identity::load(config, Role::Gateway)?;
    let (path, gateways) = (meta_path(config)?, &config.cluster.gateways);
    meta::restore::restore(&path, &identity.url, gateways, backup.restored())
}

fn meta_path(config: &NodeConfig) -> Result<PathBuf> {
    if config.node.dir.is_empty() {
        return Err(Error::invalid("node.dir is not set")
            .hint("a gateway keeps its copy of the cluster's metadata there"));
    }
    let dir = Path::new(&config.node.dir);
    std::fs::create_dir_all(dir)
        .map_err(|e| Error::invalid(format!("cannot make {}: {e}", dir.display())))?;
    Ok(dir.join("meta.redb"))
}
