//! Native objects written back to a real MinIO: readable there, with a slow and a failing cloud,
//! overwritten meanwhile, and over the death of a target.

use std::time::Duration;

use forebay_client::Client;
use forebay_core::Bucket;
use forebay_core::job::{JobState, JobStatus, Selection};
use forebay_tests::cluster::{cloud, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::faulty_origin::Spoil;
use forebay_tests::{Cluster, FaultyOrigin, Minio, Options, minio, wait};

const TIMEOUT: Duration = Duration::from_secs(90);
const MIB: usize = 1 << 20;

/// A cluster with a native bucket, and a cloud behind a proxy.
struct Here {
    cluster: Cluster,
    origin: FaultyOrigin,
    minio: Minio,
    client: Client,
    bucket: Bucket,
    to: Bucket,
}

impl Here {
    async fn start(targets: u16) -> Option<Self> {
        let minio = Minio::start()?;
        minio.create_bucket("backup").await;
        let origin = FaultyOrigin::start(&minio.url);
        let env = minio::env(&origin.url, "minioadmin", "minioadmin");
        let cluster = Cluster::start(Options { targets, env, ..Options::default() });
        let (client, bucket, to) = (cluster.client(), native("checkpoints"), cloud("backup"));
        client.create_bucket(&bucket, None).await.unwrap();
        client.head_bucket(&to).await.unwrap();
        Some(Self { cluster, origin, minio, client, bucket, to })
    }

    async fn put(&self, name: &str, seed: &str, size: usize) {
        self.client.put(&self.bucket, name, content(seed, size), None).await.unwrap();
    }

    async fn write_back(&self, names: &[&str], remove: bool) -> String {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let chosen = Selection::Names(names);
        self.client.start_write_back(&self.bucket, &chosen, (&self.to, ""), remove).await.unwrap()
    }

    async fn over(&self, id: &str) -> JobStatus {
        self.until(id, "the write-back is over", JobStatus::is_over).await
    }

    async fn done(&self, id: &str) -> JobStatus {
        let status = self.over(id).await;
        assert_eq!((status.state, status.errors), (JobState::Done, 0), "{:?}", status.messages);
        status
    }

    async fn until(&self, id: &str, what: &str, is: impl Fn(&JobStatus) -> bool) -> JobStatus {
        let (client, is) = (&self.client, &is);
        wait::until_async(what, TIMEOUT, || async move {
            client.job(id).await.is_ok_and(|status| is(&status))
        })
        .await;
        client.job(id).await.unwrap()
    }

    async fn is_there(&self, name: &str, seed: &str, size: usize) {
        let got = self.minio.get("backup", name).await.unwrap_or_default();
        assert_same(name, &got, &content(seed, size));
    }
}

#[tokio::test]
async fn what_is_written_back_is_in_the_cloud_and_is_not_sent_twice() {
    let Some(here) = Here::start(3).await else { return };
    let sizes = [("run/1.pt", 70 * MIB), ("run/2.pt", 5 * MIB), ("run/3.pt", 100), ("run/4.pt", 0)];
    for (name, size) in sizes {
        here.put(name, name, size).await;
    }
    let names: Vec<&str> = sizes.iter().map(|(name, _)| *name).collect();
    let bytes: usize = sizes.iter().map(|(_, size)| size).sum();
    let status = here.done(&here.write_back(&names, false).await).await;
    assert_eq!((status.objects, status.bytes), (4, bytes as u64));
    assert_eq!((status.total_objects, status.total_bytes), (4, bytes as u64));
    assert_eq!(status.destination, Some(here.to.clone()));
    for (name, size) in sizes {
        here.is_there(name, name, size).await;
    }
    let sent = here.origin.written("run/").len();
    let again = here.done(&here.write_back(&names, false).await).await;
    assert_eq!((again.objects, again.present, here.origin.written("run/").len()), (0, 4, sent));

    // A write back invalidates the copy that the cluster had cached of the cloud's object.
    here.client.get_bytes(&here.to, "run/3.pt", None).await.unwrap();
    here.put("run/3.pt", "newer", 200).await;
    let all = Selection::Prefix("run/".into());
    let to = (&here.to, "");
    let id = here.client.start_write_back(&here.bucket, &all, to, false).await.unwrap();
    assert_eq!(here.done(&id).await.objects, 1);
    let read = here.client.get_bytes(&here.to, "run/3.pt", None).await.unwrap();
    assert_same("run/3.pt", &read, &content("newer", 200));
}

#[tokio::test]
async fn a_write_back_goes_on_when_its_target_is_killed_in_its_middle() {
    const OBJECTS: usize = 4;
    let Some(here) = Here::start(2).await else { return };
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("run/{n}.pt")).collect();
    for name in &names {
        here.put(name, name, 66 * MIB).await;
    }
    // The cloud has the old object until all parts of the new one are uploaded.
    here.minio.put("backup", "run/0.pt", b"old".to_vec()).await;
    here.origin.writes(Some(Spoil::Late(Duration::from_millis(400))));
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    let id = here.write_back(&refs, false).await;
    let some = here.until(&id, "parts are on their way", |s| s.bytes >= 32 * MIB as u64).await;
    assert!(!some.is_over() && some.bytes < some.total_bytes, "{some:?}");
    assert_eq!(some.total_bytes, (OBJECTS * 66 * MIB) as u64);
    let victim = here.cluster.owner(&here.bucket, "run/0.pt").id;
    here.cluster.kill9(&victim);
    let before = here.minio.get("backup", "run/0.pt").await.unwrap();
    assert!(before == b"old" || before.len() == 66 * MIB, "{} bytes", before.len());
    assert!(!here.client.job(&id).await.unwrap().is_over(), "a part of it is away, and not lost");
    here.cluster.restart(&victim);
    here.origin.writes(None);
    let status = here.done(&id).await;
    assert_eq!(status.objects + status.present, OBJECTS as u64, "each is counted once");
    for name in &names {
        here.is_there(name, name, 66 * MIB).await;
    }
}

