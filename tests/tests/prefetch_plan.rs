//! The plan of a prefetch equals what the job then fetches: on a folder and on a real MinIO, before
//! any fetch, when some objects are cached, and when all are.

use std::time::Duration;

use forebay_client::PrefetchPlan;
use forebay_core::job::{JobKind, JobState, JobStatus, Selection};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{cloud, folder_backend, native, run_job};
use forebay_tests::data::{content, fill_folder, names};
use forebay_tests::{Cluster, Minio, Options, wait};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(60);
const SIZE: usize = 3000;

async fn plan(cluster: &Cluster, bucket: &Bucket, what: &Selection) -> PrefetchPlan {
    cluster.client().prefetch_plan(bucket, what).await.unwrap()
}

/// The end of a started job.
async fn ended(cluster: &Cluster, id: &str) -> JobStatus {
    let client = &cluster.client();
    wait::until_async("the job is over", TIMEOUT, || async move {
        client.job(id).await.is_ok_and(|job| job.is_over())
    })
    .await;
    client.job(id).await.unwrap()
}

/// Runs a prefetch and compares what it did with its plan.
async fn fetched_as_planned(
    cluster: &Cluster,
    bucket: &Bucket,
    what: &Selection,
    planned: &PrefetchPlan,
) {
    let id = cluster.client().start_job(JobKind::Prefetch, bucket, what).await.unwrap();
    let job = ended(cluster, &id).await;
    assert_eq!((job.state, job.errors), (JobState::Done, 0), "{:?}", job.messages);
    assert_eq!((job.objects, job.bytes), (planned.fetch_objects, planned.fetch_bytes));
    assert_eq!((job.present, job.present_bytes), (planned.cached_objects, planned.cached_bytes));
}

fn prefix(text: &str) -> Selection {
    Selection::Prefix(text.into())
}

/// The output of a dry run of the command.
fn dry_run(cluster: &Cluster, args: &[&str]) -> Value {
    let all = [&["prefetch", "--dry-run", "-o", "json"], args].concat();
    let (out, code) = cluster.cli(&all);
    assert_eq!(code, 0, "{out}");
    serde_json::from_str(&out).unwrap()
}

#[tokio::test]
async fn the_plan_of_a_folder_is_what_the_job_fetches() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { targets: 2, folder_roots, ..Options::default() });
    let (client, bucket, names) = (cluster.client(), native("planned"), names(120));
    fill_folder(root.path(), &names, SIZE);
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let (all, bytes) = (prefix(""), 120 * SIZE as u64);

    let cold = plan(&cluster, &bucket, &all).await;
    assert_eq!((cold.objects(), cold.fetch_objects, cold.fetch_bytes), (120, 120, bytes));
    assert_eq!((cold.gets, cold.listing_pages), (120, 1));
    let shown = dry_run(&cluster, &["ais://planned", "--price-per-gb", "0.09"]);
    assert_eq!((&shown["fetch_bytes"], &shown["requests"]), (&json!(bytes), &json!(121)));
    assert_eq!(shown["egress_cost"].as_f64().unwrap(), cold.cost(0.09));
    let after = plan(&cluster, &bucket, &all).await;
    assert_eq!(after, cold, "a plan fetches nothing");

    let some = Selection::Names(names[..30].to_vec());
    let planned = plan(&cluster, &bucket, &some).await;
    assert_eq!((planned.fetch_objects, planned.requests()), (30, 30));
    fetched_as_planned(&cluster, &bucket, &some, &planned).await;
    let again = plan(&cluster, &bucket, &some).await;
    assert_eq!((again.cached_objects, again.fetch_objects, again.requests()), (30, 0, 0));

    // A template, of which some names do not exist.
    let template = Selection::Template("train/{000..009}/{000000..000059}.bin".into());
    let planned = plan(&cluster, &bucket, &template).await;
    assert_eq!((planned.objects(), planned.cached_objects), (60, 30));
    fetched_as_planned(&cluster, &bucket, &template, &planned).await;

    let train = prefix("train/");
    let planned = plan(&cluster, &bucket, &train).await;
    assert_eq!((planned.cached_objects, planned.fetch_objects), (60, 60));
    fetched_as_planned(&cluster, &bucket, &train, &planned).await;
    let warm = plan(&cluster, &bucket, &all).await;
    assert_eq!((warm.cached_bytes, warm.fetch_bytes, warm.requests()), (bytes, 0, 1));
    // An object that is cached in part counts with all its bytes.
    std::fs::write(root.path().join("large"), content("large", 20 << 20)).unwrap();
    client.get_bytes(&bucket, "large", Some(RangeSpec::From(0, Some(9)))).await.unwrap();
    let large = Selection::Names(vec!["large".into()]);
    for what in [&large, &prefix("large")] {
        let planned = plan(&cluster, &bucket, what).await;
        assert_eq!((planned.cached_objects, planned.fetch_bytes), (0, 20 << 20));
    }
    let planned = plan(&cluster, &bucket, &all).await;
    assert_eq!((planned.cached_objects, planned.fetch_objects), (120, 1));
    fetched_as_planned(&cluster, &bucket, &all, &planned).await;
    let (out, code) = cluster.cli(&["prefetch", "ais://planned/train/", "--dry-run"]);
    assert!(code == 0 && out.contains("to fetch      0 objects, 0B"), "{out}");
    assert!(!out.contains('$'), "no price was given: {out}");
}

