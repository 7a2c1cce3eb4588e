//! Traces: one tree of spans from the client's to the backend's, at a collector that decodes the
//! official messages; which traces are chosen; the commands that show them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::trace::{TraceId, TraceReply};
use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::private_file::write_private;
use forebay_tests::s3::{OWNER, request as s3_request};
use forebay_tests::web::{Received, Reply, Web};
use forebay_tests::{Cluster, Options, http, wait};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;
use serde_json::Value as Json;

const TIMEOUT: Duration = Duration::from_secs(20);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A span at the collector.
#[derive(Clone, Debug)]
struct Seen {
    trace: String,
    span: String,
    parent: String,
    name: String,
    node: String,
    attributes: BTreeMap<String, String>,
}

/// A collector that answers with this status. Returns it with what it received.
fn collector(status: u16) -> (Web, Arc<Mutex<Vec<Seen>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let web = Web::start(move |request: &Received| {
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/traces"));
        assert_eq!(request.headers["content-type"], "application/x-protobuf");
        assert_eq!(request.headers["authorization"], "Bearer of-the-collector");
        kept.lock().unwrap().extend(decode(&request.body));
        Reply::new(status, "")
    });
    (web, seen)
}

fn decode(body: &[u8]) -> Vec<Seen> {
    let message = ExportTraceServiceRequest::decode(body).unwrap();
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let mut all = Vec::new();
    for resource in message.resource_spans {
        let of_node = resource.resource.unwrap().attributes;
        let node = of_node.into_iter().find(|a| a.key == "service.instance.id").unwrap();
        let node = text(node.value.unwrap().value);
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
            let attributes = span.attributes.into_iter();
            all.push(Seen {
                trace: hex::encode(&span.trace_id),
                span: hex::encode(&span.span_id),
                parent: hex::encode(&span.parent_span_id),
                name: span.name,
                node: node.clone(),
                attributes: attributes.map(|a| (a.key, text(a.value.unwrap().value))).collect(),
            });
        }
    }
    all
}

/// A cluster that exports to `collector`, with more settings of traces.
fn traced_cluster(collector: &Web, more: &str, folder: &std::path::Path) -> Cluster {
    let headers = folder.join("collector-headers");
    write_private(&headers, "authorization: Bearer of-the-collector\n");
    let settings =
        format!("[trace]\nendpoint = {:?}\nheaders_file = {headers:?}\n{more}\n", collector.url);
    let folder_roots = vec![folder.to_owned()];
    Cluster::start(Options {
        targets: 2,
        folder_roots,
        settings: settings.leak(),
        ..Options::default()
    })
}

/// The spans of a trace, once the collector has one of each of these names.
fn wait_for(seen: &Mutex<Vec<Seen>>, trace: &str, names: &[&str]) -> Vec<Seen> {
    let of_trace = || -> Vec<Seen> {
        seen.lock().unwrap().iter().filter(|span| span.trace == trace).cloned().collect()
    };
    wait::until(&format!("spans {names:?} of {trace}"), TIMEOUT, || {
        let found = of_trace();
        names.iter().all(|name| found.iter().any(|span| span.name == *name))
    });
    of_trace()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_read_is_one_tree_from_the_span_of_the_client_to_the_backend() {
    let folder = tempfile::tempdir().unwrap();
    let (web, seen) = collector(200);
    let cluster = traced_cluster(&web, "", folder.path());
    let bucket = native("files");
    let root = folder.path().join("files");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("o"), [7; 5_000]).unwrap();
    let client = cluster.client();
    client.create_bucket(&bucket, Some(folder_backend(&root))).await.unwrap();

    let owner = cluster.owner(&bucket, "o");
    let url = format!("{}/v1/objects/files/o", owner.url);
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let read = || http::request("GET", &url).header("traceparent", &traceparent).send();
    let answer = read();
    assert_eq!((answer.status, answer.body.len()), (200, 5_000), "{}", answer.text());
    let request = answer.header("forebay-request-id").unwrap().to_owned();
    let spans = wait_for(&seen, TRACE, &["get", "backend get"]);
    let get = spans.iter().find(|span| span.name == "get").unwrap();
    assert_eq!((&*get.parent, &get.node), (CALLER, &owner.id));
    assert_eq!(get.attributes["forebay.request_id"], request);
    assert_eq!(get.attributes["forebay.object"], "o");
    assert_eq!(get.attributes["http.response.status_code"], "200");
    let backend = spans.iter().find(|span| span.name == "backend get").unwrap();
    assert_eq!((&backend.parent, &backend.node), (&get.span, &owner.id));
    assert_eq!(backend.attributes["forebay.provider"], "folder");
    assert_eq!(backend.attributes["forebay.bucket"], "ais://files");
    assert_eq!(backend.attributes["forebay.result"], "ok");
    assert_eq!(backend.attributes["forebay.bytes"], "5000");

    // A read from memory, on the fast path, has its span too.
    let count = || seen.lock().unwrap().iter().filter(|span| span.name == "get").count();
    wait::until("the object is read from memory", TIMEOUT, || {
        read();
        count() > 2
    });
    // The exemplar of its time, and the text as it always is.
    let metrics = |accept: &str| {
        let page = http::request("GET", &format!("{}/metrics", owner.url)).header("accept", accept);
        page.send().text()
    };
    let open = metrics("application/openmetrics-text; version=1.0.0, text/plain;q=0.5");
    assert!(open.contains(&format!("# {{trace_id=\"{TRACE}\"}} ")), "{open}");
    assert!(open.ends_with("# EOF\n"));
    assert!(!metrics("text/plain").contains(TRACE));

    // The commands, by the id of the trace and by that of the request.
    for id in [TRACE, request.as_str()] {
        let (shown, code) = cluster.cli(&["trace", "show", id]);
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("backend get folder"), "{shown}");
        let (why, code) = cluster.cli(&["why", id]);
        assert!(code == 0 && why.contains("spans in"), "{why}");
    }
    let (listed, code) = cluster.cli(&["trace", "ls", "--json"]);
    assert_eq!(code, 0, "{listed}");
    let row: Json = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!((&row["trace"], &row["reason"]), (&TRACE.into(), &"sampled".into()));
    let (text, code) = cluster.cli(&["trace", "show", "not-an-id"]);
    assert_ne!(code, 0, "{text}");
}

