//! Having shards built by their owners: asked, watched, asked again when an owner is lost, and told
//! to stop when the job is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_client::PeerClient;
use forebay_core::ishard::{
    BuildMember, BuildOutcome, BuildRequest, BuildStatus, IshardSpec, ManifestLine, Plan,
};
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, NodeId, ObjectName, Result, placement};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::Job;
use super::stopped;
use crate::object::ObjectService;

/// Path of a target that builds shards.
const BUILD: &str = "/internal/v1/shard/build";
/// Shards that one owner builds at once.
const AT_ONCE: usize = 2;
/// How long a shard is tried again without progress.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a shard is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Failed questions in a row after which an owner counts as lost.
const SILENCES: u32 = 5;

/// The owners of a job's shards.
pub(super) struct Owners<'a> {
    objects: &'a ObjectService,
    peer: PeerClient,
    job: &'a Job,
    spec: &'a IshardSpec,
    halt: &'a CancellationToken,
    permits: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(
        objects: &'a ObjectService,
        peer: &PeerClient,
        job: &'a Job,
        spec: &'a IshardSpec,
        halt: &'a CancellationToken,
    ) -> Self {
        Self { objects, peer: peer.clone(), job, spec, halt, permits: Mutex::default() }
    }

    /// Has one shard built, by whoever owns it then. Failures that may pass are tried again.
    pub(super) async fn build(&self, plan: &Plan, index: usize) -> Result<ManifestLine> {
        let shard = plan.shard(index);
        // What came before is no progress when it comes again.
        let (mut best, mut last_progress) = (0, Instant::now());
        for attempt in 0.. {
            if self.halt.is_cancelled() {
                return Err(stopped());
            }
            let mut counted = (0, 0);
            let tried = self.try_build(plan, index, attempt, &mut counted).await;
            let e = match tried {
                Ok((size, checksum)) => {
                    return Ok(ManifestLine {
                        shard: shard.name.to_owned(),
                        samples: shard.samples,
                        files: shard.files,
                        bytes: shard.bytes,
                        size,
                        checksum,
                    });
                }
                Err(e) => e,
            };
            self.job.uncount(counted.0, counted.1);
            if counted.0 > best {
                (best, last_progress) = (counted.0, Instant::now());
            }
            if !e.code.is_transient() || last_progress.elapsed() >= PATIENCE {
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

    /// One try; `counted` are the files and bytes that it added to the job's progress.
    async fn try_build(
        &self,
        plan: &Plan,
        index: usize,
        attempt: u32,
        counted: &mut (u64, u64),
    ) -> Result<(u64, Option<forebay_core::checksum::Checksum>)> {
        let name = plan.shard(index).name;
        let owner = self.owner(name)?;
        let _permit = self.permit(&owner).await?;
        let request = BuildRequest {
            id: format!("{}-{index}-{attempt}", self.job.spec.id),
            source: self.spec.source.clone(),
            destination: self.spec.destination.clone(),
            shard: ObjectName::new(name)?,
            ext: self.spec.ext.clone(),
            members: members(plan, index)?,
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
        if watched.is_err() {
            // Nobody waits for it any more: it must not become visible later.
            let told = self.peer.with_idle_timeout(PATIENCE).delete(&owner.url, &path).await;
            if let Err(e) = told {
                tracing::debug!(target = %owner.id, error = %e, "a build was not told to stop");
            }
        }
        watched
    }

    async fn watch(
        &self,
        owner: &Node,
        path: &str,
        counted: &mut (u64, u64),
    ) -> Result<(u64, Option<forebay_core::checksum::Checksum>)> {
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

    fn owner(&self, shard: &str) -> Result<Node> {
        let state = self.objects.state();
        let info = state.bucket(&self.spec.destination)?;
        placement::owner(&state, info, shard).cloned()
    }

    async fn permit(&self, owner: &Node) -> Result<OwnedSemaphorePermit> {
        let permits = {
            let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(AT_ONCE));
            permits.entry(owner.id.clone()).or_insert_with(new).clone()
        };
        tokio::select! {
            permit = permits.acquire_owned() => permit.map_err(|_| stopped()),
            () = self.halt.cancelled() => Err(stopped()),
        }
    }
}

fn members(plan: &Plan, index: usize) -> Result<Vec<BuildMember>> {
    plan.files(index)
        .map(|f| Ok(BuildMember(ObjectName::new(f.source)?, f.member, f.size)))
        .collect()
}