#[tokio::test]
async fn a_plan_fails_where_the_prefetch_fails() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { targets: 1, folder_roots, ..Options::default() });
    let (client, bucket, own) = (cluster.client(), native("folder"), native("own"));
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    client.create_bucket(&own, None).await.unwrap();

    let planned = client.prefetch_plan(&own, &prefix("")).await.unwrap_err();
    let real = client.start_job(JobKind::Prefetch, &own, &prefix("")).await.unwrap_err();
    assert_eq!(planned.to_string(), real.to_string());
    let (out, code) = cluster.cli(&["prefetch", "ais://own", "--dry-run"]);
    assert!(code == 2 && out.contains("no backend"), "{out}");

    // Nothing matches: neither is an error.
    let none = prefix("none/");
    let planned = plan(&cluster, &bucket, &none).await;
    assert_eq!((planned.objects(), planned.requests()), (0, 1));
    fetched_as_planned(&cluster, &bucket, &none, &planned).await;

    let missing = Selection::Names(vec!["missing".into()]);
    let e = client.prefetch_plan(&bucket, &missing).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::ObjectNotFound, "{e}");
    let id = client.start_job(JobKind::Prefetch, &bucket, &missing).await.unwrap();
    let job = ended(&cluster, &id).await;
    assert_eq!((job.errors, job.messages.len()), (1, 1), "{job:?}");
    assert!(job.messages[0].contains(&e.to_string()), "{:?} {e}", job.messages);
    let (out, code) = cluster.cli(&["prefetch", "ais://folder", "--price-per-gb", "1"]);
    assert!(code == 2 && out.contains("--dry-run"), "{out}");
}

#[tokio::test]
async fn the_requests_of_a_plan_are_those_that_the_cloud_counts() {
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { targets: 2, env: minio.env(), ..Options::default() });
    let (client, bucket) = (cluster.client(), cloud("planned"));
    minio.create_bucket("planned").await;
    for name in names(20) {
        minio.put("planned", &name, content(&name, SIZE)).await;
    }
    minio.put("planned", "large", content("large", 40 << 20)).await;
    client.head_bucket(&bucket).await.unwrap();
    run_job(&cluster, JobKind::Prefetch, &bucket, Selection::Names(names(5))).await;

    let all = prefix("");
    let planned = plan(&cluster, &bucket, &all).await;
    assert_eq!((planned.cached_objects, planned.fetch_objects), (5, 16));
    assert_eq!((planned.gets, planned.listing_pages), (15 + 5, 1), "the large one by ranges");
    fetched_as_planned(&cluster, &bucket, &all, &planned).await;
    // Five GETs of the first prefetch and one page of the plan come on top.
    wait::until("MinIO has counted the requests of the job", TIMEOUT, || {
        let (gets, pages) = (minio.count("GetObject"), minio.count("ListObjectsV2"));
        (gets, pages) == (5 + planned.gets, 1 + planned.listing_pages)
    });

    // Another version at the cloud, and an object that is gone there.
    minio.put("planned", &names(3)[2], content("new", 2 * SIZE)).await;
    minio.s3().delete_object().bucket("planned").key(&names(4)[3]).send().await.unwrap();
    let kept = plan(&cluster, &bucket, &all).await;
    assert_eq!((kept.cached_objects, kept.fetch_objects), (20, 0), "nothing was compared");
    let planned = client.sync_plan(&bucket, "").await.unwrap();
    assert_eq!((planned.cached_objects, planned.fetch_objects), (19, 1));
    assert_eq!(planned.fetch_bytes, 2 * SIZE as u64);
    let shown = dry_run(&cluster, &["s3://planned", "--sync"]);
    assert_eq!(shown, planned.to_json());
    let id = client.start_sync(&bucket, &all).await.unwrap();
    let job = ended(&cluster, &id).await;
    assert_eq!((job.objects, job.bytes, job.present), (1, planned.fetch_bytes, 19));
}