#[test]
fn a_slow_request_that_nobody_samples_is_exported_by_all_nodes_that_it_passed() {
    let folder = tempfile::tempdir().unwrap();
    let (web, seen) = collector(200);
    let cluster = traced_cluster(&web, "slow_ms = 1", folder.path());
    let made = s3_request("PUT", &cluster.endpoint, "slow").send_as(OWNER);
    assert_eq!(made.status, 200, "{}", made.text());
    // An upload of some megabytes takes more than a millisecond, also at the gateway that relays it.
    let put = s3_request("PUT", &cluster.endpoint, "slow/o").body(vec![1; 16 << 20]);
    let answer = put.send_as(OWNER);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.header("x-amz-request-id").unwrap();
    let trace = TraceId::of_request(forebay_core::request::RequestId::parse(id).unwrap());
    let trace = trace.to_string();
    let spans = wait_for(&seen, &trace, &["PutObject"]);
    wait::until("spans of the gateway and the target", TIMEOUT, || {
        let spans = wait_for(&seen, &trace, &["PutObject"]);
        spans.iter().filter(|span| span.name == "PutObject").count() >= 2
    });
    assert!(!spans.is_empty());
    let spans = wait_for(&seen, &trace, &["PutObject"]);
    let of = |node: &str| spans.iter().find(|span| span.node == node && span.name == "PutObject");
    let gateway = of(&cluster.gateways[0].id).unwrap();
    let target = cluster.targets.iter().find_map(|target| of(&target.id)).unwrap();
    assert_eq!((&*gateway.parent, &target.parent), ("", &gateway.span));
    let reply = http::get(&format!("{}/api/v1/traces/{id}", cluster.endpoint));
    let reply: TraceReply = serde_json::from_slice(&reply.body).unwrap();
    assert!(reply.spans.len() >= 2 && reply.away.is_empty(), "{reply:?}");
}

#[test]
fn a_quick_request_that_nobody_samples_is_not_exported_and_a_failing_collector_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (web, seen) = collector(400);
    let cluster = traced_cluster(&web, "slow_ms = 600000", folder.path());
    let missing = http::get(&format!("{}/v1/objects/none/o", cluster.endpoint));
    assert_eq!(missing.status, 404);
    let url = format!("{}/v1/buckets/none", cluster.endpoint);
    let head = http::request("HEAD", &url);
    head.header("traceparent", &format!("00-{TRACE}-{CALLER}-01")).send();
    wait_for(&seen, TRACE, &["head_bucket"]);
    assert!(seen.lock().unwrap().iter().all(|span| span.trace == TRACE), "{seen:?}");
    let page = || http::get(&format!("{}/metrics", cluster.endpoint)).text();
    wait::until("the span counts as dropped", TIMEOUT, || {
        http::metric(&page(), "forebay_trace_spans_total", &["result=\"dropped\""]) >= 1.0
    });
    // Within 10 s, a request that was not chosen can be looked at.
    let id = missing.header("forebay-request-id").unwrap();
    let shown = http::get(&format!("{}/api/v1/traces/{id}", cluster.endpoint));
    assert_eq!(shown.status, 200, "{}", shown.text());
    let unknown = http::get(&format!("{}/api/v1/traces/{}", cluster.endpoint, "1".repeat(32)));
    assert_eq!(unknown.status, 404, "{}", unknown.text());
}

#[test]
fn without_traces_the_context_of_a_client_changes_nothing() {
    let settings = "[trace]\nenabled = false\n";
    let cluster = Cluster::start(Options { targets: 1, settings, ..Options::default() });
    let url = format!("{}/v1/buckets/none", cluster.endpoint);
    let head = http::request("HEAD", &url);
    assert_eq!(head.header("traceparent", &format!("00-{TRACE}-{CALLER}-01")).send().status, 404);
    let shown = http::get(&format!("{}/api/v1/traces/{TRACE}", cluster.endpoint));
    assert_eq!(shown.status, 404, "{}", shown.text());
}
