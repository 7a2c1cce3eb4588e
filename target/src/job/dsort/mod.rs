//! The job that writes the records of shards into other shards, in another order. One target runs
//! it: it reads the indexes of the input, plans, and checks everything. Only then the owner of each
//! output shard packs it ([`super::build`]) from ranges of the input shards. All output shards stay
//! unpublished until the last one is complete; then they are published. Until then the job has no
//! visible result, and it leaves nothing behind when it is stopped or fails.

mod key_map;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forebay_client::Client;
use forebay_clouds::egress::WebRules;
use forebay_core::dsort::{self, Algorithm, DsortReport, DsortSpec, Overwrite, Phase, Plan};
use forebay_core::job::Task;
use forebay_core::shard_build::BuildMember;
use forebay_core::{Error, NodeId, ObjectName, Result, placement};
use forebay_node::clock::unix_ns;
use forebay_node::machine::machine;
use futures::{FutureExt, StreamExt};

use super::build::{Built, Contents, Order, Owners, Wanted, writer};
use super::cluster_client::cluster_client;
use super::run::{Job, JobRun, stopped};
use crate::object::ObjectService;

/// Shards in progress for each live target, beyond those that it builds at once.
const QUEUED_SHARDS_PER_TARGET: usize = 2;
/// Shards published at once.
const PUBLISHING: usize = 16;

pub(super) struct Dsort {
    pub(super) objects: ObjectService,
    /// Destinations of URLs of callers.
    pub(super) web: WebRules,
}

#[async_trait]
impl Job for Dsort {
    /// Runs the job to its end, or until it is stopped: then none of its work continues when this
    /// returns.
    async fn run(&self, job: &JobRun) -> Result<()> {
        let Task::Dsort(spec) = &job.spec.task else {
            return Err(Error::invalid("a job that sorts shards needs its spec"));
        };
        run(&self.objects, &self.web, job, spec).await
    }

    fn ends_itself(&self) -> bool {
        true
    }
}

/// Changes the job's report: its phases, and the part of each target.
fn report(job: &JobRun, change: impl FnOnce(&mut DsortReport)) {
    job.update(|status| change(status.dsort.get_or_insert_default()));
}

async fn run(
    objects: &ObjectService,
    web: &WebRules,
    job: &JobRun,
    spec: &DsortSpec,
) -> Result<()> {
    report(job, |report| {
        report.description.clone_from(&spec.description);
        let state = objects.state();
        let targets = state.alive_targets().map(|n| (n.id.clone(), Default::default()));
        report.targets = targets.collect();
    });
    let client = cluster_client(objects)?;
    let plan = tokio::select! {
        plan = prepare(objects, &client, web, job, spec) => Arc::new(plan?),
        () = job.stop.cancelled() => return Err(stopped()),
    };
    plan.notes.iter().for_each(|note| job.note(note.clone()));
    if spec.dry_run {
        report(job, |r| r.creation = Phase { started_ns: unix_ns(), ended_ns: unix_ns() });
        let t = &plan.totals;
        job.note(format!("dry run: {} shards of {} records, none written", t.shards, t.records));
        return Ok(());
    }
    job.expect_totals(plan.totals.members, plan.totals.bytes);
    create(objects, job, spec, &plan).await
}

/// Makes all checks that can reject the job: nothing is written before this has succeeded.
async fn prepare(
    objects: &ObjectService,
    client: &Client,
    web: &WebRules,
    job: &JobRun,
    spec: &DsortSpec,
) -> Result<Plan> {
    report(job, |report| report.extraction.started_ns = unix_ns());
    let mut notes = Vec::new();
    let map = match &spec.key_map {
        Some(source) => {
            let text = key_map::load(objects, client, web, source).await?;
            let (separator, reaction) = (source.separator.clone(), spec.on.ekm_malformed_line);
            let parse = move || {
                let map = dsort::KeyMap::parse(&text, &separator, reaction, &mut notes)?;
                Ok((map, notes))
            };
            let (map, warnings) = blocking(parse).await?;
            notes = warnings;
            Some(map)
        }
        None => None,
    };
    let names = client.dsort_inputs(spec).await?;
    report(job, |report| report.inputs = names.len() as u64);
    let machine = machine();
    let memory = match machine.mem_used + machine.mem_avail {
        // The size of the memory is unknown.
        0 => u64::MAX,
        total => total,
    };
    let looked = |seen: forebay_client::LookedInto<'_>| {
        let owner = owner_id(objects, &spec.source, seen.shard);
        report(job, |report| {
            let part = report.targets.entry(owner).or_default();
            part.inputs += 1;
            part.input_records += seen.added.records;
            part.input_bytes += seen.added.bytes;
            part.extraction.add(millis(seen.took), seen.added.bytes);
        });
    };
    let gathered = client.gather_records(spec, &names, memory, looked).await?;
    drop(names);
    notes.extend(gathered.warnings);
    report(job, |report| {
        report.extraction.ended_ns = unix_ns();
        report.sorting.started_ns = unix_ns();
    });
    let planning = spec.clone();
    let plan =
        move || dsort::plan(&planning, map.as_ref(), gathered.records, gathered.inputs, notes);
    let plan = blocking(plan).await?;
    writer(&plan.ext)?;
    objects.state().bucket(&spec.destination)?;
    if spec.overwrite == Overwrite::Never {
        let outputs = plan.outputs();
        let free = |name: &str, _| plan.refuse(spec, &outputs, name);
        client.list_each(&spec.destination, &plan.output_prefix(), free).await?;
    }
    report(job, |report| {
        report.sorting.ended_ns = unix_ns();
        for shard in plan.shards() {
            let owner = owner_id(objects, &spec.destination, shard.name);
            report.targets.entry(owner).or_default().to_create += 1;
        }
    });
    Ok(plan)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::internal(format!("planning failed: {e}")))?
}

