//! Credentials that expire in the middle of a job. Targets get theirs from servers that imitate the
//! clouds' own: tokens live a few seconds, responses are late, and every second request is refused.
//! A gate in front of a real server rejects requests with expired tokens.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay_core::Bucket;
use forebay_core::job::{JobKind, JobState, Selection};
use forebay_tests::azure::SAS;
use forebay_tests::cluster::{azure, cloud, google, native};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::gate::{Identity, through};
use forebay_tests::issuer::{Mood, SECRET, WEB_IDENTITY, bearer};
use forebay_tests::web::{Received, Reply, Web};
use forebay_tests::{Azurite, Cluster, FakeGcs, Gate, Issuer, Options, http, wait};
use serde_json::json;

/// Objects of the job, and how many a second it fetches at most.
const OBJECTS: usize = 120;
const PER_SECOND: usize = 8;

/// Writes an object directly to the cloud, not through the cluster.
type Put = Box<dyn Fn(&str, Vec<u8>)>;

/// A cluster whose targets get their credentials from an issuer.
struct World {
    cluster: Cluster,
    issuer: Arc<Issuer>,
    gate: Gate,
    bucket: Bucket,
    /// Puts an object directly, not through the gate.
    put: Put,
    _servers: Vec<Box<dyn Any>>,
}

fn set(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn cluster(env: Vec<(String, String)>) -> Cluster {
    Cluster::start(Options { targets: 1, env, ..Options::default() })
}

/// The S3 server is another cluster, which checks signatures of the key; the gate checks the
/// sessions.
async fn amazon(issuer: Arc<Issuer>, mut env: Vec<(String, String)>) -> World {
    let far = cluster(Vec::new());
    far.client().create_bucket(&native("kept-safe"), None).await.unwrap();
    let known = Arc::clone(&issuer);
    let gate = Gate::start(&far.endpoint, None, move |request| {
        let session = request.headers.get("x-amz-security-token").map(String::as_str);
        match session.is_some_and(|token| known.is_good(token)) {
            true => Ok(()),
            false => Err(Reply::new(
                400,
                "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.\
                 </Message></Error>",
            )),
        }
    });
    env.push(set("AWS_ENDPOINT_URL_S3", &format!("{}/s3", gate.url)));
    env.push(set("AWS_REGION", "us-east-1"));
    let url = far.object_url("kept-safe", "");
    let put = move |name: &str, bytes: Vec<u8>| {
        let answer = http::request("PUT", &format!("{url}{name}")).body(bytes).follow();
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let cluster = cluster(env);
    let bucket = cloud("kept-safe");
    let servers: Vec<Box<dyn Any>> = vec![Box::new(far)];
    World { cluster, issuer, gate, bucket, put: Box::new(put), _servers: servers }
}

/// A machine with a role.
async fn amazon_machine() -> Option<World> {
    let issuer = Issuer::new(14);
    let metadata = issuer.amazon_metadata();
    let env = vec![
        set("AWS_EC2_METADATA_DISABLED", "false"),
        set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url),
    ];
    Some(amazon(issuer, env).await)
}

/// A pod with a web identity.
async fn amazon_pod() -> Option<World> {
    let issuer = Issuer::new(14);
    let sts = issuer.amazon_sts();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), WEB_IDENTITY).unwrap();
    let env = vec![
        set("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/trainer"),
        set("AWS_WEB_IDENTITY_TOKEN_FILE", file.path().to_str().unwrap()),
        set("AWS_ENDPOINT_URL_STS", &sts.url),
    ];
    let mut world = amazon(issuer, env).await;
    world._servers.push(Box::new(file));
    Some(world)
}

