//! A stand-in for a target: joins like a target and answers gateways' requests from memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::StatusCode;

use axum::Json;
use forebay_client::PeerClient;
use forebay_core::NodeId;
use forebay_core::config::{HttpConfig, LimitsConfig, S3Config};
use forebay_core::intra::{
    BackendHeadRequest, BackendListRequest, ListPage, ListRequest, NodeUsage,
};
use forebay_core::job::{JobSpec, JobState, JobStatus};
use forebay_core::object::ListEntry;
use forebay_core::sign::{ClusterSecret, NodeKey, Signer};
use forebay_core::state::Role;
use forebay_node::edge::Edge;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::Routes;
use forebay_node::maps::Maps;
use forebay_node::reply::Failure;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_node::{listener, membership};
use forebay_routes::internal as rules;
use forebay_routes::operations::METRICS;
use serde_json::Value;

/// The content of a stand-in, and the requests that it got.
#[derive(Default)]
pub(crate) struct Holdings {
    pub(crate) records: BTreeSet<String>,
    pub(crate) backend: BTreeSet<String>,
    pub(crate) backend_exists: bool,
    pub(crate) jobs: BTreeMap<String, JobStatus>,
    pub(crate) refuse_jobs: bool,
    pub(crate) dropped: Vec<u64>,
    pub(crate) backend_heads: usize,
}

pub(crate) struct StandIn {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) holds: Arc<Mutex<Holdings>>,
    lifecycle: Lifecycle,
}

type Held = State<Arc<Mutex<Holdings>>>;

impl StandIn {
    pub(crate) async fn start(id: &str, secret: &str, gateways: Vec<String>) -> Self {
        let listener = listener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let identity = Identity {
            id: NodeId::new(id).unwrap(),
            role: Role::Target,
            url: url.clone(),
            signer: Signer::new(ClusterSecret::new(secret).unwrap(), NodeId::new(id).unwrap(), 1)
                .with_key(NodeKey::of_seed(&seed_of(id)).unwrap()),
            zone: String::new(),
            started: std::time::Instant::now(),
            instance: 1,
            cluster: String::new(),
            empty: false,
            https: String::new(),
            external: String::new(),
            sealer: Arc::default(),
            token_join: None,
            scale_down: Default::default(),
        };
        let (maps, lifecycle) = (Maps::default(), Lifecycle::new());
        let holds = Arc::new(Mutex::new(Holdings { backend_exists: true, ..Holdings::default() }));
        let peer = PeerClient::new(identity.signer.clone());
        let usage = Arc::new(|| NodeUsage { objects: 7, bytes: 70, ..NodeUsage::default() });
        membership::follow(identity.clone(), maps.clone(), peer, gateways, usage, &lifecycle);
        let router = Routes::new(router(holds.clone()), Role::Target);
        let (limits, http) = (LimitsConfig::default(), HttpConfig::default());
        let edge = Edge::new(&S3Config::default(), &identity, &maps);
        let serving = listener::serve(listener, router, edge, lifecycle.clone(), limits, http);
        lifecycle.spawn(serving);
        Self { id: id.into(), url, holds, lifecycle }
    }

    /// Stops cleanly: the gateways learn of it immediately.
    pub(crate) async fn stop(&self) {
        self.lifecycle.shutdown(std::time::Duration::from_secs(5)).await;
    }
}

/// A seed of its own for each id.
fn seed_of(id: &str) -> [u8; 32] {
    let mut seed = [0; 32];
    id.bytes().zip(&mut seed).for_each(|(byte, into)| *into = byte);
    seed
}

fn page(
    names: &BTreeSet<String>,
    prefix: &str,
    after: &str,
    until: &str,
    limit: usize,
) -> ListPage {
    let mut rest = names
        .iter()
        .filter(|n| n.starts_with(prefix) && n.as_str() > after)
        .filter(|n| until.is_empty() || n.as_str() <= until);
    let entry = |n: &String| {
        let mut entry = ListEntry { name: n.clone(), ..ListEntry::default() };
        entry.meta.present = true;
        entry.meta.size = n.len() as u64;
        entry.meta.version = "1".into();
        entry
    };
    let entries = rest.by_ref().take(limit).map(entry).collect();
    ListPage { entries, more: rest.next().is_some() }
}

fn router(holds: Arc<Mutex<Holdings>>) -> GuardedRouter {
    RouteSet::new()
        .on(&rules::LIST, list)
        .on(&rules::BACKEND_HEAD, backend_head)
        .on(&rules::BACKEND_LIST, backend_list)
        .on(&rules::JOB_START, start_job)
        .on(&rules::JOBS, jobs)
        .on(&rules::JOB, job)
        .on(&rules::JOB_STOP, stop_job)
        .on(&rules::BUCKET_DROP, drop_bucket)
        .on(&METRICS, || async { "forebay_get_bytes_total{result=\"hit\"} 5\n" })
        .with_state(holds)
}

async fn list(State(h): Held, Json(r): Json<ListRequest>) -> Vec<u8> {
    let until = r.until.unwrap_or_default();
    let page = page(&h.lock().unwrap().records, &r.prefix, &r.after, &until, r.limit);
    page.encode(r.detail).unwrap()
}

async fn backend_head(
    State(h): Held,
    Json(r): Json<BackendHeadRequest>,
) -> Result<Json<Value>, Failure> {
    let mut h = h.lock().unwrap();
    h.backend_heads += 1;
    if h.backend_exists { Ok(Json(Value::Null)) } else { Err(Failure(r.info.bucket.not_found())) }
}

async fn backend_list(State(h): Held, Json(r): Json<BackendListRequest>) -> Vec<u8> {
    let page = page(&h.lock().unwrap().backend, &r.prefix, &r.after, "", r.limit);
    page.encode(r.detail).unwrap()
}

async fn start_job(State(h): Held, Json(spec): Json<JobSpec>) -> Result<Json<Value>, Failure> {
    let mut h = h.lock().unwrap();
    if h.refuse_jobs {
        return Err(Failure(forebay_core::Error::internal("no more jobs")));
    }
    h.jobs.insert(spec.id.clone(), JobStatus::new(&spec, 5));
    Ok(Json(Value::Null))
}

async fn jobs(State(h): Held) -> Json<Vec<JobStatus>> {
    Json(h.lock().unwrap().jobs.values().cloned().collect())
}

async fn job(State(h): Held, Path(id): Path<String>) -> Result<Json<JobStatus>, Failure> {
    let job = h.lock().unwrap().jobs.get(&id).cloned();
    job.map(Json).ok_or_else(|| Failure(forebay_v1::jobs::unknown_job(&id)))
}

async fn stop_job(State(h): Held, Path(id): Path<String>) -> StatusCode {
    if let Some(job) = h.lock().unwrap().jobs.get_mut(&id) {
        (job.state, job.ended_ns) = (JobState::Stopped, 9);
    }
    StatusCode::OK
}

async fn drop_bucket(State(h): Held, Path(id): Path<u64>) -> StatusCode {
    h.lock().unwrap().dropped.push(id);
    StatusCode::OK
}
