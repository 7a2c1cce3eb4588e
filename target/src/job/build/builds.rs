//! Shards being built on this target, for a job on this or another target, and built shards that
//! are not published yet. A build whose status is no longer requested is given up, so a job that
//! ended abnormally leaves nothing behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_client::PeerClient;
use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::shard_build::{BuildOutcome, BuildRequest, BuildStatus, HoldRequest};
use forebay_core::upload::{ASIDE, ChosenPart};
use forebay_core::{Error, ErrorCode, Result, placement};
use forebay_node::lifecycle::Lifecycle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::pack::{self, Progress};
use crate::object::{Completion, ObjectService, PartRequest, PutRequest, UploadOptions};

/// How long a status request waits for the end of a build.
const WAIT: Duration = Duration::from_millis(500);
/// A build is given up if its status was not requested for this time.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// How long the result of a build is kept for callers that missed the reply.
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
    job: String,
    progress: Arc<Progress>,
    outcome: watch::Sender<Option<BuildOutcome>>,
    stop: CancellationToken,
    /// Cancelled at the end: the shard is an object, or does not exist.
    over: CancellationToken,
    /// Notified to publish a built shard.
    publish: Notify,
    asked: Mutex<Instant>,
}

impl Build {
    fn status(&self) -> BuildStatus {
        let (files, bytes) = self.progress.read();
        BuildStatus { files, bytes, outcome: self.outcome.borrow().clone() }
    }

    fn touch(&self) {
        *self.asked.locked() = Instant::now();
    }

    fn idle(&self) -> Duration {
        self.asked.locked().elapsed()
    }

    /// Waits for the end, at most for `at_most`.
    async fn ended(&self, at_most: Duration) {
        let mut outcome = self.outcome.subscribe();
        let _ = tokio::time::timeout(at_most, outcome.wait_for(Option::is_some)).await;
    }
}

impl Builds {
    pub(crate) fn new(objects: ObjectService, peer: PeerClient, lifecycle: Lifecycle) -> Self {
        Self(Arc::new(Inner { objects, peer, lifecycle, table: Mutex::default() }))
    }

    /// Starts a build. If a build has this id, it continues.
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
            job: request.job.clone(),
            progress: Arc::default(),
            publish: Notify::new(),
            outcome: watch::Sender::new(None),
            stop: self.0.lifecycle.token().child_token(),
            over: CancellationToken::new(),
            asked: Mutex::new(Instant::now()),
        });
        {
            let mut table = self.0.table.locked();
            table.retain(|_, b| b.outcome.borrow().is_none() || b.idle() < REMEMBERED);
            if table.contains_key(&request.id) {
                return Ok(());
            }
            table.insert(request.id.clone(), build.clone());
        }
        let (builds, info) = (self.clone(), info.clone());
        self.0.lifecycle.spawn(lease(build.clone()));
        self.0.lifecycle.spawn(async move {
            builds.run(&info, request, &build).await;
            build.over.cancel();
        });
        Ok(())
    }

    async fn run(&self, info: &BucketInfo, request: BuildRequest, build: &Build) {
        let (objects, name) = (&self.0.objects, request.shard.clone());
        let (id, aside) = (request.id.clone(), request.aside);
        let body = pack::stream(pack::Pack {
            objects: objects.clone(),
            peer: self.0.peer.clone(),
            progress: build.progress.clone(),
            stop: build.stop.clone(),
            request: Arc::new(request),
        });
        let tell = |done: Result<BuildOutcome>| {
            let done = done.unwrap_or_else(BuildOutcome::Failed);
            tracing::debug!(build = id, shard = %name, outcome = ?done, "build ended");
            build.outcome.send_replace(Some(done));
        };
        if !aside {
            let done = objects.writes().put(info, name.as_str(), PutRequest::new(body)).await;
            tell(done.map(|meta| BuildOutcome::Done {
                size: meta.as_ref().map_or(0, |m| m.size),
                checksum: meta.and_then(|m| m.checksum),
            }));
            return;
        }
        let notes = [(ASIDE.to_owned(), id.clone())].into();
        let options = UploadOptions { notes, ..UploadOptions::default() };
        let upload = match objects.uploads().begin(info, name.as_str(), options).await {
            Ok(upload) => upload,
            Err(e) => return tell(Err(e)),
        };
        let part = PartRequest { body, len: None, announced: None, at_end: None };
        let part = objects.uploads().put_part(info, name.as_str(), &upload, 1, part).await;
        let whole = part.is_ok();
        tell(part.map(|part| BuildOutcome::Done { size: part.size, checksum: None }));
        let wanted = whole
            && tokio::select! {
                biased;
                () = build.publish.notified() => true,
                () = build.stop.cancelled() => false,
            };
        if wanted {
            let parts = vec![ChosenPart { number: 1, etag: String::new() }];
            let all = Completion { parts, all: true, ..Completion::default() };
            let done = objects.uploads().complete(info, name.as_str(), &upload, all).await;
            let failed = done.is_err();
            tell(done.map(|m| BuildOutcome::Done { size: m.size, checksum: m.checksum }));
            if !failed {
                return;
            }
        } else if whole {
            tell(Err(super::stopped()));
        }
        if let Err(e) = objects.uploads().abort(info, name.as_str(), &upload).await {
            tracing::debug!(build = id, error = %e, "what lay aside goes later");
        }
    }

    /// Publishes a built shard as an object. The build's next status has the result.
    pub(crate) fn publish(&self, id: &str) -> Result<BuildStatus> {
        let build = self.find(id)?;
        build.touch();
        if build.over.is_cancelled() {
            // A repeated request, or the build was given up.
            let status = build.status();
            let done = matches!(status.outcome, Some(BuildOutcome::Done { .. }));
            return if done { Ok(status) } else { Err(not_here(id)) };
        }
        build.outcome.send_replace(None);
        build.publish.notify_one();
        Ok(build.status())
    }

    /// Keeps or gives up all builds of a job on this target.
    pub(crate) fn hold(&self, request: &HoldRequest) {
        let table = self.0.table.locked();
        for build in table.values().filter(|b| b.job == request.job) {
            if request.keep { build.touch() } else { build.stop.cancel() }
        }
    }

    /// The status of a build. Waits up to 500 ms for the end of the build.
    pub(crate) async fn wait(&self, id: &str) -> Result<BuildStatus> {
        let build = self.find(id)?;
        build.touch();
        build.ended(WAIT).await;
        Ok(build.status())
    }

    /// Stops a build and waits for its end, at most 30 s: its shard is complete, or does not exist.
    pub(crate) async fn stop(&self, id: &str) -> Result<BuildStatus> {
        let build = self.find(id)?;
        build.stop.cancel();
        let _ = tokio::time::timeout(LEASE * 2, build.over.cancelled()).await;
        Ok(build.status())
    }

    fn find(&self, id: &str) -> Result<Arc<Build>> {
        let table = self.0.table.locked();
        table.get(id).cloned().ok_or_else(|| not_here(id))
    }
}

fn not_here(id: &str) -> Error {
    Error::new(ErrorCode::JobNotFound, format!("no shard is built here as {id}"))
}

/// Stops a build whose status is no longer requested.
async fn lease(build: Arc<Build>) {
    while build.idle() < LEASE {
        tokio::select! {
            () = tokio::time::sleep(LEASE.saturating_sub(build.idle())) => {}
            () = build.over.cancelled() => return,
        }
    }
    build.stop.cancel();
}
