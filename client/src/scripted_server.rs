//! A tiny HTTP server for tests: each request is handed to a closure that answers it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use forebay_core::bucket::BucketInfo;
use forebay_core::intra::MapReply;
use forebay_core::state::{ClusterState, Command, Role};
use forebay_core::{Bucket, NodeId, Provider};

use crate::client::{Client, ClientConfig};

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// A request as a script receives it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

/// A running server; stops when dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (script, log) = (Arc::new(script), seen.clone());
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let (script, log) = (script.clone(), log.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let (script, log) = (script.clone(), log.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let path = parts.uri.path_and_query().unwrap().to_string();
                        let seen =
                            Seen { method: parts.method, path, headers: parts.headers, body };
                        log.lock().unwrap().push(seen.clone());
                        let reply = script(&seen);
                        if let Some(After(pause)) = reply.extensions().get() {
                            tokio::time::sleep(*pause).await;
                        }
                        Ok::<_, Infallible>(reply)
                    }
                });
                tokio::spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    // A script that breaks its connection ends here with an error, as it should.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { url, seen, connections, task }
    }

    pub(crate) fn count(&self, path: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|s| s.path.starts_with(path)).count()
    }
}

pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::new(body.into()).map_err(|e| match e {}).boxed_unsync()).unwrap()
}

#[derive(Clone)]
struct After(Duration);

/// An answer that begins after this time.
pub(crate) fn after(pause: Duration, mut reply: Reply) -> Reply {
    reply.extensions_mut().insert(After(pause));
    reply
}

/// An answer that announces `size` bytes and breaks after those given.
pub(crate) fn broken(status: u16, headers: &[(&str, &str)], size: usize, body: Bytes) -> Reply {
    let bytes = stream::once(async { Ok(Frame::data(body)) });
    let breaks = stream::once(async {
        // The bytes must be on their way before the connection goes.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(std::io::Error::other("cut"))
    });
    let mut response = Response::builder().status(status).header("content-length", size);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(BodyExt::boxed_unsync(StreamBody::new(bytes.chain(breaks)))).unwrap()
}

/// An answer that announces `size` bytes, of which one comes every 20 ms.
pub(crate) fn trickle(headers: &[(&str, &str)], size: usize) -> Reply {
    let bytes = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
    });
    let mut response = Response::builder().status(200).header("content-length", size);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(BodyExt::boxed_unsync(StreamBody::new(bytes))).unwrap()
}

/// The URL of a node that does not exist.
pub(crate) fn nobody() -> String {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", closed.local_addr().unwrap())
}

pub(crate) fn json(value: &impl serde::Serialize) -> Reply {
    reply(200, &[("content-type", "application/json")], serde_json::to_vec(value).unwrap())
}

pub(crate) fn not_here() -> Reply {
    reply(StatusCode::NOT_FOUND.as_u16(), &[], "not scripted")
}

/// The bucket of the scripted cluster.
pub(crate) fn bucket() -> Bucket {
    Bucket::new(Provider::Ais, "b").unwrap()
}

/// A map with these targets (id, url) and the native bucket `b`.
pub(crate) fn map(version: u64, targets: &[(&str, &str)]) -> MapReply {
    let mut state = ClusterState::default();
    state.apply(1, Command::Init { cluster_id: "test".into(), now_ns: 1 }).unwrap();
    for (id, url) in targets {
        let id = NodeId::new(id).unwrap();
        let (url, zone) = ((*url).to_owned(), String::new());
        state
            .apply(
                2,
                Command::Join {
                    id,
                    role: Role::Target,
                    url,
                    weight: 1,
                    zone,
                    instance: 0,
                    https: String::new(),
                    external: String::new(),
                },
            )
            .unwrap();
    }
    let info = Box::new(BucketInfo::requested(bucket(), None));
    state.apply(version, Command::CreateBucket { info, now_ns: 1 }).unwrap();
    MapReply {
        state,
        primary: NodeId::new("gateway-1").unwrap(),
        grant: format!("grant-{version}"),
        grant_expires_s: u64::MAX,
        version: None,
        oldest_client: None,
    }
}

/// A gateway whose map names a target that plays `script`, and that target.
pub(crate) async fn cluster(
    script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
) -> (Server, Server) {
    let target = Server::start(script).await;
    let url = target.url.clone();
    let gateway = Server::start(move |seen| match seen.path.as_str() {
        "/api/v1/map" => json(&map(7, &[("target-01", &url)])),
        _ => not_here(),
    })
    .await;
    (gateway, target)
}

/// A client that gives up soon.
pub(crate) fn client(endpoint: &str, deadline: Duration) -> Client {
    let config = ClientConfig { deadline, ..ClientConfig::new(endpoint) };
    Client::new(config).unwrap()
}

/// Plays each of the answers once, by the number of earlier requests for the path; the last one
/// repeats.
pub(crate) struct Turns(Mutex<BTreeMap<String, usize>>);

impl Turns {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn next(&self, path: &str) -> usize {
        let mut turns = self.0.lock().unwrap();
        let turn = turns.entry(path.to_owned()).or_insert(0);
        *turn += 1;
        *turn
    }
}
