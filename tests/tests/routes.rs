//! Every row of the table of routes against real nodes, for each kind of sender.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::NodeId;
use forebay_core::sign::{ClusterSecret, NO_BODY, NODE_AUTH_HEADER, NodeKey, Signer, body_hash};
use forebay_routes::{By, Row, Rule, Verb, Who, table};
use forebay_tests::cluster::{Cluster, NodeHandle};
use forebay_tests::http::{self, Answer};
use forebay_tests::users::PASSWORD;
use forebay_tests::{Options, Users};
use serde_json::{Value, json};

/// The senders of each operation, as for the test of the table itself.
const SENDERS: &str = include_str!("../../crates/routes/src/senders.txt");
/// A bucket for the rows of S3.
const S3_BUCKET: &str = "walked";
/// Outcomes that follow from what the request names, which does not exist.
const SPECIAL: [(&str, &[&str], Outcome); 6] = [
    // A form has its own signature, and this one has none.
    ("PostObject", &["writer", "admin"], Outcome::Denied),
    // The job would create the bucket.
    ("copy-bck", &["writer"], Outcome::Denied),
    ("download", &["writer"], Outcome::Denied),
    // A job that does not exist is missing for everybody.
    ("dsort_remove", &["viewer", "reader"], Outcome::Served),
    ("dsort_abort", &["viewer", "reader"], Outcome::Served),
    // The key belongs to nobody.
    ("auth_delete_key", &["viewer", "reader", "writer", "jobs"], Outcome::Denied),
];

/// A sender of requests: its name, and the headers that prove it for one request.
pub(crate) struct Sender<'a> {
    pub(crate) name: &'a str,
    pub(crate) headers: &'a dyn Fn(&Message<'_>) -> Vec<(String, String)>,
}

/// A request of one row.
pub(crate) struct Message<'a> {
    node: &'a NodeHandle,
    method: &'static str,
    /// With the query.
    pub(crate) path: String,
    body: String,
    header: Option<&'static str>,
}

impl<'a> Message<'a> {
    /// A request of this row that changes nothing: it names no existing bucket, job or node. Its body
    /// has only what the check of rights reads.
    pub(crate) fn new(row: Row, node: &'a NodeHandle, sender: &str) -> Self {
        let rule = row.rule;
        let method = if rule.verb == Verb::Any { "PUT" } else { rule.verb.name() };
        let pulled = rule.paths[0].starts_with("/v1/etl/_object/");
        let object = if pulled { "ais%2F@%23%2Fno-such-bucket%2Fo" } else { "no-such-bucket/o" };
        let mut path = rule.paths[0].replace("{*name}", object).replace("{*key}", "o");
        // A missing bucket of S3 is missing also for senders that may only see buckets.
        let bucket = if rule.is_of_s3() { S3_BUCKET } else { "no-such-bucket" };
        for name in ["{bucket}", "{*bucket}"] {
            path = path.replace(name, bucket);
        }
        if matches!(row.operation(), "auth_user" | "auth_set_user") {
            path = path.replace("{name}", sender);
        }
        for name in ["{id}", "{name}", "{what}", "{target}", "{order}", "{*rest}"] {
            path = path.replace(name, "none");
        }
        let (mut body, mut header) = (String::new(), None);
        match row.case.map(|case| case.by) {
            Some(By::What(what)) => path.push_str(&format!("?what={what}")),
            Some(By::Query("object_to")) => path.push_str("?object_to=ais/@%23/no-such-bucket/x"),
            Some(By::Query("partNumber")) => path.push_str("?partNumber=1&uploadId=1"),
            Some(By::Query(key)) => path.push_str(&format!("?{key}=1")),
            Some(By::Action(action)) => {
                let mut message = json!({ "action": action });
                if let (Value::Object(message), Value::Object(fields)) =
                    (&mut message, fields_of(row.operation()))
                {
                    message.extend(fields);
                }
                body = message.to_string();
            }
            Some(By::Header(name)) => header = Some(name),
            None if rule.who == Who::Node => body = "incomplete".into(),
            None => {
                let fields = fields_of(row.operation());
                if fields != Value::Null {
                    body = fields.to_string();
                }
            }
        }
        match row.operation() {
            "DeleteObjects" => body = "<Delete><Object><Key>o</Key></Object></Delete>".into(),
            "PutObjectTagging" => body = "<Tagging><TagSet></TagSet></Tagging>".into(),
            "GetObjectAttributes" => header = Some("x-amz-object-attributes"),
            "PostObject" => (body, header) = (form(), Some("content-type")),
            _ => {}
        }
        if matches!(row.operation(), "overview_live" | "requests_live") {
            path.push_str("?max_s=0");
        }
        if matches!(row.operation(), "copy-bck" | "etl-bck" | "move-bck") {
            path.push_str("?bck_to=ais/@%23/no-such-copy/");
        }
        if matches!(method, "GET" | "HEAD" | "OPTIONS")
            && row.case.is_none()
            && row.operation() != "moss"
        {
            body.clear();
        }
        Self { node, method, path, body, header }
    }

