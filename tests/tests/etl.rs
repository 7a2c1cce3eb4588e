//! Transforms: objects that a service, or a command of the configuration, changes on their way out.

use std::sync::Arc;
use std::time::Duration;

use forebay_tests::cluster::native;
use forebay_tests::http::{self, Answer};
use forebay_tests::web::{Received, Reply, Web};
use forebay_tests::{Cluster, Options, Shared, wait};
use serde_json::{Value, json};

const COMMANDS: &str = r#"[{name="reverse", argv=["rev"]},
    {name="fails", argv=["sh", "-c", "cat >/dev/null; echo no such picture >&2; exit 3"]},
    {name="told", argv=["sh", "-c", "cat >/dev/null; printf '%s %s %s' \"$ETL_BUCKET\" \"$ETL_OBJECT\" \"$ETL_ARGS\""]}]"#;

struct World {
    cluster: Cluster,
    /// Answers with upper-case letters, and with what it was asked.
    upper: Web,
}

static WORLD: Shared<World> = Shared::new();

fn world() -> Arc<World> {
    WORLD.get(|| {
        let env = vec![("FOREBAY_ETL__COMMAND".to_owned(), COMMANDS.replace('\n', " "))];
        World {
            cluster: Cluster::start(Options { env, ..Options::default() }),
            upper: Web::start(upper),
        }
    })
}

fn upper(request: &Received) -> Reply {
    let target = request.target.as_str();
    if target.contains("bad") {
        return Reply::new(500, "I do not like this one");
    }
    if target.contains("slow") {
        std::thread::sleep(Duration::from_secs(3));
    }
    let args = target.split_once("etl_args=").map(|(_, args)| args).unwrap_or_default();
    let body = [request.body.to_ascii_uppercase(), args.as_bytes().to_vec()].concat();
    Reply::new(200, body).header("content-type", "text/upper")
}

impl World {
    fn init(&self, message: &Value) -> Answer {
        http::request("PUT", &format!("{}/v1/etl", self.cluster.endpoint)).json(message).send()
    }

    /// Registers as the Python client does, which can name a URL only as an image.
    fn init_image(&self, name: &str, image: &str) -> Answer {
        self.init(&json!({"name": name, "communication": "hpush://", "init_timeout": "300ms",
            "obj_timeout": "500ms", "runtime": {"image": image}}))
    }

    fn etl(&self, method: &str, path: &str) -> Answer {
        http::request(method, &format!("{}/v1/etl{path}", self.cluster.endpoint)).send()
    }

    async fn bucket(&self, name: &str, objects: &[(&str, &str)]) {
        let client = self.cluster.client();
        let bucket = native(name);
        client.create_bucket(&bucket, None).await.unwrap();
        for (object, content) in objects {
            client.put(&bucket, object, content.as_bytes().to_vec(), None).await.unwrap();
        }
    }

    fn get(&self, bucket: &str, object: &str, query: &str) -> Answer {
        let url = format!("{}?{query}", self.cluster.object_url(bucket, object));
        http::request("GET", &url).follow()
    }
}

#[tokio::test]
async fn a_service_changes_an_object_on_its_way_out() {
    let world = world();
    world.bucket("etl-inline", &[("d/x y", "some words"), ("empty", "")]).await;
    let made = world.init_image("upper-inline", &world.upper.url);
    assert_eq!(made.status, 200, "{}", made.text());
    assert!(made.text().starts_with("etl-"), "{}", made.text());

    let got =
        world.get("etl-inline", "d/x%20y", "etl_name=upper-inline&etl_pipeline=&etl_args=%7B1%7D");
    assert_eq!((got.status, got.text().as_str()), (200, "SOME WORDS%7B1%7D"));
    assert_eq!(got.header("content-type"), Some("text/upper"));
    assert_eq!(got.header("content-length"), Some("17"));
    assert_eq!(world.get("etl-inline", "empty", "etl_name=upper-inline").body, b"");
    // The stored object is unchanged.
    assert_eq!(world.get("etl-inline", "d/x%20y", "").text(), "some words");

    let missing = world.get("etl-inline", "none", "etl_name=upper-inline");
    assert_eq!(missing.status, 404);
    assert!(
        missing.message().contains("ais://etl-inline/none does not exist"),
        "{}",
        missing.message()
    );
}

