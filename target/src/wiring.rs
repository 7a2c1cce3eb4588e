//! Builds a target from its parts; the only module that uses all of them.

mod handlers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forebay_client::PeerClient;
use forebay_clouds::egress::WebRules;
use forebay_clouds::{BackendSettings, Backends};
use forebay_core::Result;
use forebay_core::config::NodeConfig;
use forebay_core::egress::{Egress, EgressPolicy};
use forebay_core::intra::{DiskStatus, DiskUsage, NodeUsage};
use forebay_core::size::ByteSize;
use forebay_core::state::Role;
use forebay_node::access::Authenticator;
use forebay_node::audit::Audit;
use forebay_node::cgroup::Resources;
use forebay_node::edge::Edge;
use forebay_node::exchange::{self, Observer};
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::machine::machine;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_node::relay::Relay;
use forebay_node::s3::S3Door;
use forebay_node::tls::NodeTls;
use forebay_node::trace::Tracer;
use forebay_node::{listener, membership};
use forebay_store::{MeasuredDisk, RealDisk, Store};

use self::handlers::Services;
use crate::batch::budget::Budget;
use crate::cache::{CacheWatch, Evictor, Gate, Rules, Watermarks};
use crate::destroyed;
use crate::disks::{self, DiskAdmin};
use crate::download::Downloads;
use crate::etl::Etls;
use crate::job::build::builds::Builds;
use crate::job::kinds::Kinds;
use crate::job::transform_inline::TransformJobs;
use crate::job::{Jobs, Notes, make_up_for_losses};
use crate::object::{ObjectService, Parts};
use crate::promote::Promotions;
use crate::scrub;
use crate::shard::Shards;
use crate::state_sync::StateSync;

/// Batches get at most this part of the memory that the process may use: a quarter.
const BATCH_MEMORY_DIVISOR: u64 = 4;
/// Least memory for batches, as for `limits.batch_memory`.
const MIN_BATCH_MEMORY: u64 = 16 << 20;