    pub(crate) fn send(&self, sender: &Sender<'_>) -> Answer {
        let url = format!("{}{}", self.node.url, self.path);
        let mut request = http::request(self.method, &url).body(self.body.as_str());
        for (name, value) in (sender.headers)(self) {
            request = request.header(&name, &value);
        }
        if let Some(name) = self.header {
            let value = match name {
                "x-amz-object-attributes" => "ETag",
                "content-type" => "multipart/form-data; boundary=x",
                _ => "/no-such-bucket/source",
            };
            request = request.header(name, value);
        }
        request.send()
    }
}

/// A form that uploads an object.
fn form() -> String {
    let part = |name: &str, value: &str| {
        format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    format!("{}{}--x--\r\n", part("key", "o"), part("file", "bytes"))
}

/// The fields of the body that name the objects of a request.
fn fields_of(operation: &str) -> Value {
    let bucket =
        json!({"name": "no-such-bucket", "provider": "ais", "namespace": {"uuid": "", "name": ""}});
    let copy =
        json!({"name": "no-such-copy", "provider": "ais", "namespace": {"uuid": "", "name": ""}});
    match operation {
        "moss" => json!({"in": [{"objname": "o", "bucket": "no-such-bucket", "provider": "ais"}]}),
        "batch" => json!({"buckets": [bucket], "entries": [{"bucket": 0, "name": "o"}]}),
        "feed_put" => json!({
            "id": "none", "buckets": ["ais://no-such-bucket"], "steps": 0, "wait_s": 0, "step_s": 0,
        }),
        "ishard" => json!({"source": bucket, "destination": copy}),
        "dsort" => json!({
            "input_bck": bucket, "output_bck": copy, "input_extension": ".tar",
            "output_extension": ".tar", "input_format": {"template": "in-{0..1}"}, "output_format": "out-{0..1}",
            "output_shard_size": "1MB", "algorithm": {"kind": "alphanumeric"},
        }),
        "download" => json!({
            "type": "single", "bucket": bucket, "link": "http://192.0.2.1/x", "object_name": "o",
        }),
        "etl-bck" => json!({"value": {"id": "none"}}),
        "etl-listrange" => json!({"value": {"id": "none", "objnames": ["o"], "tobck": copy}}),
        "copy-listrange" => json!({"value": {"objnames": ["o"], "tobck": copy}}),
        "write-back" => json!({"value": {"tobck": copy}}),
        "archive" => json!({"value": {"archname": "a.tar", "objnames": ["o"], "tobck": copy}}),
        "prefetch-listrange" | "evict-listrange" | "delete-listrange" => {
            json!({"value": {"objnames": ["o"]}})
        }
        "rename-obj" | "blob-download" => json!({"name": "o2"}),
        "promote" => json!({"name": "o", "value": {"src": "/nothing"}}),
        "start" | "stop" => json!({"value": {"kind": "scrub", "bck": bucket}}),
        _ => Value::Null,
    }
}

/// Whether a row refuses a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Served,
    Unauthenticated,
    Denied,
}

impl Outcome {
    fn of(answer: &Answer) -> Self {
        match answer.status {
            401 => Self::Unauthenticated,
            403 => Self::Denied,
            // A deletion of several objects has a result for each.
            200 if answer.text().contains("<Code>AccessDenied</Code>") => Self::Denied,
            _ => Self::Served,
        }
    }
}

/// The requests of nodes that a test must not send: one stops the node, the answer to the other has no
/// end.
const NOT_SENT: [&str; 2] = ["/internal/v1/stop", "/internal/v1/requests/live"];

