//! Prefetches on a real MinIO behind a slow proxy: they let foreground reads go first, report their
//! progress, and resume when nodes are killed.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_client::Client;
use forebay_core::Bucket;
use forebay_core::job::{JobKind, JobState, JobStatus, Selection};
use forebay_tests::cluster::cloud;
use forebay_tests::data::{assert_same, content};
use forebay_tests::faulty_origin::Spoil;
use forebay_tests::{Cluster, FaultyOrigin, Minio, Options, minio, wait};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_secs(60);
const SIZE: usize = 3000;

/// A cluster whose cloud delays every read.
struct Slow {
    cluster: Cluster,
    origin: FaultyOrigin,
    minio: Minio,
}

impl Slow {
    fn start(targets: u16, late: Duration) -> Option<Self> {
        let minio = Minio::start()?;
        let origin = FaultyOrigin::start(&minio.url);
        origin.every(Some((1, Spoil::Late(late))));
        let env = minio::env(&origin.url, "minioadmin", "minioadmin");
        let cluster = Cluster::start(Options { targets, env, ..Options::default() });
        Some(Self { cluster, origin, minio })
    }

    /// A bucket with this many objects, `p/0000` and on, that few calls at once read from.
    async fn bucket(&self, name: &str, objects: usize, calls: u32) -> Bucket {
        self.minio.create_bucket(name).await;
        for n in 0..objects {
            self.minio.put(name, &object(n), content(&object(n), SIZE)).await;
        }
        let (client, bucket) = (self.cluster.client(), cloud(name));
        client.head_bucket(&bucket).await.unwrap();
        client.set_bucket(&bucket, json!({"cloud": {"concurrency": calls}})).await.unwrap();
        bucket
    }

    async fn prefetch(&self, bucket: &Bucket, what: Selection) -> String {
        let client = self.cluster.client();
        client.start_job(JobKind::Prefetch, bucket, &what).await.unwrap()
    }

    /// How often each object was read.
    fn reads(&self) -> BTreeMap<String, usize> {
        let mut reads = BTreeMap::new();
        for seen in self.origin.seen("p/") {
            let path = seen.path.split('?').next().unwrap();
            *reads.entry(path[path.len() - 6..].to_owned()).or_default() += 1;
        }
        reads
    }

    async fn all_is_right(&self, bucket: &Bucket, objects: usize) {
        let client = self.cluster.client();
        for n in 0..objects {
            let got = client.get_bytes(bucket, &object(n), None).await.unwrap();
            assert_same(&object(n), &got, &content(&object(n), SIZE));
        }
    }
}

fn object(n: usize) -> String {
    format!("p/{n:04}")
}

async fn until(
    client: &Client,
    id: &str,
    what: &str,
    is: impl Fn(&JobStatus) -> bool,
) -> JobStatus {
    let is = &is;
    wait::until_async(what, TIMEOUT, || async move {
        client.job(id).await.is_ok_and(|status| is(&status))
    })
    .await;
    client.job(id).await.unwrap()
}

async fn done(client: &Client, id: &str) -> JobStatus {
    let status = until(client, id, "the prefetch is over", JobStatus::is_over).await;
    assert_eq!((status.state, status.errors), (JobState::Done, 0), "{:?}", status.messages);
    status
}

#[tokio::test]
async fn a_prefetch_goes_on_where_it_stopped_when_nodes_are_killed() {
    const OBJECTS: usize = 240;
    let Some(on) = Slow::start(2, Duration::from_millis(60)) else { return };
    let bucket = on.bucket("killed", OBJECTS, 6).await;
    let client = on.cluster.client();
    let id = on.prefetch(&bucket, Selection::Prefix("p/".into())).await;
    let total = |s: &JobStatus| s.total_objects == OBJECTS as u64;
    let status = until(&client, &id, "the listing is over and some is here", |s| {
        total(s) && s.objects >= 60
    })
    .await;
    assert_eq!(status.total_bytes, (OBJECTS * SIZE) as u64, "known long before the end");
    assert!(!status.is_over() && status.objects < 200);
    // Checkpoints are written once a second.
    let some = status.objects + 40;
    until(&client, &id, "some more is here", |s| s.objects >= some).await;

    let victim = on.cluster.targets[0].id.clone();
    let gateway = on.cluster.gateways[0].id.clone();
    on.cluster.kill9(&victim);
    on.cluster.kill9(&gateway);
    let before = on.reads();
    on.cluster.restart(&gateway);
    assert!(!client.job(&id).await.unwrap().is_over(), "a part of it is away, and not lost");
    on.cluster.restart(&victim);

    let status = done(&client, &id).await;
    assert_eq!(status.objects + status.present, OBJECTS as u64, "each is counted once");
    assert_eq!(status.total_objects, OBJECTS as u64);
    on.all_is_right(&bucket, OBJECTS).await;
    let reads = on.reads();
    assert_eq!(reads.len(), OBJECTS);
    let again: usize = reads.values().map(|n| n - 1).sum();
    assert!(again <= 6, "{again} objects were read again, what was under way at the most");
    assert!(before.len() >= 100, "{} of all had come before", before.len());
}

