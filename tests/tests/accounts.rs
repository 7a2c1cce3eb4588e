//! Several accounts of one cloud in one cluster: buckets of the same name side by side, each with the
//! credentials, endpoint and region of its account.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::bucket::BackendSpec;
use forebay_core::job::{JobKind, Selection};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, Error, ErrorCode};
use forebay_tests::azure::{self, OTHER, OTHER_KEY};
use forebay_tests::cluster::run_job;
use forebay_tests::data::{assert_same, content};
use forebay_tests::private_file::write_private;
use forebay_tests::{Azurite, Cluster, FakeGcs, Minio, Options, gcs, http, wait};
use serde_json::json;

/// Keys of the second server.
const USER: &str = "prod-account";
const PASSWORD: &str = "the-secret-of-prod";
/// Time within which new content of a credential file is used, on a busy machine.
const ROTATED: Duration = Duration::from_secs(90);

fn bucket(uri: &str) -> Bucket {
    Bucket::parse_uri(uri).unwrap().0
}

/// A cluster with these accounts in its configuration.
fn cluster(settings: String, env: Vec<(String, String)>) -> Cluster {
    let settings = Box::leak(settings.into_boxed_str());
    Cluster::start(Options { targets: 2, settings, env, ..Options::default() })
}

/// Makes a bucket of an account by the command line.
fn make(cluster: &Cluster, args: &[&str]) -> Bucket {
    let (text, code) = cluster.cli(&[&["mb"], args].concat());
    assert_eq!(code, 0, "{text}");
    bucket(args[0])
}

/// Two servers of S3 with different keys; the second is the account `prod`, in another region.
struct TwoServers {
    cluster: Cluster,
    first: Minio,
    second: Minio,
    secret: PathBuf,
    _folder: tempfile::TempDir,
}

fn account(name: &str, url: &str, secret: &Path) -> String {
    format!(
        "[[cloud]]\nname = \"{name}\"\nprovider = \"s3\"\nendpoint = \"{url}\"\n\
         access_key = \"{USER}\"\nsecret_key_file = \"{}\"\n",
        secret.display()
    )
}

async fn two_servers() -> Option<TwoServers> {
    let first = Minio::start()?;
    let second = Minio::start_as(USER, PASSWORD, "eu-lab")?;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("prod.key");
    write_private(&secret, PASSWORD);
    let settings = account("prod", &second.url, &secret);
    let cluster = cluster(settings, first.env());
    for server in [&first, &second] {
        server.create_bucket("data").await;
    }
    Some(TwoServers { cluster, first, second, secret, _folder: folder })
}