/// Sends a request of every row of the table to a node that serves it, as each of the senders, and
/// compares the outcome with the expected one. `prepare` runs before each request.
fn walk(
    cluster: &Cluster,
    rows: impl Iterator<Item = Row>,
    senders: &[Sender<'_>],
    prepare: impl Fn(Row),
    expected: impl Fn(&str, Row) -> Outcome,
) {
    let mut wrong = Vec::new();
    for row in rows {
        let gateway = row.rule.is_of_gateways().then(|| &cluster.gateways[0]);
        let target = row.rule.is_of_targets().then(|| &cluster.targets[0]);
        for node in gateway.into_iter().chain(target) {
            for sender in senders {
                prepare(row);
                let message = Message::new(row, node, sender.name);
                if sender.name == "node" && NOT_SENT.contains(&message.path.as_str()) {
                    continue;
                }
                let answer = message.send(sender);
                // A target takes no change from clients that no gateway has sent.
                let redirected = "expected to be redirected by a gateway";
                if answer.status == 400 && answer.text().contains(redirected) {
                    assert!(sender.name != "node");
                    continue;
                }
                let (got, wanted) = (Outcome::of(&answer), expected(sender.name, row));
                if got != wanted {
                    wrong.push(format!(
                        "{} {} ({}) to {} by {}: {got:?} instead of {wanted:?}, {} {}",
                        message.method,
                        message.path,
                        row.operation(),
                        node.id,
                        sender.name,
                        answer.status,
                        answer.text()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Signs each request as a node of the cluster.
fn node_proof(signer: &Signer, message: &Message<'_>) -> Vec<(String, String)> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let hash = match message.body.as_str() {
        "" => NO_BODY.to_owned(),
        body => body_hash(body.as_bytes()),
    };
    let url = &message.node.url;
    let proof = signer.node_call(message.method, &message.path, &hash, url, now);
    vec![(NODE_AUTH_HEADER.into(), proof)]
}

/// Signs as a target of the cluster, with its key.
fn member(cluster: &Cluster, secret: ClusterSecret) -> Signer {
    let id = &cluster.targets[0].id;
    let file = cluster.dir().join(id).join("state").join("node.key");
    let seed = std::fs::read_to_string(file).unwrap();
    let seed = URL_SAFE_NO_PAD.decode(seed.trim()).unwrap().try_into().unwrap();
    let key = NodeKey::of_seed(&seed).unwrap();
    Signer::new(secret, NodeId::new(id).unwrap(), 1 << 40).with_key(key).as_member()
}

#[test]
fn without_users_only_requests_of_nodes_need_a_proof() {
    let cluster = Cluster::plain();
    let secret = std::fs::read_to_string(cluster.dir().join("secret")).unwrap();
    let secret = ClusterSecret::new(secret.trim()).unwrap();
    let signer = Signer::new(secret, NodeId::new("walking-node").unwrap(), 1);
    let anonymous = Sender { name: "anonymous", headers: &|_| Vec::new() };
    let node = Sender { name: "node", headers: &|message| node_proof(&signer, message) };
    // S3 has keys also without users; its rights have tests of their own.
    let rows = table().filter(|rule| !rule.is_of_s3()).flat_map(Rule::rows);
    walk(
        &cluster,
        rows,
        &[anonymous, node],
        |_| {},
        |sender, row| match (sender, row.who()) {
            ("anonymous", Who::Node) => Outcome::Denied,
            _ => Outcome::Served,
        },
    );
}

#[test]
fn with_users_every_route_accepts_its_senders_and_no_others() {
    let users = Users::start(Options { gateways: 1, targets: 3, ..Options::default() });
    let (cluster, root) = (&users.cluster, users.root.as_str());
    for role in ["viewer", "reader", "writer", "admin", "jobs"] {
        users.add(role, &[role]);
    }
    let (expired, revoked) = (users.token("admin", 1), users.token("admin", 600));
    users.auth("DELETE", "tokens", &json!({ "token": revoked }));
    std::thread::sleep(Duration::from_secs(2));

    let secret = std::fs::read_to_string(cluster.dir().join("secret")).unwrap();
    let secret = ClusterSecret::new(secret.trim()).unwrap();
    let signer = member(cluster, secret);
    let bearer = |token: &str| vec![("authorization".to_owned(), format!("Bearer {token}"))];
    let tokens: Vec<(&str, String)> = ["viewer", "reader", "writer", "admin", "jobs"]
        .into_iter()
        .map(|role| (role, users.token(role, 3600)))
        .chain([("expired", expired), ("revoked", revoked)])
        .collect();
    let proofs: Vec<_> =
        tokens.iter().map(|(name, token)| (*name, move |_: &Message<'_>| bearer(token))).collect();
    let mut senders: Vec<_> =
        proofs.iter().map(|(name, headers)| Sender { name, headers }).collect();
    let of_node = |message: &Message<'_>| node_proof(&signer, message);
    senders.push(Sender { name: "anonymous", headers: &|_| Vec::new() });
    senders.push(Sender { name: "node", headers: &of_node });

    let prepare = |row: Row| {
        if row.rule.is_of_s3() {
            for path in [S3_BUCKET.to_owned(), format!("{S3_BUCKET}/o")] {
                let request = http::request("PUT", &format!("{}/s3/{path}", cluster.endpoint));
                let made = request.header("authorization", &format!("Bearer {root}")).send();
                assert!([200, 409].contains(&made.status), "{}", made.text());
            }
        }
    };
    walk(cluster, table().flat_map(Rule::rows), &senders, prepare, |sender, row| {
        if row.who() == Who::Node {
            return if sender == "node" { Outcome::Served } else { Outcome::Denied };
        }
        let accepted = SENDERS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(": "))
            .find(|(_, names)| names.split_whitespace().any(|name| name == row.operation()));
        let accepted = accepted.unwrap_or_else(|| panic!("no senders of {}", row.operation())).0;
        match sender {
            _ if accepted == "anyone" => Outcome::Served,
            "anonymous" | "expired" | "revoked" if row.rule.is_of_s3() => Outcome::Denied,
            "anonymous" | "expired" | "revoked" => Outcome::Unauthenticated,
            // Nodes have no user of S3.
            "node" if row.rule.is_of_s3() => Outcome::Denied,
            "node" => Outcome::Served,
            role if SPECIAL
                .iter()
                .any(|(name, roles, _)| *name == row.operation() && roles.contains(&role)) =>
            {
                SPECIAL.iter().find(|(name, ..)| *name == row.operation()).map(|s| s.2).unwrap()
            }
            role if accepted.contains(&role[..1]) => Outcome::Served,
            _ => Outcome::Denied,
        }
    });
}

#[test]
fn no_answer_to_a_stranger_has_a_secret_or_a_value_of_the_environment() {
    let planted =
        ["planted-s3-key", "planted-of-aws", "planted-of-azure", "planted-in-environment"];
    let keys = format!(r#"[{{access = "someone", secret = "{}"}}]"#, planted[0]);
    let env = [
        ("FOREBAY_S3__KEYS", keys.as_str()),
        ("AWS_SECRET_ACCESS_KEY", planted[1]),
        ("AZURE_STORAGE_KEY", planted[2]),
        ("SOME_SETTING", planted[3]),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let users = Users::start(Options { gateways: 1, targets: 1, env, ..Options::default() });
    let cluster = &users.cluster;
    let secret = std::fs::read_to_string(cluster.dir().join("secret")).unwrap();
    let folder = cluster.dir().display().to_string();
    let hidden = [PASSWORD, secret.trim(), &users.root, &folder];
    let hidden: Vec<&str> = planted.into_iter().chain(hidden).collect();
    let anonymous = Sender { name: "anonymous", headers: &|_| Vec::new() };
    let assert_hidden = |what: &str, answer: &Answer| {
        for (name, value) in answer.headers().chain([("body", answer.text().as_str())]) {
            let found = hidden.iter().find(|text| value.contains(**text));
            assert!(found.is_none(), "{what}: {found:?} in {name}: {value}");
        }
    };
    for row in table().flat_map(Rule::rows) {
        let gateway = row.rule.is_of_gateways().then(|| &cluster.gateways[0]);
        let target = row.rule.is_of_targets().then(|| &cluster.targets[0]);
        for node in gateway.into_iter().chain(target) {
            let message = Message::new(row, node, "anonymous");
            assert_hidden(&message.path, &message.send(&anonymous));
        }
    }
    for node in cluster.gateways.iter().chain(&cluster.targets) {
        for path in ["/", "/env", "/debug/pprof/cmdline", "/minio/bootstrap/v1/verify", "/%00"] {
            for method in ["GET", "POST"] {
                let answer = http::request(method, &format!("{}{path}", node.url)).send();
                assert_hidden(path, &answer);
            }
        }
    }
}

#[test]
fn the_description_of_the_api_has_every_path() {
    let cluster = Cluster::plain();
    let answer = http::get(&format!("{}/api/openapi.json", cluster.endpoint));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for rule in table().filter(|rule| rule.who != Who::Node) {
        let path = rule.paths[0].replace("{*", "{");
        assert!(document["paths"].get(&path).is_some(), "{path}");
    }
}