#[tokio::test]
async fn a_prefetch_of_a_template_outlives_the_sudden_death_of_everything() {
    const OBJECTS: usize = 120;
    let Some(mut on) = Slow::start(2, Duration::from_millis(60)) else { return };
    let bucket = on.bucket("all-killed", OBJECTS, 4).await;
    let template = Selection::Template(format!("p/{{0000..{:04}}}", OBJECTS - 1));
    let id = on.prefetch(&bucket, template).await;
    let client = on.cluster.client();
    let status = until(&client, &id, "some is here", |s| s.objects >= 40).await;
    assert_eq!(status.total_objects, OBJECTS as u64);
    for node in on.cluster.gateways.iter().chain(&on.cluster.targets) {
        on.cluster.kill9(&node.id);
    }
    on.cluster.stop();
    on.cluster = on.cluster.start_again(None);
    let status = done(&on.cluster.client(), &id).await;
    assert_eq!(status.objects + status.present, OBJECTS as u64);
    on.all_is_right(&bucket, OBJECTS).await;
    let again: usize = on.reads().values().map(|n| n - 1).sum();
    assert!(again <= 8, "{again} objects were read again");

    // A restart of a target does not start an ended job again.
    let ended = on.cluster.targets[1].id.clone();
    on.cluster.kill9(&ended);
    on.cluster.restart(&ended);
    let status = done(&on.cluster.client(), &id).await;
    assert_eq!(status.objects + status.present, OBJECTS as u64);
}

#[tokio::test]
async fn a_prefetch_stopped_while_a_target_is_down_does_not_resume() {
    const OBJECTS: usize = 200;
    let Some(on) = Slow::start(2, Duration::from_millis(100)) else { return };
    let bucket = on.bucket("stopped", OBJECTS, 4).await;
    let client = on.cluster.client();
    let id = on.prefetch(&bucket, Selection::Prefix(String::new())).await;
    until(&client, &id, "it has begun", |s| s.objects >= 8).await;
    let victim = on.cluster.targets[1].id.clone();
    on.cluster.kill9(&victim);
    wait::until("the target counts as dead", TIMEOUT, || !on.cluster.is_alive(&victim));
    client.stop_job(&id).await.unwrap();
    on.cluster.restart(&victim);
    let status = until(&client, &id, "it is over", JobStatus::is_over).await;
    assert_eq!(status.state, JobState::Stopped);
    assert!(on.reads().len() < OBJECTS);
}

#[tokio::test]
async fn readers_find_turns_free_while_a_prefetch_runs() {
    const OBJECTS: usize = 150;
    let Some(on) = Slow::start(1, Duration::from_millis(150)) else { return };
    let bucket = on.bucket("paced", OBJECTS, 4).await;
    for n in 0..6 {
        on.minio.put("paced", &format!("user/{n}"), vec![7; SIZE]).await;
    }
    let client = on.cluster.client();
    let id = on.prefetch(&bucket, Selection::Prefix("p/".into())).await;
    until(&client, &id, "it has begun", |s| s.objects >= 4).await;
    for n in 0..6 {
        let before = on.reads().len();
        let name = format!("user/{n}");
        client.get_bytes(&bucket, &name, None).await.unwrap();
        let all = on.origin.seen("paced/");
        let at = all.iter().position(|seen| seen.path.contains(&name)).unwrap();
        let waited = at - n - before;
        assert!(waited <= 4, "{waited} reads of the prefetch went before a reader's");
    }
    let status = client.job(&id).await.unwrap();
    assert!(!status.is_over(), "it had work all the time");
    assert_eq!(done(&client, &id).await.objects, OBJECTS as u64);
}
