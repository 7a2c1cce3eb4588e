//! Faults of a cloud during a cold read, on a real MinIO, fake-gcs-server and Azurite behind a
//! proxy that alters responses. The reader gets the right bytes or an error, wrong bytes are not
//! cached, and the cloud gets no more requests than necessary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::cloud_rules::RETRY_HEADER;
use forebay_core::{Bucket, ObjectName};
use forebay_tests::azure::ACCOUNT;
use forebay_tests::cluster::{azure, cloud, google};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::faulty_origin::Spoil;
use forebay_tests::{Azurite, Cluster, FakeGcs, FaultyOrigin, Minio, Options, Shared, http, minio};
use futures::StreamExt;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

const MIB: usize = 1 << 20;

/// A cluster, its cloud, and the proxy between them.
struct World {
    cluster: Cluster,
    origin: FaultyOrigin,
    cloud: Cloud,
    /// Held by every test, because the proxy alters the reads of all tests.
    turn: Mutex<()>,
}

enum Cloud {
    S3(Minio),
    Google(FakeGcs),
    Azure(Azurite),
}

static S3: Shared<World> = Shared::new();
static GOOGLE: Shared<World> = Shared::new();
static AZURE: Shared<World> = Shared::new();

/// All clouds that this machine has; each that is missing is reported.
fn worlds() -> Vec<Arc<World>> {
    let world = |cloud: Cloud| {
        let url = match &cloud {
            Cloud::S3(minio) => &minio.url,
            Cloud::Google(gcs) => &gcs.url,
            Cloud::Azure(azurite) => &azurite.url,
        };
        let origin = FaultyOrigin::start(url);
        let env = match &cloud {
            Cloud::S3(_) => minio::env(&origin.url, "minioadmin", "minioadmin"),
            Cloud::Google(_) => vec![("STORAGE_EMULATOR_HOST".to_owned(), origin.url.clone())],
            Cloud::Azure(azurite) => {
                let mut env = azurite.env();
                env.retain(|(name, _)| name != "AZURE_STORAGE_ENDPOINT");
                let there = format!("{}/{ACCOUNT}", origin.url);
                env.push(("AZURE_STORAGE_ENDPOINT".to_owned(), there));
                env
            }
        };
        let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
        World { cluster, origin, cloud, turn: Mutex::const_new(()) }
    };
    let found = [
        S3.try_get(|| Minio::start().map(|minio| world(Cloud::S3(minio)))),
        GOOGLE.try_get(|| FakeGcs::start().map(|gcs| world(Cloud::Google(gcs)))),
        AZURE.try_get(|| Azurite::start().map(|azurite| world(Cloud::Azure(azurite)))),
    ];
    found.into_iter().flatten().collect()
}

impl World {
    /// A bucket of the cloud that the cluster knows, with rules of its own.
    async fn bucket(&self, name: &str, rules: serde_json::Value) -> Bucket {
        let bucket = match &self.cloud {
            Cloud::S3(minio) => {
                minio.create_bucket(name).await;
                cloud(name)
            }
            Cloud::Google(gcs) => {
                gcs.create_bucket(name);
                google(name)
            }
            Cloud::Azure(azurite) => {
                azurite.create_container(name);
                azure(name)
            }
        };
        let client = self.cluster.client();
        client.head_bucket(&bucket).await.unwrap();
        client.set_bucket(&bucket, json!({ "cloud": rules })).await.unwrap();
        bucket
    }

