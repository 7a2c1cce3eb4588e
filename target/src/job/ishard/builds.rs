//! Shards being built on this target, for a job that runs here or elsewhere. A build that nobody
//! asks about is given up, so a job that died leaves nothing behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_client::PeerClient;
use forebay_core::ishard::{BuildOutcome, BuildRequest, BuildStatus};
use forebay_core::{Error, ErrorCode, Result, placement};
use forebay_node::lifecycle::Lifecycle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::pack::{self, Progress};
use crate::object::{ObjectService, PutRequest};

/// How long a question waits for the end of a build.
const WAIT: Duration = Duration::from_millis(500);
/// A build is given up when nobody asked about it for so long.
const LEASE: Duration = Duration::from_secs(15);
/// How long the end of a build is remembered for whoever did not hear it.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The builds of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Builds(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    peer: PeerClient,
    lifecycle: Lifecycle,
    table: Mutex<HashMap<String, Arc<Build>>>,
}

struct Build {
    progress: Arc<Progress>,
    outcome: watch::Sender<Option<BuildOutcome>>,
    stop: CancellationToken,
    asked: Mutex<Instant>,
}

impl Build {
    fn status(&self) -> BuildStatus {
        let (files, bytes) = self.progress.read();
        BuildStatus { files, bytes, outcome: self.outcome.borrow().clone() }
    }

    fn idle(&self) -> Duration {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Waits for the end, as long as `at_most`.
    async fn ended(&self, at_most: Duration) {
        let mut outcome = self.outcome.subscribe();
        let _ = tokio::time::timeout(at_most, outcome.wait_for(Option::is_some)).await;
    }
}

impl Builds {
    pub(crate) fn new(objects: ObjectService, peer: PeerClient, lifecycle: Lifecycle) -> Self {
        Self(Arc::new(Inner { objects, peer, lifecycle, table: Mutex::default() }))
    }

    /// Starts a build; one that is known by its id goes on.
    pub(crate) fn start(&self, request: BuildRequest) -> Result<()> {
        let state = self.0.objects.state();
        state.bucket(&request.source)?;
        let info = state.bucket(&request.destination)?;
        let name = request.shard.as_str();
        let owner = placement::owner(&state, info, name)?;
        if owner.id != *self.0.objects.me() {
            let text = format!("{} belongs to {}", info.bucket.object_uri(name), owner.id);
            return Err(Error::new(ErrorCode::WrongOwner, text));
        }
        let build = Arc::new(Build {
            progress: Arc::default(),
            outcome: watch::Sender::new(None),
            stop: self.0.lifecycle.token().child_token(),
            asked: Mutex::new(Instant::now()),
        });
        {
            let mut table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.retain(|_, b| b.outcome.borrow().is_none() || b.idle() < REMEMBERED);
            if table.contains_key(&request.id) {
                return Ok(());
            }
            table.insert(request.id.clone(), build.clone());
        }
        let (builds, info) = (self.clone(), info.clone());
        self.0.lifecycle.spawn(lease(build.clone()));
        self.0.lifecycle.spawn(async move {
            let id = request.id.clone();
            let body = pack::stream(pack::Pack {
                objects: builds.0.objects.clone(),
                peer: builds.0.peer.clone(),
                progress: build.progress.clone(),
                stop: build.stop.clone(),
                request: Arc::new(request.clone()),
            });
            let put = PutRequest::new(body);
            let done = match builds.0.objects.put(&info, request.shard.as_str(), put).await {
                Ok(meta) => BuildOutcome::Done {
                    size: meta.as_ref().map_or(0, |m| m.size),
                    checksum: meta.and_then(|m| m.checksum),
                },
                Err(e) => BuildOutcome::Failed(e),
            };
            tracing::debug!(build = id, shard = %request.shard, outcome = ?done, "build ended");
            build.outcome.send_replace(Some(done));
            build.stop.cancel();
        });
        Ok(())
    }

    /// How far a build is; an answer that is worth waiting a moment for is waited for.
    pub(crate) async fn wait(&self, id: &str) -> Result<BuildStatus> {
        let build = self.find(id)?;
        *build.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        build.ended(WAIT).await;
        Ok(build.status())
    }

    /// Stops a build. When this returns it has ended: its shard is whole, or not there.
    pub(crate) async fn stop(&self, id: &str) -> Result<BuildStatus> {
        let build = self.find(id)?;
        build.stop.cancel();
        build.ended(LEASE * 2).await;
        Ok(build.status())
    }

    fn find(&self, id: &str) -> Result<Arc<Build>> {
        let table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(id).cloned().ok_or_else(|| {
            Error::new(ErrorCode::JobNotFound, format!("no shard is built here as {id}"))
        })
    }
}

/// Stops a build that nobody asks about.
async fn lease(build: Arc<Build>) {
    while build.idle() < LEASE {
        tokio::select! {
            () = tokio::time::sleep(LEASE.saturating_sub(build.idle())) => {}
            () = build.stop.cancelled() => return,
        }
    }
    build.stop.cancel();
}
