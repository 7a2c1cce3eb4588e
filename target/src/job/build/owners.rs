//! Lets the owners of shards build them. A job starts and polls the builds, repeats them when an
//! owner is lost, stops them when the job is stopped, and publishes built shards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_client::PeerClient;
use forebay_core::checksum::Checksum;
use forebay_core::locks::MutexExt;
use forebay_core::shard::Stat;
use forebay_core::shard_build::{
    BuildMember, BuildOutcome, BuildRequest, BuildStatus, HoldRequest, UnpackRequest,
};
use forebay_core::state::Node;
use forebay_core::{Bucket, Error, ErrorCode, NodeId, ObjectName, Result, placement};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::run::JobRun;
use super::builds::LEASE;
use super::stopped;
use crate::object::ObjectService;

/// Paths of a target that builds shards.
const BUILD: &str = "/internal/v1/shard/build";
const HOLD: &str = "/internal/v1/shard/hold";
const UNPACK: &str = "/internal/v1/shard/unpack";
/// Timeout for unpacking a shard.
const UNPACKING: Duration = Duration::from_secs(600);
/// Shards that one owner builds at once, unless the job sets it.
const BUILDS_PER_OWNER: usize = 2;
/// How long a shard is retried without progress, unless the job sets it.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before a shard is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Failed status requests in a row after which an owner counts as lost.
const SILENCES: u32 = 5;

/// The settings that all shards of a job share.
#[derive(Clone)]
pub(in super::super) struct Order {
    pub(in super::super) source: Bucket,
    pub(in super::super) destination: Bucket,
    pub(in super::super) ext: String,
    /// The members are members of other shards.
    pub(in super::super) from_shards: bool,
    /// They are published when all of them are built.
    pub(in super::super) aside: bool,
    pub(in super::super) builds_per_owner: usize,
    pub(in super::super) stall_timeout: Duration,
}

impl Order {
    /// Shards of whole objects; each is published as soon as it is built.
    pub(in super::super) fn new(source: &Bucket, destination: &Bucket, ext: &str) -> Self {
        Self {
            source: source.clone(),
            destination: destination.clone(),
            ext: ext.to_owned(),
            from_shards: false,
            aside: false,
            builds_per_owner: BUILDS_PER_OWNER,
            stall_timeout: STALL_TIMEOUT,
        }
    }
}

/// The members of a shard.
#[derive(Default)]
pub(in super::super) struct Contents {
    pub(in super::super) members: Vec<BuildMember>,
    /// Time and mode of each, if they are members of other shards.
    pub(in super::super) stats: Vec<Stat>,
}

/// A shard that is to be built.
pub(in super::super) struct Wanted<'a> {
    pub(in super::super) index: usize,
    pub(in super::super) name: &'a str,
    /// Called for every attempt, because the contents are large.
    pub(in super::super) contents: &'a (dyn Fn() -> Result<Contents> + Sync),
}

/// A shard that was built.
#[derive(Clone)]
pub(in super::super) struct Built {
    pub(in super::super) size: u64,
    pub(in super::super) checksum: Option<Checksum>,
    pub(in super::super) owner: Node,
    /// The path of its build.
    path: String,
}

/// The owners of a job's shards.
pub(in super::super) struct Owners<'a> {
    objects: &'a ObjectService,
    peer: PeerClient,
    job: &'a JobRun,
    order: Order,
    halt: CancellationToken,
    permits: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
}

impl<'a> Owners<'a> {
    pub(in super::super) fn new(
        objects: &'a ObjectService,
        job: &'a JobRun,
        order: Order,
        halt: &CancellationToken,
    ) -> Self {
        let (peer, halt) = (objects.peer().clone(), halt.clone());
        Self { objects, peer, job, order, halt, permits: Mutex::default() }
    }

    /// The same owners, for work that is completed even if the job is stopped.
    pub(in super::super) fn unstoppable(&self) -> Self {
        let order = self.order.clone();
        Self::new(self.objects, self.job, order, &CancellationToken::new())
    }