/// A machine of Google's.
async fn google_machine() -> Option<World> {
    let server = FakeGcs::start()?;
    let identity = Identity::of(&["storage.googleapis.com"])?;
    let issuer = Issuer::new(6);
    let (known, to) = (Arc::clone(&issuer), server.url.clone());
    let gate = Gate::start(&server.url, Some(&identity), move |request| {
        if !known.is_good(bearer(request)) {
            let said = json!({ "error": { "code": 401, "message": "Invalid Credentials" } });
            return Err(Reply::new(401, said.to_string()));
        }
        send_to(request, &to);
        Ok(())
    });
    let metadata = issuer.google_metadata();
    let mut env = through(&gate, &identity);
    env.push(set("GCE_METADATA_HOST", http::split(&metadata.url).0));
    // Nothing of the environment of the user that runs the test.
    env.push(set("HOME", "/nonexistent"));
    server.create_bucket("kept-safe");
    let url = server.url.clone();
    let put =
        move |name: &str, bytes: Vec<u8>| forebay_tests::gcs::put(&url, "kept-safe", name, bytes);
    let servers: Vec<Box<dyn Any>> = vec![Box::new(server), Box::new(identity)];
    let (cluster, bucket) = (cluster(env), google("kept-safe"));
    Some(World { cluster, issuer, gate, bucket, put: Box::new(put), _servers: servers })
}

/// An app of Azure's with a managed identity. The gate replaces the token, which Azurite could not
/// check, with a signature.
async fn azure_app() -> Option<World> {
    let server = Azurite::start()?;
    let identity = Identity::of(&["forebaytest.blob.core.windows.net"])?;
    let issuer = Issuer::new(6);
    let (known, to) = (Arc::clone(&issuer), server.url.clone());
    let gate = Gate::start(&server.url, Some(&identity), move |request| {
        if !known.is_good(bearer(request)) {
            let said =
                "<Error><Code>InvalidAuthenticationInfo</Code><Message>expired</Message></Error>";
            return Err(
                Reply::new(401, said).header("x-ms-error-code", "InvalidAuthenticationInfo")
            );
        }
        let and = if request.target.contains('?') { '&' } else { '?' };
        request.target = format!("{}{}{and}{SAS}", http::split(&to).1, request.target);
        send_to(request, &to);
        Ok(())
    });
    let responder = issuer.azure_identity();
    let mut env = through(&gate, &identity);
    env.push(set("AZURE_STORAGE_ACCOUNT", "forebaytest"));
    env.push(set("AZURE_STORAGE_AUTH_MODE", "login"));
    env.push(set("IDENTITY_ENDPOINT", &responder.url));
    env.push(set("IDENTITY_HEADER", SECRET));
    server.create_container("kept-safe");
    let server = Arc::new(server);
    let there = Arc::clone(&server);
    let put = move |name: &str, bytes: Vec<u8>| there.put("kept-safe", name, bytes);
    let servers: Vec<Box<dyn Any>> = vec![Box::new(server), Box::new(identity)];
    let (cluster, bucket) = (cluster(env), azure("kept-safe"));
    Some(World { cluster, issuer, gate, bucket, put: Box::new(put), _servers: servers })
}

/// Redirects the request to the server behind the gate, and removes its credentials.
fn send_to(request: &mut Received, url: &str) {
    request.headers.insert("host".into(), http::split(url).0.to_owned());
    request.headers.remove("authorization");
}

impl World {
    /// One read of a cold object, without a retry.
    fn read(&self, name: &str) -> http::Answer {
        let provider = self.bucket.provider;
        let url = self.cluster.object_url("kept-safe", &format!("{name}?provider={provider}"));
        http::request("GET", &url).follow()
    }

    fn put_new(&self, name: &str) -> Vec<u8> {
        let bytes = content(name, 5000);
        (self.put)(name, bytes.clone());
        bytes
    }

    /// A cold read that must fail with a status that permits a retry, and with a helpful message.
    fn refused_for_now(&self, name: &str) -> http::Answer {
        self.put_new(name);
        let start = Instant::now();
        let answer = self.read(name);
        let took = start.elapsed();
        assert_ne!(answer.status, 200, "{name} was read without credentials");
        assert!(took < Duration::from_secs(60), "{name}: {took:?}");
        let text = answer.text();
        assert!(text.contains(&self.bucket.to_string()), "names no bucket: {text}");
        assert!(text.contains("credentials"), "{text}");
        assert!(!text.contains(SECRET), "tells a secret: {text}");
        answer
    }

    /// Waits until cold reads succeed again.
    fn comes_back(&self, what: &str) {
        let mut tries = 0;
        wait::until(&format!("reads succeed after {what}"), Duration::from_secs(60), || {
            tries += 1;
            let name = format!("after {what} {tries}").replace(' ', "-");
            let bytes = self.put_new(&name);
            let answer = self.read(&name);
            answer.status == 200 && answer.body == bytes
        });
    }
}