/// Runs one target until `lifecycle` is cancelled. `ready` is called once it listens, with its URL;
/// it is a member of the cluster when its `/readyz` succeeds.
pub async fn run(
    config: NodeConfig,
    lifecycle: Lifecycle,
    ready: impl FnOnce(&str) + Send,
) -> Result<()> {
    let mut identity = Identity::load(&config, Role::Target)?;
    let tls = NodeTls::load(&config)?;
    let names = config.clone();
    let listener = listener::bind(&config.listen.http).await?;
    let node_dir = PathBuf::from(&config.node.dir);
    let metrics = Metrics::default();
    let audit = Audit::start(&config.audit, &identity, &node_dir, &lifecycle, metrics.audit())?;
    let notes = disks::Notes::load(&node_dir).await?;
    for path in notes.left_out(&config.disk) {
        tracing::warn!(
            disk = path,
            "it was detached by command, and is not used until it is attached"
        );
    }
    let disks = notes.apply(&config.disk).into_iter();
    let disks = disks.map(|disk| disk.of_node(&identity.id)).collect();
    let disk = MeasuredDisk::new(RealDisk, metrics.disk_times().clone());
    let store = Store::open(disks, Arc::new(disk)).await?;
    identity.empty = store.is_blank();
    identity.cluster = match store.cluster() {
        Some(cluster) => cluster,
        None => destroyed::noted_cluster(&node_dir).await,
    };
    let maps = Maps::default();
    maps.rates().limit_users(&config.limits);
    maps.rates().count_in(metrics.rates().clone());
    let rates = maps.rates().clone();
    lifecycle.on_reload(move |config| rates.limit_users(&config.limits));
    let versions = maps.clone();
    let peer = PeerClient::new(identity.signer.clone()).working_for(exchange::id);
    let peer = peer.traced_by(exchange::trace_context);
    let mut peer = peer.acting_by(move || versions.version());
    if let Some(tls) = &tls {
        peer = tls.secure(peer, &maps);
        tls.count_in(metrics.tls());
        tls.watch(&lifecycle);
    }

    let tracer =
        Tracer::start(&config.trace, &identity, &maps, &peer, &lifecycle, metrics.traces())?;
    let folder_roots = config.folder.roots.iter().map(Into::into).collect();
    let counted = metrics.clone();
    let policy = EgressPolicy::of(&config)?;
    let allow_private = config.download.allow_private;
    let web = if allow_private { Egress::Private } else { Egress::Public };
    let settings = BackendSettings::from_env(folder_roots).guarded_by(&policy, web);
    let settings = settings.with_accounts(&config.cloud, &policy)?;
    let backends = Backends::new(
        settings,
        Arc::new(move |provider, op, result, time| {
            counted.backend_request(provider, op, result, time);
        }),
    );
    let counted = metrics.clone();
    let backends = backends
        .telling_bytes(Arc::new(move |from, bytes| counted.backend_bytes(from, bytes)))
        .billing(metrics.bills().clone());
    let backends = Arc::new(backends);
    let budgets = store.budgets();
    let watch = Arc::new(CacheWatch::new(config.cache.policy, budgets));
    let objects = ObjectService::new(Parts {
        id: identity.id.clone(),
        store: store.clone(),
        backends,
        maps: maps.clone(),
        peer: peer.clone(),
        metrics: metrics.clone(),
        lifecycle: lifecycle.clone(),
        cold_gets: config.limits.cold_gets,
        prefetch_percent: config.limits.prefetch_percent,
        gate: Gate::new(config.cache.out_of_space),
        watch: watch.clone(),
    });
    let marks = Watermarks { high: config.cache.high, low: config.cache.low };
    let (known, evicted) = (maps.clone(), metrics.clone());
    let evictor = Evictor::new(store.clone(), watch, marks, move || rules_of(&known))
        .counting(move |why, bytes| evicted.evicted(why, bytes));
    lifecycle.spawn(evictor.run(lifecycle.token()));
    lifecycle.spawn(objects.uploads().clone().watch());
    lifecycle.spawn(objects.appends().clone().watch());
    lifecycle.spawn(objects.clone().sample_reads());
    lifecycle.spawn(objects.clone().sample_quotas());
    if let Some(after) = config.cache.unowned_after() {
        lifecycle.spawn(objects.clone().watch_unowned(after));
    }
    lifecycle.spawn(objects.replication().clone().watch_tombstones(lifecycle.token()));
    scrub::start(&objects, &config.scrub, &lifecycle);

    let (tended, lock, token) = (store.clone(), objects.object_lock(), lifecycle.token());
    lifecycle.spawn(async move {
        tokio::join!(tended.watch_disks(&token), tended.resilver(&token, lock));
    });

    let disk_admin = DiskAdmin::new(
        store.clone(),
        objects.clone(),
        config.disk.clone(),
        disks::DiskRoots::of(&config),
        node_dir.clone(),
        notes,
        lifecycle.clone(),
    );
    let resuming = disk_admin.clone();
    lifecycle.spawn(async move { resuming.resume().await });

    let job_notes = Notes::new(&node_dir);
    let noted_jobs = job_notes.load().await?;
    let refresher = membership::follow(
        identity.clone(),
        maps.clone(),
        peer.clone(),
        config.cluster.gateways.clone(),
        usage_of(store, objects.clone(), identity.started),
        &lifecycle,
    );
    let shards = Shards::new(objects.clone(), lifecycle.clone());
    let transform_jobs = TransformJobs::default();
    let transformed = transform_jobs.clone();
    let counted = Box::new(move |job: &str, bytes| transformed.done(job, bytes));
    let etls = Etls::new(objects.clone(), maps.clone(), config.etl.clone(), &policy, counted)?;
    let web = WebRules::new(policy, allow_private);
    let kinds = Kinds::new(objects.clone(), shards.clone(), etls.clone(), web.clone());
    let jobs = Jobs::new(objects.clone(), kinds.factory(), lifecycle.clone(), job_notes);
    jobs.take_up(noted_jobs);
    lifecycle.spawn(make_up_for_losses(objects.clone(), jobs.clone(), lifecycle.token()));
    let builds = Builds::new(objects.clone(), peer.clone(), lifecycle.clone());
    let root = &config.promote.root;
    let promotions = Promotions::new(objects.clone(), jobs.clone(), root, lifecycle.clone());
    lifecycle.spawn(transform_jobs.follow(jobs.clone(), maps.clone(), lifecycle.token()));
    let downloads =
        Downloads::new(objects.clone(), jobs.clone(), config.download, web, &lifecycle)?;
    let users = Authenticator::new(&config.auth, &config.s3, &identity, &maps)?;
    users.follow_issuers(&lifecycle);
    let limits = &config.limits;
    let relay = Relay::new(&identity, &peer);
    let services = Services {
        objects: objects.clone(),
        disks: disk_admin,
        shards,
        jobs,
        etls,
        downloads,
        builds,
        promotions,
        batches: Budget::new(batch_memory(limits.batch_memory), limits.batches, metrics.clone()),
        door: S3Door::new(&config.s3).with_users(users.clone(), &maps),
        relay: relay.clone(),
        identity: identity.clone(),
        sync: StateSync { maps: maps.clone(), refresher },
        peer,
        metrics: metrics.clone(),
        tracer: tracer.clone(),
        lifecycle: lifecycle.clone(),
        gateways: config.cluster.gateways.clone(),
    };
    lifecycle.spawn(metrics.traffic().clone().run(lifecycle.token()));
    let front = services.front();
    lifecycle.spawn(destroyed::watch(objects, maps.clone(), node_dir, lifecycle.clone()));
    tracing::info!(id = %identity.id, url = identity.url, "target listens");
    ready(&identity.url);
    let edge = Edge::new(&config.s3, &identity, &maps).named_by(&names).relaying(relay);
    let observer = Observer::new(metrics.requests().clone(), &config.log);
    let observer = observer.counting(metrics.traffic().clone()).traced_by(tracer);
    let observer = observer.following(&lifecycle);
    let edge = edge.audited_by(audit).observed_by(observer).with_tls(tls).with_users(users);
    let life = lifecycle.clone();
    let limits = config.limits.clone();
    listener::serve(listener, front, edge, lifecycle, limits, config.http).await;
    life.outcome()
}