#[tokio::test]
async fn a_large_object_goes_through_without_being_held() {
    let world = world();
    let large = "many words ".repeat(1 << 19);
    world.bucket("etl-large", &[("x", &large)]).await;
    assert_eq!(world.init(&json!({"name": "upper-large", "url": world.upper.url})).status, 200);
    let got = world.get("etl-large", "x", "etl_name=upper-large");
    assert!(got.status == 200 && got.body == large.to_ascii_uppercase().into_bytes());
}

#[tokio::test]
async fn stages_of_a_pipeline_follow_each_other() {
    let world = world();
    world.bucket("etl-pipe", &[("x", "abc")]).await;
    assert_eq!(world.init_image("upper-pipe", &world.upper.url).status, 200);
    assert_eq!(world.init_image("reverse-pipe", "command://reverse").status, 200);
    let got =
        world.get("etl-pipe", "x", "etl_name=reverse-pipe&etl_pipeline=upper-pipe,reverse-pipe");
    assert_eq!((got.status, got.text().trim_end()), (200, "ABC"));
    let got = world.get("etl-pipe", "x", "etl_name=reverse-pipe&etl_pipeline=nobody-here");
    assert_eq!((got.status, got.message().as_str()), (404, "etl job nobody-here does not exist"));
}

#[tokio::test]
async fn a_command_is_one_of_the_configuration_and_none_other() {
    let world = world();
    world.bucket("etl-command", &[("a/b", "x")]).await;
    assert_eq!(world.init(&json!({"name": "told-command", "command": "told"})).status, 200);
    let got = world.get("etl-command", "a/b", "etl_name=told-command&etl_args=%24(id)");
    assert_eq!(got.text(), "ais://etl-command a/b $(id)");

    let unknown = world.init_image("unknown-command", "command://rm");
    assert_eq!(unknown.status, 400);
    assert!(unknown.message().contains("has no command \"rm\""), "{}", unknown.message());

    assert_eq!(world.init_image("fails-command", "command://fails").status, 200);
    let failed = world.get("etl-command", "a/b", "etl_name=fails-command");
    assert_eq!(failed.status, 422, "no client tries for long what will fail again");
    assert!(failed.message().contains("no such picture"), "{}", failed.message());
}

#[tokio::test]
async fn a_service_that_refuses_or_times_out_fails_the_object_and_is_reported() {
    let world = world();
    world.bucket("etl-fails", &[("bad", "x"), ("slow", "x"), ("good", "x")]).await;
    assert_eq!(world.init_image("upper-fails", &world.upper.url).status, 200);
    let refused = world.get("etl-fails", "bad", "etl_name=upper-fails");
    assert_eq!(refused.status, 422);
    assert!(refused.message().contains("I do not like this one"), "{}", refused.message());
    let slow = world.get("etl-fails", "slow", "etl_name=upper-fails");
    assert_eq!(slow.status, 422);
    assert!(slow.message().contains("took longer than 500ms"), "{}", slow.message());
    assert_eq!(world.get("etl-fails", "good", "etl_name=upper-fails").text(), "X");

    let view = world.etl("GET", "/upper-fails?uuid=").json();
    assert_eq!(view["init_msg"]["name"], "upper-fails");
    assert_eq!(view["init_msg"]["communication"], "hpush://");
    let mut names: Vec<_> = view["obj_errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["obj_name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["ais://etl-fails/bad", "ais://etl-fails/slow"]);
    let logs = world.etl("GET", "/upper-fails/logs").json();
    assert_eq!(logs.as_array().unwrap().len(), 3, "a row for each target");
    let health = world.etl("GET", "/upper-fails/health").json();
    assert!(
        health.as_array().unwrap().iter().all(|row| row["health_status"] == "Running"),
        "{health}"
    );
}