/// The owner of a name; this target if it has no owner at the moment.
fn owner_id(objects: &ObjectService, bucket: &forebay_core::Bucket, name: &str) -> NodeId {
    let state = objects.state();
    let owner = state.bucket(bucket).and_then(|info| placement::owner(&state, info, name));
    owner.map_or_else(|_| objects.me().clone(), |node| node.id.clone())
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// Has all shards packed, and publishes them when the last of them is complete.
async fn create(
    objects: &ObjectService,
    job: &JobRun,
    spec: &DsortSpec,
    plan: &Plan,
) -> Result<()> {
    report(job, |report| report.creation.started_ns = unix_ns());
    let halt = job.stop.child_token();
    let mut order = Order::new(&spec.source, &spec.destination, &plan.ext);
    (order.from_shards, order.aside) = (true, true);
    if spec.create_limit > 0 {
        order.builds_per_owner = spec.create_limit as usize;
    }
    if spec.timeout_ms > 0 {
        order.stall_timeout = Duration::from_millis(spec.timeout_ms);
    }
    let targets = objects.state().alive_targets().count().max(1);
    let ahead = (order.builds_per_owner + QUEUED_SHARDS_PER_TARGET) * targets;
    let owners = Owners::new(objects, job, order, &halt);
    let work = async {
        if spec.algorithm != Algorithm::None {
            let packed: Vec<String> = plan.packed_inputs().map(str::to_owned).collect();
            let unpack = packed.into_iter().map(|name| {
                let owners = &owners;
                async move { owners.unpack(&name).await }
            });
            futures::stream::iter(unpack).buffer_unordered(ahead).collect::<()>().await;
        }
        let built = build_all(job, plan, &owners, ahead, || halt.cancel()).await?;
        // From here on the job succeeds, or reports the shards that could not be published.
        publish_all(job, plan, built, &owners.unstoppable()).await
    };
    let done = tokio::select! {
        done = work => done,
        () = owners.hold() => Err(Error::internal("a job stopped to hold its shards")),
    };
    // Published shards do not belong to the job any more.
    owners.release().await;
    done
}

/// Builds the shards in their order. Ends at the first final failure, after all builds in progress
/// have ended.
async fn build_all(
    job: &JobRun,
    plan: &Plan,
    owners: &Owners<'_>,
    ahead: usize,
    halt: impl Fn(),
) -> Result<Vec<Built>> {
    let mut results = futures::stream::iter(0..plan.len())
        .map(|index| async move {
            let started = Instant::now();
            let contents = || contents(plan, index);
            let wanted = Wanted { index, name: plan.shard(index).name, contents: &contents };
            let built = owners.build(&wanted).await?;
            report(job, |report| {
                let part = report.targets.entry(built.owner.id.clone()).or_default();
                part.created += 1;
                part.created_bytes += built.size;
                part.creation.add(millis(started.elapsed()), built.size);
            });
            Ok((index, built))
        })
        .buffer_unordered(ahead);
    let (mut all, mut failure) = (Vec::with_capacity(plan.len()), None);
    while let Some(result) = results.next().await {
        match result {
            Ok(built) => all.push(built),
            Err(e) => {
                halt();
                failure.get_or_insert(e);
            }
        }
    }
    drop(results);
    match failure {
        _ if job.stop.is_cancelled() => Err(stopped()),
        Some(e) => Err(e),
        None => {
            all.sort_unstable_by_key(|(index, _)| *index);
            Ok(all.into_iter().map(|(_, built)| built).collect())
        }
    }
}

/// Publishes all shards. A failure of one does not stop the others.
async fn publish_all(
    job: &JobRun,
    plan: &Plan,
    built: Vec<Built>,
    owners: &Owners<'_>,
) -> Result<()> {
    let mut results = futures::stream::iter(built.into_iter().enumerate())
        .map(|(index, built)| {
            async move {
                let contents = || contents(plan, index);
                let wanted = Wanted { index, name: plan.shard(index).name, contents: &contents };
                owners.publish(&wanted, built).await
            }
            .boxed()
        })
        .buffer_unordered(PUBLISHING);
    let (mut shards, mut bytes, mut failed) = (0u64, 0, Vec::new());
    while let Some(result) = results.next().await {
        match result {
            Ok(built) => {
                shards += 1;
                bytes += built.size;
            }
            Err(e) => failed.push(e),
        }
    }
    drop(results);
    report(job, |report| report.creation.ended_ns = unix_ns());
    job.note(format!("wrote {shards} shards, {bytes} bytes"));
    let count = failed.len();
    match failed.into_iter().next() {
        None => Ok(()),
        Some(first) => {
            let text = format!("{count} shards were not published: {}", first.message);
            Err(Error { message: text, ..first })
        }
    }
}

fn contents(plan: &Plan, index: usize) -> Result<Contents> {
    let mut contents = Contents::default();
    for m in plan.members(index) {
        let member = BuildMember(ObjectName::new(m.source)?, m.name.to_owned(), m.size);
        contents.members.push(member);
        contents.stats.push(m.stat);
    }
    Ok(contents)
}
