//! Every row of the table of routes against real nodes, for each kind of sender.

use forebay_core::NodeId;
use forebay_core::routes::{By, Row, Rule, Verb, Who, table};
use forebay_core::sign::{ClusterSecret, NO_BODY, NODE_AUTH_HEADER, Signer, body_hash};
use forebay_tests::cluster::{Cluster, NodeHandle};
use forebay_tests::http::{self, Answer};
use serde_json::Value;

/// A sender of requests: its name, and the headers that prove it for one request.
struct Sender<'a> {
    name: &'a str,
    headers: &'a dyn Fn(&Message<'_>) -> Vec<(String, String)>,
}

/// A request of one row.
struct Message<'a> {
    node: &'a NodeHandle,
    method: &'static str,
    /// With the query.
    path: String,
    body: String,
    header: Option<&'static str>,
}

impl<'a> Message<'a> {
    /// A request of this row that changes nothing: it names no existing bucket, job or node, and its
    /// body is incomplete.
    fn new(row: Row, node: &'a NodeHandle) -> Self {
        let rule = row.rule;
        let method = if rule.verb == Verb::Any { "PUT" } else { rule.verb.name() };
        let pulled = rule.paths[0].starts_with("/v1/etl/_object/");
        let object = if pulled { "ais%2F@%23%2Fno-such-bucket%2Fo" } else { "no-such-bucket/o" };
        let mut path = rule.paths[0].replace("{*name}", object).replace("{*key}", "o");
        for name in ["{bucket}", "{*bucket}"] {
            path = path.replace(name, "no-such-bucket");
        }
        for name in ["{id}", "{name}", "{what}", "{target}", "{order}", "{*rest}"] {
            path = path.replace(name, "none");
        }
        let (mut body, mut header) = (String::new(), None);
        match row.case.map(|case| case.by) {
            Some(By::What(what)) => path.push_str(&format!("?what={what}")),
            Some(By::Query("object_to")) => path.push_str("?object_to=ais/@%23/no-such-bucket/x"),
            Some(By::Query(key)) => path.push_str(&format!("?{key}=1")),
            Some(By::Action(action)) => body = format!(r#"{{"action": "{action}"}}"#),
            Some(By::Header(name)) => header = Some(name),
            None if rule.who == Who::Node => body = "incomplete".into(),
            None => {}
        }
        if matches!(method, "GET" | "HEAD" | "OPTIONS") && row.case.is_none() {
            body.clear();
        }
        Self { node, method, path, body, header }
    }

    fn send(&self, sender: &Sender<'_>) -> Answer {
        let url = format!("{}{}", self.node.url, self.path);
        let mut request = http::request(self.method, &url).body(self.body.as_str());
        for (name, value) in (sender.headers)(self) {
            request = request.header(&name, &value);
        }
        if let Some(name) = self.header {
            request = request.header(name, "/no-such-bucket/source");
        }
        request.send()
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
            _ => Self::Served,
        }
    }
}

/// The request of nodes that a test must not send: it has no body that could be incomplete.
const STOPS_THE_NODE: &str = "/internal/v1/stop";

/// Sends a request of every row of the table to a node that serves it, as each of the senders, and
/// compares the outcome with the expected one.
fn walk(cluster: &Cluster, senders: &[Sender<'_>], expected: impl Fn(&str, Row) -> Outcome) {
    let mut wrong = Vec::new();
    for row in table().flat_map(Rule::rows) {
        let gateway = row.rule.is_of_gateways().then(|| &cluster.gateways[0]);
        let target = row.rule.is_of_targets().then(|| &cluster.targets[0]);
        for node in gateway.into_iter().chain(target) {
            let message = Message::new(row, node);
            for sender in senders {
                if sender.name == "node" && message.path == STOPS_THE_NODE {
                    continue;
                }
                let answer = message.send(sender);
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

#[test]
fn without_users_only_requests_of_nodes_need_a_proof() {
    let cluster = Cluster::plain();
    let secret = std::fs::read_to_string(cluster.dir().join("secret")).unwrap();
    let secret = ClusterSecret::new(secret.trim()).unwrap();
    let signer = Signer::new(secret, NodeId::new("walking-node").unwrap(), 1);
    let anonymous = Sender { name: "anonymous", headers: &|_| Vec::new() };
    let node = Sender { name: "node", headers: &|message| node_proof(&signer, message) };
    walk(&cluster, &[anonymous, node], |sender, row| match (sender, row.who()) {
        ("anonymous", Who::Node) => Outcome::Denied,
        _ => Outcome::Served,
    });
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