#[tokio::test]
async fn an_object_that_is_written_again_meanwhile_is_the_one_that_the_cloud_has() {
    let Some(here) = Here::start(2).await else { return };
    here.put("c.pt", "first", 3 * MIB).await;
    here.origin.writes(Some(Spoil::Late(Duration::from_millis(500))));
    let older = here.write_back(&["c.pt"], false).await;
    wait::until("the first is on its way", TIMEOUT, || !here.origin.written("c.pt").is_empty());
    here.put("c.pt", "second", 2 * MIB).await;
    let newer = here.write_back(&["c.pt"], false).await;
    here.done(&older).await;
    here.done(&newer).await;
    here.is_there("c.pt", "second", 2 * MIB).await;
    assert!(here.origin.written("c.pt").len() <= 2, "the second went out once");
}

#[tokio::test]
async fn what_is_removed_goes_from_the_cloud_too_unless_others_put_it_there() {
    let Some(here) = Here::start(2).await else { return };
    for name in ["a.pt", "b.pt"] {
        here.put(name, name, MIB).await;
    }
    here.minio.put("backup", "others.pt", b"of somebody else".to_vec()).await;
    here.done(&here.write_back(&["a.pt", "b.pt"], false).await).await;
    here.client.delete(&here.bucket, "a.pt").await.unwrap();
    here.done(&here.write_back(&["a.pt", "others.pt", "never.pt"], true).await).await;
    assert!(here.minio.get("backup", "a.pt").await.is_none());
    here.is_there("b.pt", "b.pt", MIB).await;
    assert!(here.minio.get("backup", "others.pt").await.is_some());
    // Without the delete option, an object that is gone here is an error, and stays at the cloud.
    here.client.delete(&here.bucket, "b.pt").await.unwrap();
    let status = here.over(&here.write_back(&["b.pt"], false).await).await;
    assert_eq!((status.state, status.errors), (JobState::Failed, 1));
    here.is_there("b.pt", "b.pt", MIB).await;
}

#[tokio::test]
async fn a_cloud_that_refuses_is_the_jobs_failure_and_one_that_is_away_is_waited_for() {
    let Some(here) = Here::start(1).await else { return };
    here.put("c.pt", "c.pt", MIB).await;
    here.origin.writes(Some(Spoil::Refuse(403, None)));
    let status = here.over(&here.write_back(&["c.pt"], false).await).await;
    assert_eq!((status.state, status.objects, status.errors), (JobState::Failed, 0, 1));
    assert!(status.messages[0].contains("backup"), "{:?}", status.messages);
    assert!(here.minio.get("backup", "c.pt").await.is_none());

    here.origin.writes(Some(Spoil::Refuse(503, None)));
    let id = here.write_back(&["c.pt"], false).await;
    let waits = here.until(&id, "it says why it waits", |s| !s.notes.is_empty()).await;
    assert!(!waits.is_over() && waits.notes[0].contains("tried again"), "{:?}", waits.notes);
    here.origin.writes(None);
    here.done(&id).await;
    here.is_there("c.pt", "c.pt", MIB).await;
}

#[tokio::test]
async fn only_native_objects_are_written_back_and_only_to_a_cloud() {
    let Some(here) = Here::start(1).await else { return };
    let all = Selection::Prefix(String::new());
    let other = native("other");
    here.client.create_bucket(&other, None).await.unwrap();
    for (from, to, says) in
        [(&here.to, &here.to, "at its backend already"), (&here.bucket, &other, "has no backend")]
    {
        let refused = here.client.start_write_back(from, &all, (to, ""), false).await.unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let missing = cloud("there-is-none");
    assert!(here.client.start_write_back(&here.bucket, &all, (&missing, ""), false).await.is_err());
}
