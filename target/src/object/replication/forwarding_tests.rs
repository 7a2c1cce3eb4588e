//! Changes whose object goes to another owner before all holders have them.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::copies::requests::{Reason, RemoveRequest};
use forebay_core::copies::{COPY_HEADER, CopyHead, CopyLook, Stamp};
use forebay_core::sign::PROOF_FORMAT_PATH;
use forebay_core::state::{Command, Role};
use forebay_core::{Bucket, ErrorCode, NodeId, Provider, placement};
use forebay_node::maps::Maps;

use super::peer_commands::{LOOK_PATH, REMOVE_PATH};
use crate::object::PutRequest;
use crate::object::tests::Bench;

/// The second of two targets, which becomes the owner on the first request about a change.
#[derive(Clone)]
struct Other {
    maps: Maps,
    me: NodeId,
    takes_over: Arc<AtomicBool>,
    /// The look that it reports.
    look: Arc<Mutex<CopyLook>>,
    received: Arc<Mutex<Vec<Received>>>,
}

#[derive(Debug, PartialEq)]
enum Received {
    Copy { written: bool },
    Overtaken { stamp: Stamp, by: Option<String>, written: bool },
}

impl Other {
    async fn answer(self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        if parts.uri.path() == LOOK_PATH {
            return Json(self.look.lock().unwrap().clone()).into_response();
        }
        if parts.uri.path() == PROOF_FORMAT_PATH {
            return StatusCode::NOT_FOUND.into_response();
        }
        let is_lost = self.takes_over.swap(false, Ordering::SeqCst);
        let received = match parts.headers.get(COPY_HEADER) {
            Some(head) => {
                let head = CopyHead::from_header(head.as_bytes()).unwrap();
                if !is_lost {
                    self.look.lock().unwrap().there = Some(head.stamp());
                }
                Received::Copy { written: head.written }
            }
            None => {
                assert_eq!(parts.uri.path(), REMOVE_PATH);
                let RemoveRequest { stamp, by, reason, .. } =
                    serde_json::from_slice(&body).unwrap();
                let written = reason == Reason::Superseded;
                Received::Overtaken { stamp, by: by.map(|by| by.to_string()), written }
            }
        };
        self.received.lock().unwrap().push(received);
        if !is_lost {
            return Json(()).into_response();
        }
        let mut state = (*self.maps.load()).clone();
        let yields = Command::SetAlive { id: self.me, alive: true, yields: true };
        state.apply(state.version + 1, yields).unwrap();
        self.maps.offer(state);
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}

/// Writes an object of two copies that belongs here first.
async fn written() -> (Bench, Other, BucketInfo, String) {
    let bench = Bench::new(1 << 30).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let join = Command::Join {
        id: NodeId::new("target-02").unwrap(),
        role: Role::Target,
        url: format!("http://{}", listener.local_addr().unwrap()),
        weight: 1,
        zone: String::new(),
        instance: 0,
        https: String::new(),
        external: String::new(),
    };
    bench.change(join);
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let info = BucketInfo { copies: 2, ..BucketInfo::requested(bucket.clone(), None) };
    let state = bench.change(Command::CreateBucket { info: info.into(), now_ns: 1 });
    let info = BucketInfo::clone(state.bucket(&bucket).unwrap());
    let me = bench.service.me();
    let first = |name: &String| placement::owner(&state, &info, name).unwrap().id == *me;
    let name = (0..).map(|n| format!("o{n}")).find(first).unwrap();
    let other = Other {
        maps: bench.maps.clone(),
        me: me.clone(),
        takes_over: Arc::default(),
        look: Arc::default(),
        received: Arc::default(),
    };
    let answering = other.clone();
    let router = Router::new().fallback(move |request| answering.clone().answer(request));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let before = PutRequest::whole(Bytes::from_static(b"before"));
    bench.service.writes().put(&info, &name, before).await.unwrap();
    other.received.lock().unwrap().clear();
    other.takes_over.store(true, Ordering::SeqCst);
    (bench, other, info, name)
}

fn by_other(stamp: Stamp, written: bool) -> Received {
    Received::Overtaken { stamp, by: Some("target-02".into()), written }
}

#[tokio::test]
async fn a_write_whose_owner_changes_on_the_way_is_acknowledged_when_the_new_one_has_it() {
    let (bench, other, info, name) = written().await;
    let put = PutRequest::whole(Bytes::from_static(b"after"));
    bench.service.writes().put(&info, &name, put).await.unwrap();
    let stamp = bench.service.store().get(info.id, &name).await.unwrap().unwrap().stamp();
    let copies = [true, false].map(|written| Received::Copy { written });
    let mut received = other.received.lock().unwrap();
    assert_eq!(received.pop(), Some(by_other(stamp, true)));
    assert_eq!(received[..], copies);
    assert!(!bench.service.replication().engine().pending().has(&info, &name));
}

#[tokio::test]
async fn a_removal_is_acknowledged_unless_the_new_owner_changed_the_object_too() {
    for overtaken in [false, true] {
        let (bench, other, info, name) = written().await;
        let before = bench.service.store().get(info.id, &name).await.unwrap().unwrap().stamp();
        if overtaken {
            let removed = Some(Stamp { epoch: u64::MAX, version: 1 });
            *other.look.lock().unwrap() = CopyLook { removed, ..CopyLook::default() };
        }
        let done = bench.service.writes().delete(&info, &name).await;
        let code = done.err().map(|e| e.code);
        assert_eq!(code, overtaken.then_some(ErrorCode::Unavailable));
        let stamp = Stamp { version: before.version + 1, ..before };
        assert_eq!(other.received.lock().unwrap().last(), Some(&by_other(stamp, false)));
    }
}