fn shown(error: &forebay_client::Error) -> &Error {
    match error {
        forebay_client::Error::Api(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_of_one_name_in_two_accounts_never_mix() {
    let Some(on) = two_servers().await else { return };
    let client = on.cluster.client();
    on.first.put("data", "same", content("first", 70_000)).await;
    on.first.put("data", "only-first", b"1".to_vec()).await;
    on.second.put("data", "same", content("second", 70_000)).await;
    on.second.put("data", "only-second", b"2".to_vec()).await;
    let plain = bucket("s3://data");
    let prod = make(&on.cluster, &["s3://#prod/data", "--account", "prod"]);

    for pass in ["cold", "cached"] {
        for (bucket, text) in [(&plain, "first"), (&prod, "second")] {
            let got = client.get_bytes(bucket, "same", None).await.unwrap();
            assert_same(&format!("{bucket} {pass}"), &got, &content(text, 70_000));
            let range = Some(RangeSpec::From(10, Some(19)));
            let got = client.get_bytes(bucket, "same", range).await.unwrap();
            assert_same("a range", &got, &content(text, 70_000)[10..20]);
        }
    }
    let names = |bucket: Bucket| {
        let client = client.clone();
        async move {
            let rows = client.list_all(&bucket, "").await.unwrap();
            rows.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        }
    };
    assert_eq!(names(plain.clone()).await, ["only-first", "same"]);
    assert_eq!(names(prod.clone()).await, ["only-second", "same"]);
    let gone = client.get_bytes(&plain, "only-second", None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");

    // The large one goes up in parts.
    for (name, size) in [("new", 5_000), ("parts", 70 << 20)] {
        client.put(&prod, name, content(name, size), None).await.unwrap();
        assert_same(
            "at its server",
            &on.second.get("data", name).await.unwrap(),
            &content(name, size),
        );
        assert!(on.first.get("data", name).await.is_none(), "{name} is in the other account");
    }
    client.delete(&prod, "same").await.unwrap();
    assert!(on.second.get("data", "same").await.is_none());
    assert!(on.first.get("data", "same").await.is_some());

    let selection = Selection::default();
    run_job(&on.cluster, JobKind::Evict, &prod, selection.clone()).await;
    assert_eq!(run_job(&on.cluster, JobKind::Prefetch, &prod, selection).await, 3);
    let labels = ["bucket=\"s3://#prod/data\""];
    assert!(on.cluster.metric("forebay_cloud_requests_total", &labels) > 0.0);

    let (text, code) = on.cluster.cli(&["doctor", "s3://#prod/data"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("prod") && text.contains(USER) && text.contains(&on.second.url),
        "{text}"
    );
    assert!(text.contains("eu-lab"), "the region that was found out: {text}");
    assert!(!text.contains(PASSWORD), "{text}");
    let (text, _) = on.cluster.cli(&["bucket", "show", "s3://#prod/data"]);
    assert!(text.contains("account") && text.contains("prod"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_account_drops_what_is_cached_of_the_former_one() {
    let Some(on) = two_servers().await else { return };
    let client = on.cluster.client();
    on.first.put("data", "x", b"first".to_vec()).await;
    on.second.put("data", "x", b"second".to_vec()).await;
    let bucket = bucket("s3://data");
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "first");
    // As clients of v1 choose it.
    let profile = json!({ "extra": { "aws": { "profile": "prod", "cloud_region": "eu-lab" } } });
    client.set_bucket(&bucket, profile).await.unwrap();
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "second");
    let props = client.head_bucket(&bucket).await.unwrap();
    assert_eq!(props["extra"]["aws"]["profile"], "prod", "{props}");
    let (text, code) = on.cluster.cli(&["bucket", "set", "s3://data", "account=", "region="]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "first");
}

#[tokio::test]
async fn a_region_is_found_out_and_a_wrong_one_is_refused_with_the_right_one() {
    let Some(on) = two_servers().await else { return };
    let client = on.cluster.client();
    on.second.put("data", "x", b"there".to_vec()).await;
    // The account has no region: requests are signed for us-east-1 at first.
    let found = make(&on.cluster, &["s3://#found/data", "--account", "prod"]);
    assert_eq!(client.get_bytes(&found, "x", None).await.unwrap(), "there");
    client.put(&found, "y", "new", None).await.unwrap();
    assert_eq!(on.second.get("data", "y").await.unwrap(), b"new");

    let set = ["bucket", "set", "s3://#found/data", "region=eu-wrong"];
    let (text, code) = on.cluster.cli(&set);
    assert_eq!(code, 2, "{text}");
    for word in ["s3://#found/data", "eu-wrong", "prod"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (text, code) = on.cluster.cli(&["bucket", "set", "s3://#found/data", "region=eu-lab"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(client.get_bytes(&found, "x", None).await.unwrap(), "there");
}

#[tokio::test]
async fn an_account_that_cannot_be_used_is_named_with_the_remedy() {
    let Some(on) = two_servers().await else { return };
    let unknown = ["mb", "s3://#x/data", "--account", "prot"];
    let (text, code) = on.cluster.cli(&unknown);
    assert_eq!(code, 2, "{text}");
    for word in ["s3://#x/data", "\"prot\"", "[[cloud]]", "configured: prod"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (text, code) = on.cluster.cli(&["mb", "gs://#x/data", "--account", "prod"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("another cloud"), "{text}");
    let (text, code) = on.cluster.cli(&["ls", "s3://#never/data"]);
    assert_eq!(code, 4, "not made by its first use: {text}");
    assert!(text.contains("forebay mb s3://#never/data"), "{text}");
}

#[tokio::test]
async fn an_endpoint_that_a_bucket_names_gets_no_credentials_of_an_account() {
    let Some(on) = two_servers().await else { return };
    let client = on.cluster.client();
    let evil = Some(on.first.url.clone());
    let near = bucket("ais://near");
    let kind = forebay_core::bucket::BackendKind::S3;
    let account = Some("prod".to_owned());
    let spec = BackendSpec { endpoint: evil, account, ..BackendSpec::new(kind, "data") };
    let error = client.create_bucket(&near, Some(spec)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AccessDenied, "{error}");
    let error = shown(&error);
    assert!(error.message.contains("\"prod\"") && error.message.contains(&on.first.url), "{error}");
    assert!(error.hint.as_deref().unwrap().contains("endpoints"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_file_is_replaced_without_a_restart() {
    let Some(on) = two_servers().await else { return };
    let client = on.cluster.client();
    on.second.put("data", "x", b"there".to_vec()).await;
    write_private(&on.secret, "not the secret of it");
    let prod = bucket("s3://#prod/data");
    let mut error = String::new();
    wait::until("the wrong secret is used", ROTATED, || {
        let (text, code) = on.cluster.cli(&["mb", "s3://#prod/data", "--account", "prod"]);
        if code == 0 {
            on.cluster.cli(&["rb", "s3://#prod/data", "--yes"]);
        }
        error = text;
        code == 5
    });
    for word in ["s3://#prod/data", "account \"prod\"", "[[cloud]] \"prod\""] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!(!error.contains("not the secret of it"), "{error}");
    write_private(&on.secret, PASSWORD);
    wait::until("the right secret is used", ROTATED, || {
        on.cluster.cli(&["mb", "s3://#prod/data", "--account", "prod"]).1 == 0
    });
    assert_eq!(client.get_bytes(&prod, "x", None).await.unwrap(), "there");
}

#[tokio::test]
async fn two_accounts_of_azure_are_used_side_by_side() {
    let Some(azurite) = Azurite::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("other.key");
    write_private(&key, OTHER_KEY);
    let settings = format!(
        "[[cloud]]\nname = \"other\"\nprovider = \"azure\"\nendpoint = \"{}\"\n\
         storage_account = \"{OTHER}\"\nsecret_key_file = \"{}\"\n",
        azurite.other_url(),
        key.display()
    );
    let cluster = cluster(settings, azurite.env());
    let client = cluster.client();
    azurite.create_container("data");
    azure::create(&azurite.other_url(), "data");
    azurite.put("data", "x", "first");
    azure::put(&azurite.other_url(), "data", "x", "second");
    let (plain, other) =
        (bucket("az://data"), make(&cluster, &["az://#other/data", "--account", "other"]));
    for _ in 0..2 {
        assert_eq!(client.get_bytes(&plain, "x", None).await.unwrap(), "first");
        assert_eq!(client.get_bytes(&other, "x", None).await.unwrap(), "second");
    }
    client.put(&other, "y", "written", None).await.unwrap();
    assert!(azurite.get("data", "y").is_none());
    assert_eq!(client.list_all(&plain, "").await.unwrap().len(), 1);
    assert_eq!(client.list_all(&other, "").await.unwrap().len(), 2);
    let (text, code) = cluster.cli(&["doctor", "az://#other/data"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(OTHER) && !text.contains(OTHER_KEY), "{text}");
}

#[tokio::test]
async fn two_endpoints_of_google_are_used_side_by_side() {
    let (Some(first), Some(second)) = (FakeGcs::start(), FakeGcs::start()) else { return };
    let settings =
        format!("[[cloud]]\nname = \"lab\"\nprovider = \"gcs\"\nendpoint = \"{}\"\n", second.url);
    let cluster = cluster(settings, first.env());
    let client = cluster.client();
    for (server, text) in [(&first, "first"), (&second, "second")] {
        server.create_bucket("data");
        gcs::put(&server.url, "data", "x", text);
    }
    let (plain, lab) =
        (bucket("gs://data"), make(&cluster, &["gs://#lab/data", "--account", "lab"]));
    for _ in 0..2 {
        assert_eq!(client.get_bytes(&plain, "x", None).await.unwrap(), "first");
        assert_eq!(client.get_bytes(&lab, "x", None).await.unwrap(), "second");
    }
    client.put(&lab, "y", "written", None).await.unwrap();
    assert_eq!(client.list_all(&plain, "").await.unwrap().len(), 1);
    // The answer of a request by v1 has the bucket of the namespace, too.
    let url = format!("{}/v1/objects/data/x?provider=gcp&namespace=%23lab", cluster.endpoint);
    assert_eq!(http::request("GET", &url).follow().body, b"second");
}