/// A prefetch of a bucket, so slow that tokens expire several times before it ends.
async fn a_job_outlives_its_tokens(world: Option<World>) {
    let Some(world) = world else { return };
    let client = world.cluster.client();
    let names = names(OBJECTS);
    for name in &names {
        (world.put)(name, content(name, 5000));
    }
    client.head_bucket(&world.bucket).await.unwrap();
    let rules = json!({ "cloud": { "requests_per_second": PER_SECOND } });
    client.set_bucket(&world.bucket, rules).await.unwrap();

    let start = Instant::now();
    let whole = Selection::default();
    let id = client.start_job(JobKind::Prefetch, &world.bucket, &whole).await.unwrap();
    wait::until_async("the job is over", Duration::from_secs(120), || {
        let (client, id) = (client.clone(), id.clone());
        async move { client.job(&id).await.unwrap().is_over() }
    })
    .await;
    let job = client.job(&id).await.unwrap();
    assert_eq!((job.state, job.errors), (JobState::Done, 0), "{:?}", job.messages);
    assert_eq!(job.objects, OBJECTS as u64);
    let (issued, refused) = (world.issuer.issued(), world.issuer.refused());
    assert!(start.elapsed() > Duration::from_secs(12), "{:?}", start.elapsed());
    assert!(issued >= 2 && refused >= 1, "{issued} tokens, {refused} refusals");
    // When the metadata server issues no new credentials, Amazon's SDK sends its last ones.
    assert!(world.gate.turned_away() <= refused, "{} were turned away", world.gate.turned_away());
    for name in &names {
        let got = client.get_bytes(&world.bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, 5000));
    }
}

/// The issuer times out or refuses all requests, and recovers each time.
async fn failures_to_get_tokens_pass(world: Option<World>) {
    let Some(world) = world else { return };
    world.comes_back("the start");
    // Until the last token has expired.
    let expired = |mood: Mood| {
        world.issuer.treat_them(mood);
        std::thread::sleep(Duration::from_secs(15));
    };
    expired(Mood::Refusing(503));
    let answer = world.refused_for_now("busy");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some(), "{}", answer.text());
    world.issuer.treat_them(Mood::Strained);
    world.comes_back("refusals");

    expired(Mood::Refusing(403));
    world.refused_for_now("forbidden");
    world.issuer.treat_them(Mood::Strained);
    world.comes_back("a no");

    expired(Mood::Silent);
    world.refused_for_now("silent");
    world.issuer.treat_them(Mood::Strained);
    world.comes_back("silence");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_role_gets_an_error_without_a_retry() {
    let asked = Arc::new(AtomicUsize::new(0));
    let metadata = Web::start({
        let asked = Arc::clone(&asked);
        move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            Reply::new(403, "")
        }
    });
    let cluster = cluster(vec![
        set("AWS_EC2_METADATA_DISABLED", "false"),
        set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url),
        set("AWS_REGION", "us-east-1"),
    ]);
    let url = format!("{}?provider=aws", cluster.object_url("kept-safe", "o"));
    let answer = http::request("GET", &url).follow();
    assert_eq!(answer.status, 403, "{}", answer.text());
    let text = answer.text();
    for wanted in ["no credentials", "s3://kept-safe", "AWS_ACCESS_KEY_ID"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let asked = asked.load(Ordering::Relaxed);
    assert!((1..=4).contains(&asked), "asked {asked} times");
}

macro_rules! worlds {
    ($($module:ident: $world:path;)*) => {$(
        mod $module {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_job_outlives_its_tokens() {
                super::a_job_outlives_its_tokens($world().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn failures_to_get_tokens_pass() {
                super::failures_to_get_tokens_pass($world().await).await;
            }
        }
    )*};
}

worlds! {
    role_of_a_machine_at_amazon: super::amazon_machine;
    web_identity_of_a_pod_at_amazon: super::amazon_pod;
    service_account_of_a_machine_at_google: super::google_machine;
    managed_identity_at_azure: super::azure_app;
}