    /// Takes the lock: no other test alters responses while it is held.
    async fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().await;
        self.origin.every(None);
        turn
    }

    async fn put(&self, bucket: &Bucket, name: &str, bytes: &[u8]) {
        match &self.cloud {
            Cloud::S3(minio) => minio.put(&bucket.name, name, bytes.to_vec()).await,
            Cloud::Google(gcs) => gcs.put(&bucket.name, name, bytes),
            Cloud::Azure(azurite) => azurite.put(&bucket.name, name, bytes),
        }
    }

    /// Puts an object from a thread of its own, when it is called.
    fn putting(
        &self,
        bucket: &Bucket,
        name: &'static str,
        bytes: Vec<u8>,
    ) -> impl Fn() + Send + Sync + use<> {
        enum There {
            S3(Box<aws_sdk_s3::Client>, tokio::runtime::Handle),
            Google(String),
            Azure(String),
        }
        let there = match &self.cloud {
            Cloud::S3(minio) => There::S3(Box::new(minio.s3()), tokio::runtime::Handle::current()),
            Cloud::Google(gcs) => There::Google(gcs.url.clone()),
            Cloud::Azure(azurite) => There::Azure(azurite.url.clone()),
        };
        let bucket = bucket.name.to_string();
        move || match &there {
            There::S3(s3, runtime) => {
                let put = s3.put_object().bucket(&bucket).key(name).body(bytes.clone().into());
                runtime.block_on(put.send()).unwrap();
            }
            There::Google(url) => forebay_tests::gcs::put(url, &bucket, name, bytes.clone()),
            There::Azure(url) => forebay_tests::azure::put(url, &bucket, name, bytes.clone()),
        }
    }

    /// Reads as a simple client does: one attempt, and an error if the body is short.
    fn read(&self, bucket: &Bucket, name: &str, retry: &str) -> std::io::Result<http::Answer> {
        let provider = bucket.provider;
        let url = self.cluster.object_url(&bucket.name, &format!("{name}?provider={provider}"));
        let ask = |url: &str| {
            let request = http::request("GET", url);
            if retry.is_empty() { request } else { request.header(RETRY_HEADER, retry) }
        };
        let first = ask(&url).try_send()?;
        match first.header("location") {
            Some(there) => ask(there).try_send(),
            None => Ok(first),
        }
    }

    /// Reads an object and asserts its bytes.
    #[track_caller]
    fn read_right(&self, bucket: &Bucket, name: &str, retry: &str, want: &[u8]) {
        let answer = self.read(bucket, name, retry).unwrap();
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_same(name, &answer.body, want);
    }

    fn reads(&self, name: &str) -> usize {
        self.origin.seen(name).len()
    }
}