#[tokio::test]
async fn a_transform_lives_until_it_is_deleted() {
    let world = world();
    world.bucket("etl-life", &[("x", "abc")]).await;
    let job = world.init_image("upper-life", &world.upper.url).text();
    let again = world.init_image("upper-life", &world.upper.url);
    assert_eq!(
        (again.status, again.message().as_str()),
        (409, "etl job upper-life already exists")
    );
    world.get("etl-life", "x", "etl_name=upper-life");

    let row = || {
        let list = world.etl("GET", "").json();
        let rows = list.as_array().unwrap().clone();
        rows.into_iter().find(|row| row["id"] == "upper-life")
    };
    let running = row().unwrap();
    assert_eq!(
        (running["stage"].as_str(), running["xaction_id"].as_str()),
        (Some("Running"), Some(job.as_str()))
    );
    assert_eq!((running["obj_count"].as_u64(), running["in_bytes"].as_u64()), (Some(1), Some(3)));

    assert_eq!(world.etl("POST", "/upper-life/start").status, 400, "it runs");
    assert_eq!(world.etl("POST", "/upper-life/stop").status, 200);
    assert_eq!(row().unwrap()["stage"], "Aborted");
    let stopped = world.get("etl-life", "x", "etl_name=upper-life");
    assert_eq!(stopped.status, 400);
    assert!(stopped.message().contains("is not running"), "{}", stopped.message());
    let started = world.etl("POST", "/upper-life/start");
    assert!(started.status == 200 && started.text() != job, "{}", started.text());
    assert_eq!(world.get("etl-life", "x", "etl_name=upper-life").text(), "ABC");

    assert_eq!(world.etl("DELETE", "/upper-life").status, 200);
    assert!(row().is_none());
    for (method, path) in [
        ("GET", "/upper-life"),
        ("DELETE", "/upper-life"),
        ("POST", "/upper-life/stop"),
        ("GET", "/upper-life/logs"),
    ] {
        let gone = world.etl(method, path);
        assert_eq!(
            (gone.status, gone.message().as_str()),
            (404, "etl job upper-life does not exist"),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn invalid_transforms_are_refused_on_registration() {
    let world = world();
    let image = world.init_image("with-image", "aistorage/runtime_python:3.11");
    assert_eq!(image.status, 501);
    assert!(image.message().contains("needs Kubernetes"), "{}", image.message());
    let away = world.init_image("nobody-there", "http://127.0.0.1:1");
    assert_eq!(away.status, 400);
    assert!(away.message().contains("does not answer"), "{}", away.message());
    // The address where a cloud issues a machine's credentials.
    let metadata = world.init_image("metadata", "http://169.254.169.254");
    assert_eq!(metadata.status, 403, "{}", metadata.text());
    for bad in [
        json!({}),
        json!([1]),
        json!({"name": "with-slash/", "url": "http://h"}),
        json!({"name": 1}),
    ] {
        assert_eq!(world.init(&bad).status, 400, "{bad}");
    }
    let garbage =
        http::request("PUT", &format!("{}/v1/etl", world.cluster.endpoint)).body("{").send();
    assert_eq!(garbage.status, 400);
    assert_eq!(world.etl("POST", "/etl-name/jump").status, 404);
}

#[tokio::test]
async fn a_service_may_read_the_object_itself() {
    let world = world();
    world.bucket("etl-pull", &[("d/x y", "pulled words")]).await;
    let gateway = world.cluster.endpoint.clone();
    // As the services of the Python client do: AIS_TARGET_URL, and the path that they were asked for.
    let service = Web::start(move |request| {
        let path = request.target.split('?').next().unwrap_or_default();
        let got = http::request("GET", &format!("{gateway}/v1/etl/_object{path}")).follow();
        Reply::new(got.status, got.body.to_ascii_uppercase())
    });
    let message = json!({"name": "upper-pull", "communication": "hpull://",
        "runtime": {"image": service.url}});
    assert_eq!(world.init(&message).status, 200);
    let got = world.get("etl-pull", "d/x%20y", "etl_name=upper-pull");
    assert_eq!((got.status, got.text().as_str()), (200, "PULLED WORDS"));
    // Some clients follow no redirects; for them any target serves the request.
    for target in &world.cluster.targets {
        let plain = |name: &str| {
            http::get(&format!("{}/v1/etl/_object/ais%2F@%23%2Fetl-pull%2F{name}", target.url))
        };
        assert_eq!(plain("d%2Fx%20y").text(), "pulled words");
        assert_eq!(plain("none").status, 404);
    }
}

#[tokio::test]
async fn a_transform_outlives_its_cluster() {
    let mut cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let service = Web::start(upper);
    let message = json!({"name": "upper-again", "url": service.url});
    let made =
        http::request("POST", &format!("{}/api/v1/etl", cluster.endpoint)).json(&message).send();
    assert_eq!((made.status, made.json()["name"].as_str()), (200, Some("upper-again")));
    let client = cluster.client();
    client.create_bucket(&native("b"), None).await.unwrap();
    client.put(&native("b"), "x", "abc", None).await.unwrap();
    cluster.stop();
    let cluster = cluster.start_again(None);
    let got =
        http::request("GET", &format!("{}?etl_name=upper-again", cluster.object_url("b", "x")))
            .follow();
    assert_eq!((got.status, got.text().as_str()), (200, "ABC"));
}

impl World {
    /// Starts a job on a bucket; its id.
    fn act(&self, bucket: &str, query: &str, action: &Value) -> Answer {
        let url = format!("{}/v1/buckets/{bucket}?{query}", self.cluster.endpoint);
        http::request("POST", &url).json(action).send()
    }

    /// Waits for a job as the Python client does for one that is not idle.
    fn ended(&self, id: &str) -> Value {
        let url = format!("{}/v1/cluster?what=status", self.cluster.endpoint);
        let mut status = Value::Null;
        wait::until(&format!("{id} is over"), Duration::from_secs(20), || {
            status = http::request("GET", &url).json(&json!({"id": id})).send().json();
            status["end_time"].as_u64() != Some(0)
        });
        status
    }
}

#[tokio::test]
async fn a_bucket_is_transformed_into_another_and_failures_are_reported() {
    let world = world();
    world
        .bucket("etl-from", &[("a.txt", "one"), ("b.txt", "two"), ("c.jpg", "three"), ("bad", "x")])
        .await;
    assert_eq!(world.init_image("upper-bucket", &world.upper.url).status, 200);
    let value = json!({"id": "upper-bucket", "request_timeout": "5m", "pipeline": null, "prefix": "",
        "prepend": "n/", "ext": {"txt": "up"}, "dry_run": false, "force": false, "coer": true});
    let started = world.act(
        "etl-from",
        "bck_to=ais/@%23/etl-to/",
        &json!({"action": "etl-bck", "value": value}),
    );
    assert_eq!(started.status, 200, "{}", started.text());
    let job = started.text();
    let status = world.ended(&job);
    assert_eq!(status["kind"], "etl-bck");
    assert!(!status["err"].as_str().unwrap().is_empty(), "{status}");
    let view = world.etl("GET", &format!("/upper-bucket?uuid={job}")).json();
    assert_eq!(view["obj_errors"][0]["obj_name"], "ais://etl-from/bad", "{view}");
    let listed = world.cluster.client().list_all(&native("etl-to"), "").await.unwrap();
    assert_eq!(listed, [("n/a.up".into(), 3), ("n/b.up".into(), 3), ("n/c.jpg".into(), 5)]);
    assert_eq!(world.get("etl-to", "n/c.jpg", "").text(), "THREE");

    let unknown = json!({"action": "etl-bck", "value": {"id": "nobody-here"}});
    let unknown = world.act("etl-from", "bck_to=ais/@%23/etl-to/", &unknown);
    assert_eq!(
        (unknown.status, unknown.message().as_str()),
        (404, "etl job nobody-here does not exist")
    );
    let itself = json!({"action": "etl-bck", "value": {"id": "upper-bucket", "prepend": "n"}});
    assert_eq!(world.act("etl-from", "bck_to=ais/@%23/etl-from/", &itself).status, 400);
}

#[tokio::test]
async fn chosen_objects_are_transformed_or_only_looked_at() {
    let world = world();
    world.bucket("etl-some", &[("a", "one"), ("b", "two"), ("bad", "x")]).await;
    assert_eq!(world.init_image("upper-some", &world.upper.url).status, 200);
    let to = json!({"name": "etl-some-to", "provider": "ais"});
    let value = json!({"objnames": ["b"], "id": "upper-some", "tobck": to});
    let started = world.act("etl-some", "", &json!({"action": "etl-listrange", "value": value}));
    assert_eq!(started.status, 200, "{}", started.text());
    world.ended(&started.text());
    assert_eq!(world.get("etl-some-to", "b", "").text(), "TWO");
    assert_eq!(world.get("etl-some-to", "a", "").status, 404);

    let value = json!({"id": "upper-some", "dry_run": true, "coer": true});
    let started = world.act(
        "etl-some",
        "bck_to=ais/@%23/etl-some/",
        &json!({"action": "etl-bck", "value": value}),
    );
    let job = started.text();
    world.ended(&job);
    let view = world.etl("GET", &format!("/upper-some?uuid={job}")).json();
    assert_eq!(view["obj_errors"].as_array().unwrap().len(), 1, "{view}");
    assert_eq!(world.get("etl-some", "a", "").text(), "one", "nothing is written");

    let copy = format!(
        "{}?object_to=ais/@%23/etl-some-to/c&etl_name=upper-some",
        world.cluster.object_url("etl-some", "a")
    );
    let copied = http::request("PUT", &copy).follow();
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert_eq!(world.get("etl-some-to", "c", "").text(), "ONE");
}
