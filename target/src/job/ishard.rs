//! The job that packs objects into shards. One target runs it: it lists the source, plans, and
//! checks everything. Only then the owner of each shard builds it ([`super::build`]), several at a
//! time. The manifest is written last.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_client::Client;
use forebay_core::ishard::{self, IshardSpec, Listing, ManifestLine, Plan};
use forebay_core::job::Task;
use forebay_core::shard_build::BuildMember;
use forebay_core::{Error, ErrorCode, ObjectName, Result};
use futures::StreamExt;

use super::build::{Contents, Order, Owners, Wanted, writer};
use super::cluster_client::cluster_client;
use super::run::{Job, JobRun, stopped};
use crate::object::ObjectService;

/// Shards in progress for each live target; an owner builds two of them at once.
const QUEUED_SHARDS_PER_TARGET: usize = 4;
/// How long a new bucket may take to become known on this target.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Ishard {
    pub(super) objects: ObjectService,
}

#[async_trait]
impl Job for Ishard {
    /// Runs the job to its end, or until it is stopped: then no build continues when this returns.
    async fn run(&self, job: &JobRun) -> Result<()> {
        let Task::Ishard(spec) = &job.spec.task else {
            return Err(Error::invalid("a job that packs shards needs its spec"));
        };
        run(&self.objects, job, spec).await
    }

    fn ends_itself(&self) -> bool {
        true
    }
}

async fn run(objects: &ObjectService, job: &JobRun, spec: &IshardSpec) -> Result<()> {
    writer(&spec.ext)?;
    let client = cluster_client(objects)?;
    let plan = tokio::select! {
        plan = prepare(objects, &client, spec) => plan?,
        () = job.stop.cancelled() => return Err(stopped()),
    };
    expect(job, &plan);
    let plan = Arc::new(plan);
    let lines = build(objects, job, spec, &plan).await?;
    let bytes: u64 = lines.iter().map(|line| line.size).sum();
    if let Some(name) = spec.manifest_name() {
        let text = manifest(&lines)?;
        tokio::select! {
            done = client.put(&spec.destination, &name, text, None) => drop(done?),
            () = job.stop.cancelled() => return Err(stopped()),
        }
    }
    job.note(format!("wrote {} shards, {bytes} bytes", lines.len()));
    Ok(())
}

/// Shows the plan in the status.
fn expect(job: &JobRun, plan: &Plan) {
    job.update(|status| {
        status.total_objects = plan.totals.files;
        status.total_bytes = plan.totals.bytes;
        status.notes.extend(plan.notes.iter().cloned());
    });
}

/// Makes all checks that can reject the job: nothing is written before this has succeeded.
async fn prepare(objects: &ObjectService, client: &Client, spec: &IshardSpec) -> Result<Plan> {
    let mut listing = Listing::default();
    client.list_each(&spec.source, &spec.prefix, |name, size| listing.push(name, size)).await?;
    let planning = spec.clone();
    let plan = tokio::task::spawn_blocking(move || ishard::plan(&planning, listing))
        .await
        .map_err(|e| Error::internal(format!("planning failed: {e}")))??;
    if client.map().await?.state.bucket(&spec.destination).is_err() {
        create_destination(objects, client, spec).await?;
    } else if spec.overwrite == ishard::Overwrite::Never {
        let prefix = plan.output_prefix(spec);
        let outputs = plan.outputs(spec);
        let free = |name: &str, _| outputs.refuse(spec, name);
        client.list_each(&spec.destination, &prefix, free).await?;
    }
    Ok(plan)
}

async fn create_destination(
    objects: &ObjectService,
    client: &Client,
    spec: &IshardSpec,
) -> Result<()> {
    let bucket = &spec.destination;
    if !spec.create {
        return Err(bucket.not_found());
    }
    match client.create_bucket(bucket, None).await {
        Err(e) if e.code() != ErrorCode::BucketExists => return Err(e.into()),
        _ => {}
    }
    let known = async {
        while objects.state().bucket(bucket).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(KNOWN_WITHIN, known).await.map_err(|_| {
        Error::unavailable(format!("the new bucket {bucket} did not become known in time"))
    })
}

/// Builds all shards. Ends at the first final failure, after all builds in progress have ended.
async fn build(
    objects: &ObjectService,
    job: &JobRun,
    spec: &IshardSpec,
    plan: &Arc<Plan>,
) -> Result<Vec<ManifestLine>> {
    let targets = objects.state().alive_targets().count().max(1);
    let halt = job.stop.child_token();
    let order = Order::new(&spec.source, &spec.destination, &spec.ext);
    let owners = Owners::new(objects, job, order, &halt);
    let mut results = futures::stream::iter(0..plan.len())
        .map(|index| {
            let owners = &owners;
            async move { line(owners, plan, index).await.map(|line| (index, line)) }
        })
        .buffer_unordered(QUEUED_SHARDS_PER_TARGET * targets);
    let mut lines = Vec::with_capacity(plan.len());
    let mut failure = None;
    while let Some(result) = results.next().await {
        match result {
            Ok(line) => lines.push(line),
            // Stops those in progress and waits for them; no other starts.
            Err(e) => {
                halt.cancel();
                failure.get_or_insert(e);
            }
        }
    }
    drop(results);
    match failure {
        _ if job.stop.is_cancelled() => Err(stopped()),
        Some(e) => Err(e),
        None => {
            lines.sort_unstable_by_key(|(index, _)| *index);
            Ok(lines.into_iter().map(|(_, line)| line).collect())
        }
    }
}

/// Builds one shard.
async fn line(owners: &Owners<'_>, plan: &Plan, index: usize) -> Result<ManifestLine> {
    let shard = plan.shard(index);
    let contents = || {
        let files = plan.files(index);
        let members = files.map(|f| Ok(BuildMember(ObjectName::new(f.source)?, f.member, f.size)));
        Ok(Contents { members: members.collect::<Result<_>>()?, ..Contents::default() })
    };
    let built = owners.build(&Wanted { index, name: shard.name, contents: &contents }).await?;
    Ok(ManifestLine {
        shard: shard.name.to_owned(),
        samples: shard.samples,
        files: shard.files,
        bytes: shard.bytes,
        size: built.size,
        checksum: built.checksum,
    })
}

/// One JSON document a line, in the order of the shards.
fn manifest(lines: &[ManifestLine]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)
            .map_err(|e| Error::internal(format!("the manifest cannot be written: {e}")))?;
        text.push(b'\n');
    }
    Ok(text)
}