#[tokio::test]
async fn what_is_refused_for_a_while_is_asked_for_again_when_the_cloud_said() {
    for world in worlds() {
        let _turn = world.turn().await;
        let bucket = world.bucket("refused", json!({})).await;
        for status in [429, 500, 503] {
            let (name, bytes) = (format!("refused-{status}"), content("r", 100_000));
            world.put(&bucket, &name, &bytes).await;
            world.origin.next([Some(Spoil::Refuse(status, Some(1)))]);
            world.read_right(&bucket, &name, "", &bytes);
            let seen = world.origin.seen(&name);
            assert_eq!(seen.len(), 2, "{status}");
            assert!(seen[1].at - seen[0].at >= Duration::from_secs(1), "{status}: {seen:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_read_in_ten_failing_every_other_read_counts() {
    for world in worlds() {
        let _turn = world.turn().await;
        let bucket = world.bucket("tenth", json!({ "first_pause_ms": 10 })).await;
        let names = names(60);
        for name in &names {
            world.put(&bucket, &format!("tenth/{name}"), &content(name, 20_000)).await;
        }
        world.origin.every(Some((10, Spoil::Refuse(500, None))));
        let client = world.cluster.client();
        let reading = futures::stream::iter(&names).map(|name| {
            let (client, bucket) = (client.clone(), bucket.clone());
            async move {
                let object = format!("tenth/{name}");
                let got = client.get_bytes(&bucket, &object, None).await.unwrap();
                assert_same(name, &got, &content(name, 20_000));
            }
        });
        reading.buffer_unordered(16).collect::<Vec<_>>().await;
        world.origin.every(None);
        let seen = world.origin.seen("tenth");
        let spoiled = seen.iter().filter(|seen| seen.spoiled).count();
        assert!(spoiled >= 5, "{spoiled} were spoiled");
        assert_eq!(seen.len() - spoiled, names.len(), "one read of each, and of those that failed");
    }
}

#[tokio::test]
async fn an_answer_or_a_body_that_does_not_come_is_given_up_in_time() {
    for world in worlds() {
        let _turn = world.turn().await;
        let bucket = world.bucket("silent", json!({})).await;
        let retry_rules = "answer_ms=500,stall_ms=500,first_pause_ms=10";
        let silences = [
            ("late", Spoil::Late(Duration::from_secs(20))),
            ("headers-only", Spoil::Stall(0)),
            ("half", Spoil::Stall(700_000)),
        ];
        for (name, silence) in silences {
            let bytes = content(name, 2 * MIB);
            world.put(&bucket, name, &bytes).await;
            world.origin.next([Some(silence)]);
            let start = Instant::now();
            world.read_right(&bucket, name, retry_rules, &bytes);
            assert!(start.elapsed() < Duration::from_secs(10), "{name}: {:?}", start.elapsed());
            assert_eq!(world.reads(name), 2, "{name}");
        }
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_goes_on_where_it_was() {
    for world in worlds() {
        let _turn = world.turn().await;
        let bucket = world.bucket("broken", json!({ "first_pause_ms": 10 })).await;
        for (name, how) in
            [("truncated", Spoil::Truncate(1_500_000)), ("reset", Spoil::Reset(1_500_000))]
        {
            let bytes = content(name, 3 * MIB);
            world.put(&bucket, name, &bytes).await;
            let before = world.origin.body_bytes();
            world.origin.next([Some(how)]);
            world.read_right(&bucket, name, "", &bytes);
            assert_eq!(world.reads(name), 2, "{name}");
            let cost = world.origin.body_bytes() - before;
            // Bytes that a reset discards are fetched once more.
            assert!(cost <= 3 * MIB as u64 + 1_500_000, "{name}: {cost} bytes");
            world.read_right(&bucket, name, "", &bytes);
            assert_eq!(world.reads(name), 2, "{name} is kept");
        }
    }
}

#[tokio::test]
async fn a_body_of_a_wrong_length_is_neither_served_nor_kept() {
    for world in worlds() {
        let _turn = world.turn().await;
        let bucket = world.bucket("short", json!({ "first_pause_ms": 10 })).await;
        for size in [5000, 300_000, 3 * MIB] {
            let (name, bytes) = (format!("short-{size}"), content("s", size));
            world.put(&bucket, &name, &bytes).await;
            world.origin.next([Some(Spoil::SayLess(10))]);
            // Either right after a retry, or an error, or a body that breaks off.
            match world.read(&bucket, &name, "") {
                Ok(answer) if answer.status == 200 => assert_same(&name, &answer.body, &bytes),
                Ok(answer) => assert!(answer.status >= 500, "{name}: {}", answer.status),
                Err(_) => {}
            }
            world.read_right(&bucket, &name, "", &bytes);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_never_mixed() {
    for world in worlds() {
        let _turn = world.turn().await;
        let rules = json!({ "first_pause_ms": 10, "ranges_above": "1MiB" });
        let bucket = world.bucket("versions", rules).await;
        // One of its ranges is of another version.
        let bytes = content("ranges", 6 * MIB);
        world.put(&bucket, "ranges", &bytes).await;
        world.origin.next([None, Some(Spoil::OtherVersion)]);
        if let Ok(answer) = world.read(&bucket, "ranges", "")
            && answer.status == 200
        {
            assert_same("ranges", &answer.body, &bytes);
        }
        world.read_right(&bucket, "ranges", "", &bytes);

        // The object is replaced during the read, before the rest of a body that broke off is
        // fetched.
        let (old, new) = (content("old", 900_000), content("new", 900_000));
        world.put(&bucket, "replaced", &old).await;
        let replace = world.putting(&bucket, "replaced", new.clone());
        world.origin.next([Some(Spoil::Truncate(400_000)), Some(Spoil::First(Arc::new(replace)))]);
        let read = tokio::task::block_in_place(|| world.read(&bucket, "replaced", ""));
        if let Ok(answer) = read
            && answer.status == 200
        {
            assert!(answer.body == old || answer.body == new, "a mixture");
        }
        world.read_right(&bucket, "replaced", "", &new);
    }
}

#[tokio::test]
async fn the_retry_policy_of_a_request_governs_calls_to_the_cloud() {
    for world in worlds() {
        let _turn = world.turn().await;
        let bucket = world.bucket("patience", json!({})).await;
        world.put(&bucket, "patience", b"x").await;
        world.origin.every(Some((1, Spoil::Refuse(500, None))));

        let retry = "attempts=4,first_pause_ms=200,multiplier=2,longest_pause_ms=300,jitter=0";
        let refused = world.read(&bucket, "patience", retry).unwrap();
        assert_eq!(refused.status, 503, "{}", refused.text());
        let seen = world.origin.seen("patience");
        let pauses: Vec<u128> =
            seen.windows(2).map(|two| (two[1].at - two[0].at).as_millis()).collect();
        assert_eq!(pauses.len(), 3, "{pauses:?}");
        for (pause, wanted) in pauses.iter().zip([200, 300, 300]) {
            // A busy machine makes the pauses longer.
            assert!((wanted..wanted + 3_000).contains(pause), "{pauses:?}");
        }
        let hasty = "attempts=9,first_pause_ms=300,multiplier=1,jitter=0,deadline_ms=700";
        world.read(&bucket, "patience", hasty).unwrap();
        let calls = world.reads("patience") - 4;
        assert!((1..=3).contains(&calls), "no call after the deadline: {calls}");

        // In a batch the setting is valid for all entries.
        let before = world.reads("patience");
        let name = ObjectName::new("patience").unwrap();
        let entries = vec![BatchEntry::whole(0, name)];
        let batch = BatchRequest { buckets: vec![bucket.clone()], entries, ordered: true };
        let url = format!("{}/api/v1/batch", world.cluster.targets[0].url);
        let asked = http::request("POST", &url).json(&serde_json::to_value(&batch).unwrap());
        let answer = asked.header(RETRY_HEADER, "attempts=2,first_pause_ms=1").send();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(world.reads("patience") - before, 2);

        world.origin.every(None);
        let wrong = world.read(&bucket, "patience", "attempts=0").unwrap();
        assert_eq!(wrong.status, 400, "{}", wrong.text());
        assert!(wrong.text().contains("attempts"), "{}", wrong.text());
        world.read_right(&bucket, "patience", "", b"x");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_one_large_object_cost_one_download() {
    for world in worlds() {
        let _turn = world.turn().await;
        let bucket = world.bucket("many", json!({ "ranges_above": "2MiB" })).await;
        let bytes = content("many", 24 * MIB);
        world.put(&bucket, "many-readers", &bytes).await;
        let before = world.origin.body_bytes();
        let client = world.cluster.client();
        let readers = (0..24).map(|_| {
            let (client, bucket) = (client.clone(), bucket.clone());
            tokio::spawn(async move { client.get_bytes(&bucket, "many-readers", None).await })
        });
        for reader in readers.collect::<Vec<_>>() {
            assert_same("a reader", &reader.await.unwrap().unwrap(), &bytes);
        }
        assert!(world.reads("many-readers") > 1, "by ranges");
        let cost = world.origin.body_bytes() - before;
        // The response that reported the size may have sent more than its range before it was
        // closed: as much as the buffers of two connections hold.
        let (size, most) = (24 * MIB as u64, 36 * MIB as u64);
        assert!((size..most).contains(&cost), "{cost} bytes for {size}");
        world.read_right(&bucket, "many-readers", "", &bytes);
    }
}