/// The memory for batches: at most a quarter of what the process may use.
fn batch_memory(configured: ByteSize) -> u64 {
    let here = Resources::read();
    let bytes = here.bounded(configured.0, BATCH_MEMORY_DIVISOR).max(MIN_BATCH_MEMORY);
    if bytes < configured.0 {
        let (limit, machine) = (ByteSize(bytes), here.describe());
        tracing::warn!(%limit, machine, "limits.batch_memory is more than a quarter of the memory");
    }
    bytes.min(configured.0)
}

/// The rules of all buckets; `None` before the cluster's state is known, because a bucket may be
/// pinned.
fn rules_of(maps: &Maps) -> Option<Rules> {
    let state = maps.load();
    let buckets = state.buckets.values().filter(|b| !b.cache.is_default());
    (state.version > 0).then(|| buckets.map(|b| (b.id, b.cache)).collect())
}

fn usage_of(store: Store, objects: ObjectService, started: Instant) -> membership::UsageFn {
    let in_use = |disk: &&DiskUsage| disk.state == DiskStatus::InUse;
    Arc::new(move || {
        let (usage, metrics) = (store.usage(), objects.metrics());
        let (lost, lost_names) = objects.lost_summary();
        let mountpaths = disks::shown(&store);
        NodeUsage {
            uptime_s: started.elapsed().as_secs(),
            objects: usage.objects,
            bytes: usage.bytes,
            budget: usage.budget,
            hit_bytes: metrics.get_bytes("hit"),
            miss_bytes: metrics.get_bytes("miss"),
            backend_reads: 0,
            disks: mountpaths.iter().filter(in_use).map(|m| m.path.clone()).collect(),
            lost,
            lost_names,
            machine: machine(),
            mountpaths,
            tracker: metrics.tracker(),
            // The report adds them.
            clock: None,
            quotas: None,
            version: String::new(),
        }
    })
}