    /// Has the current owner build one shard. Transient failures are retried.
    pub(in super::super) async fn build(&self, shard: &Wanted<'_>) -> Result<Built> {
        // Repeated work is no progress.
        let (mut best, mut last_progress) = (0, Instant::now());
        for attempt in 0.. {
            if self.halt.is_cancelled() {
                return Err(stopped());
            }
            let mut counted = (0, 0);
            let e = match self.try_build(shard, attempt, &mut counted).await {
                Ok(built) => return Ok(built),
                Err(e) => e,
            };
            self.job.uncount(counted.0, counted.1);
            if counted.0 > best {
                (best, last_progress) = (counted.0, Instant::now());
            }
            if !e.code.is_transient() || last_progress.elapsed() >= self.order.stall_timeout {
                let message = format!("shard {}: {}", shard.name, e.message);
                return Err(Error { message, ..e });
            }
            tracing::info!(shard = shard.name, error = %e, "the shard is tried again");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.halt.cancelled() => return Err(stopped()),
            }
        }
        Err(stopped())
    }

    /// One attempt; `counted` are the files and bytes that it added to the job's progress.
    async fn try_build(
        &self,
        shard: &Wanted<'_>,
        attempt: u32,
        counted: &mut (u64, u64),
    ) -> Result<Built> {
        let owner = self.owner(shard.name)?;
        let _permit = self.permit(&owner).await?;
        let number: u32 = rand::random();
        let Contents { members, stats } = (shard.contents)()?;
        let request = BuildRequest {
            id: format!("{}-{}-{attempt}-{number:08x}", self.job.spec.id, shard.index),
            job: self.job.spec.id.clone(),
            source: self.order.source.clone(),
            destination: self.order.destination.clone(),
            shard: ObjectName::new(shard.name)?,
            ext: self.order.ext.clone(),
            members,
            stats,
            from_shards: self.order.from_shards,
            aside: self.order.aside,
        };
        let path = format!("{BUILD}/{}", request.id);
        let built = async {
            let () = self.peer.post_json(&owner.url, BUILD, &request).await?;
            drop(request);
            self.watch(&owner, &path, counted).await
        };
        let watched = tokio::select! {
            built = built => built,
            () = self.halt.cancelled() => Err(stopped()),
        };
        match watched {
            Ok((size, checksum)) => Ok(Built { size, checksum, owner, path }),
            Err(e) => {
                // The job does not wait for it any more, so it must not be published later.
                self.drop_build(&owner, &path).await;
                Err(e)
            }
        }
    }

    async fn drop_build(&self, owner: &Node, path: &str) {
        let sent = self.peer.with_idle_timeout(STALL_TIMEOUT).delete(&owner.url, path).await;
        if let Err(e) = sent {
            tracing::debug!(target = %owner.id, error = %e, "could not stop a build");
        }
    }

    async fn watch(
        &self,
        owner: &Node,
        path: &str,
        counted: &mut (u64, u64),
    ) -> Result<(u64, Option<Checksum>)> {
        let mut silences = 0;
        loop {
            let status: BuildStatus = match self.peer.get_json(&owner.url, path).await {
                Ok(status) => status,
                Err(e) => {
                    let e = Error::from(e);
                    silences += 1;
                    if e.code == ErrorCode::JobNotFound || silences >= SILENCES {
                        let text = format!("target {} lost it: {}", owner.id, e.message);
                        return Err(Error::unavailable(text));
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            silences = 0;
            self.job.count(status.files - counted.0, status.bytes - counted.1);
            *counted = (status.files, status.bytes);
            match status.outcome {
                Some(BuildOutcome::Done { size, checksum }) => return Ok((size, checksum)),
                Some(BuildOutcome::Failed(e)) => return Err(e),
                None => {}
            }
        }
    }

    /// Publishes a built shard. If its owner was lost, the shard is built again first.
    pub(in super::super) async fn publish(
        &self,
        shard: &Wanted<'_>,
        built: Built,
    ) -> Result<Built> {
        let (started, mut built) = (Instant::now(), built);
        loop {
            let e = match self.try_publish(&built).await {
                Ok((size, checksum)) => return Ok(Built { size, checksum, ..built }),
                Err(e) => e,
            };
            if !e.code.is_transient() || started.elapsed() >= self.order.stall_timeout {
                let message = format!("shard {}: {}", shard.name, e.message);
                return Err(Error { message, ..e });
            }
            tracing::info!(shard = shard.name, error = %e, "the shard is built again");
            self.drop_build(&built.owner, &built.path).await;
            built = self.build(shard).await?;
        }
    }

    async fn try_publish(&self, built: &Built) -> Result<(u64, Option<Checksum>)> {
        let path = format!("{}/publish", built.path);
        let answer = self.peer.post_json(&built.owner.url, &path, &()).await;
        let status: BuildStatus = answer.map_err(|e| match Error::from(e) {
            e if e.code == ErrorCode::JobNotFound => Error::unavailable(e.message),
            e => e,
        })?;
        // Its files are counted already.
        let mut counted = (status.files, status.bytes);
        self.watch(&built.owner, &built.path, &mut counted).await
    }

    /// Has an input shard unpacked by its owner, if it is a compressed TAR. If that fails its
    /// members are still readable, only slowly.
    pub(in super::super) async fn unpack(&self, name: &str) {
        let unpacked = async {
            let shard = ObjectName::new(name)?;
            let owner = {
                let state = self.objects.state();
                let info = state.bucket(&self.order.source)?;
                placement::owner(&state, info, name)?.clone()
            };
            let (job, bucket) = (self.job.spec.id.clone(), self.order.source.clone());
            let request = UnpackRequest { job, bucket, shard };
            let peer = self.peer.with_idle_timeout(UNPACKING);
            let () = peer.post_json(&owner.url, UNPACK, &request).await?;
            Ok::<_, Error>(())
        };
        let done = tokio::select! {
            done = unpacked => done,
            () = self.halt.cancelled() => Ok(()),
        };
        if let Err(e) = done {
            tracing::warn!(shard = name, error = %e, "a shard is not unpacked; it is read slowly");
        }
    }

    /// Keeps the unpublished shards of this job from being given up, as long as this is polled.
    pub(in super::super) async fn hold(&self) {
        loop {
            tokio::time::sleep(LEASE / 4).await;
            self.tell_all(true).await;
        }
    }

    /// Gives up all unpublished and unfinished shards of this job.
    pub(in super::super) async fn release(&self) {
        self.tell_all(false).await;
    }

    async fn tell_all(&self, keep: bool) {
        let request = HoldRequest { job: self.job.spec.id.clone(), keep };
        let state = self.objects.state();
        let urls: Vec<String> = state.alive_targets().map(|node| node.url.clone()).collect();
        let sent = urls.into_iter().map(|url| {
            let (peer, request) = (self.peer.clone(), request.clone());
            async move {
                if let Err(e) = peer.post_json::<_, ()>(&url, HOLD, &request).await {
                    tracing::debug!(url, error = %e, "could not notify a target");
                }
            }
        });
        futures::future::join_all(sent).await;
    }

    /// The target that owns a shard of this name now.
    pub(in super::super) fn owner(&self, shard: &str) -> Result<Node> {
        let state = self.objects.state();
        let info = state.bucket(&self.order.destination)?;
        placement::owner(&state, info, shard).cloned()
    }

    async fn permit(&self, owner: &Node) -> Result<OwnedSemaphorePermit> {
        let permits = {
            let mut permits = self.permits.locked();
            let new = || Arc::new(Semaphore::new(self.order.builds_per_owner));
            permits.entry(owner.id.clone()).or_insert_with(new).clone()
        };
        tokio::select! {
            permit = permits.acquire_owned() => permit.map_err(|_| stopped()),
            () = self.halt.cancelled() => Err(stopped()),
        }
    }
}
