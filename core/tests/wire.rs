//! Tests the messages between nodes and clients of this version byte for byte, and that this
//! version still reads those of earlier versions: in a rolling upgrade both are in one cluster.
//!
//! `wire/1/` contains captures of the first version of the wire. They never change: messages of an
//! earlier node stay readable forever. If a version sends something else, its capture goes into a
//! separate folder (`FOREBAY_NEW_CAPTURES=1` writes missing ones), and a test still reads the old
//! one.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::PathBuf;

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::batch_stream::{Decoder, Encoder, Row};
use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::copies::requests::{
    EnsureRequest, LookRequest, Reason, RemoveRequest, SendRequest, SendVersionsRequest,
    SliceRequest, SurveyRequest,
};
use forebay_core::copies::{CopyHead, CopyLook, Stamp};
use forebay_core::egress::EndpointTrust;
use forebay_core::erasure::Slice;
use forebay_core::etl::{Etl, Stage, Transformer};
use forebay_core::intra::{
    DiskStatus, DiskUsage, Heartbeat, HeartbeatReply, JoinRequest, LeaderReply, LeaveReply,
    LeaveRequest, ListPage, ListRequest, Machine, MapReply, NodeUsage,
};
use forebay_core::list_page::Detail;
use forebay_core::object::{ListEntry, ObjectMeta, RowKind};
use forebay_core::sign::{ClusterSecret, Held, Trust};
use forebay_core::state::{ClusterState, Command, Leaving, Role};
use forebay_core::{Bucket, Error, ErrorCode, NodeId, ObjectName, Provider};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[path = "wire/buckets.rs"]
mod buckets;

/// A moment in 2026.
const NOW_S: u64 = 1_795_000_000;

fn path_of(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire/1").join(name)
}

/// The capture of this name, which this version must send.
fn captured(name: &str, sent: &[u8]) -> Vec<u8> {
    let path = path_of(name);
    if !path.exists() && std::env::var_os("FOREBAY_NEW_CAPTURES").is_some() {
        fs::write(&path, sent).unwrap();
    }
    let capture = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&capture), text(sent), "{name}: this version sends something else");
    assert_eq!(capture, sent, "{name}: this version sends something else");
    capture
}

/// A JSON message: sent as captured, and parsed to the same value, also with an additional field of
/// a later version.
fn message<T: Serialize + DeserializeOwned>(name: &str, message: &T) -> T {
    let capture = captured(name, &serde_json::to_vec_pretty(message).unwrap());
    let mut value: Value = serde_json::from_slice(&capture).unwrap();
    let read: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), value, "{name} is read to something else");
    if let Some(fields) = value.as_object_mut() {
        fields.insert("of_a_later_version".into(), 7.into());
        let later: T = serde_json::from_value(value).unwrap();
        let known = serde_json::to_value(&later).unwrap();
        assert_eq!(known, serde_json::to_value(&read).unwrap(), "{name} of a later version");
    }
    read
}

fn id(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(Provider::Ais, name).unwrap()
}

fn join(name: &str, role: Role, port: u16, zone: &str) -> Command {
    let (url, zone) = (format!("http://10.0.0.1:{port}"), zone.to_owned());
    Command::Join {
        id: id(name),
        role,
        url,
        weight: 1 + u32::from(port == 3),
        zone,
        instance: 0,
        https: String::new(),
        external: String::new(),
    }
}

/// One command of each kind, as in the log of a running cluster.
fn commands() -> Vec<Command> {
    let native = BucketInfo { copies: 2, ..BucketInfo::requested(bucket("train"), None) };
    let backend = BackendSpec {
        endpoint: Some("http://s3.test:9000".into()),
        ..BackendSpec::new(BackendKind::S3, "images")
    };
    // As versions without the rule for destinations wrote it.
    let cached = BucketInfo {
        endpoint_trust: EndpointTrust::Accepted,
        ..BucketInfo::requested(bucket("images"), Some(backend))
    };
    let etl = Etl {
        name: "resize".into(),
        by: Transformer::Push { url: "http://10.0.0.9:80".into() },
        object_timeout_ms: 45_000,
        init_timeout_ms: 45_000,
        stage: Stage::Running,
        job: "etl-1".into(),
        init: serde_json::json!({"id": "resize"}),
        endpoint_trust: EndpointTrust::Accepted,
    };
    let stopped = Etl { stage: Stage::Stopped, ..etl.clone() };
    vec![
        Command::Init { cluster_id: "c0ffee".into(), now_ns: NOW_S * 1_000_000_000 },
        join("gateway-1", Role::Gateway, 1, ""),
        join("target-1", Role::Target, 2, "a"),
        join("target-2", Role::Target, 3, "b"),
        join("target-3", Role::Target, 4, "b"),
        Command::CreateBucket { info: Box::new(native.clone()), now_ns: 11 },
        Command::CreateBucket { info: Box::new(cached), now_ns: 12 },
        Command::CreateBucket {
            info: Box::new(BucketInfo::requested(bucket("gone"), None)),
            now_ns: 13,
        },
        Command::SetBucket { info: Box::new(BucketInfo { id: 1, copies: 3, ..native }) },
        Command::DestroyBucket { bucket: bucket("gone") },
        Command::RenameBucket { from: bucket("train"), to: bucket("training") },
        Command::Configure {
            change: BTreeMap::from([("log.level".to_owned(), "3".to_owned())]),
            reset: false,
            now_ns: 14,
        },
        Command::SetAlive { id: id("target-2"), alive: false, yields: false },
        Command::SetAlive { id: id("target-2"), alive: true, yields: false },
        Command::SetAlive { id: id("target-3"), alive: false, yields: true },
        Command::SetMaintenance { id: id("target-2"), on: true },
        Command::SetMaintenance { id: id("target-2"), on: false },
        Command::Retire { id: id("target-2"), leaving: Leaving::Remove },
        Command::RebalanceComplete { placed: 16, repaired: vec![(id("target-2"), 14)] },
        Command::AttachCluster {
            alias: "other".into(),
            url: "http://10.0.1.1:1".into(),
            endpoint_trust: EndpointTrust::Accepted,
        },
        Command::AttachCluster {
            alias: "former".into(),
            url: "http://10.0.2.1:1".into(),
            endpoint_trust: EndpointTrust::Accepted,
        },
        Command::DetachCluster { alias: "former".into() },
        Command::Remove { id: id("target-3") },
        Command::CreateEtl { etl: Box::new(etl.clone()) },
        Command::SetEtl { etl: Box::new(stopped) },
        Command::CreateEtl { etl: Box::new(Etl { name: "passing".into(), ..etl }) },
        Command::DeleteEtl { name: "passing".into() },
    ]
}

/// A log of commands, a line each: sent as captured, and parsed to the same commands.
fn captured_log(name: &str, log: &[Command]) -> Vec<Command> {
    let lines: Vec<String> = log.iter().map(|c| serde_json::to_string(c).unwrap()).collect();
    let capture = captured(name, (lines.join("\n") + "\n").as_bytes());
    let read: Vec<Command> = String::from_utf8(capture)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read, log);
    read
}

/// The state that results from the log.
fn applied(log: impl IntoIterator<Item = Command>) -> ClusterState {
    let mut state = ClusterState::default();
    for (index, command) in (1..).zip(log) {
        state.apply(index, command.clone()).unwrap_or_else(|e| panic!("{command:?}: {e}"));
    }
    state
}

#[test]
fn a_log_of_commands_is_read_and_makes_the_state_that_it_always_made() {
    let log = commands();
    let read = captured_log("commands.jsonl", &log);
    // Two versions that apply one log must get the same state, or gateways of a mixed cluster
    // diverge.
    assert_eq!(message("state.json", &applied(read)), applied(log));
}

#[test]
fn nodes_enter_report_and_leave_in_the_words_of_the_first_version() {
    let role = Role::Target;
    let request = JoinRequest {
        id: id("target-1"),
        role,
        url: "http://10.0.0.1:2".into(),
        zone: "a".into(),
        instance: 0,
        cluster: String::new(),
        empty: false,
        https: String::new(),
        external: String::new(),
        state_format: 0,
        key: None,
        token: None,
        needs_s3_key: false,
        returns: false,
    };
    message("join.json", &request);
    let usage = NodeUsage {
        quotas: None,
        uptime_s: 60,
        objects: 3,
        bytes: 4096,
        budget: 1 << 30,
        hit_bytes: 1,
        miss_bytes: 2,
        backend_reads: 3,
        disks: vec!["/data/1".into()],
        lost: 1,
        lost_names: vec!["ais://train/a".into()],
        machine: Machine { mem_used: 1 << 20, loads: [0.5, 1.0, 1.5], ..Machine::default() },
        mountpaths: vec![DiskUsage {
            path: "/data/1".into(),
            used: 4096,
            budget: 1 << 30,
            state: DiskStatus::Mending,
            why: "its index is made again".into(),
            file_system: None,
        }],
        tracker: BTreeMap::from([("get.n".to_owned(), 5)]),
        clock: None,
        version: String::new(),
    };
    message(
        "heartbeat.json",
        &Heartbeat {
            id: id("target-1"),
            version: 26,
            usage,
            instance: 0,
            state_format: 0,
            key: None,
        },
    );
    let state = Some(applied(commands()));
    let reply = HeartbeatReply {
        version: 26,
        primary: id("gateway-1"),
        state: state.clone(),
        lease: true,
        confirmed_ms: 40,
        unknown: false,
        clock_ns: 0,
        s3_key: None,
        quotas: None,
    };
    message("heartbeat-reply.json", &reply);
    message(
        "leave.json",
        &LeaveRequest { id: id("target-1"), yields: true, since: 0, instance: 0 },
    );
    message("leave-reply.json", &LeaveReply { state });
    let leader = LeaderReply { leads: true, term: Some(3), primary: Some(id("gateway-1")) };
    message("leader-reply.json", &leader);
}

#[test]
fn clients_get_the_map_in_the_words_of_the_first_version() {
    let reply = MapReply {
        state: applied(commands()),
        primary: id("gateway-1"),
        grant: "g".into(),
        grant_expires_s: NOW_S,
        version: None,
        oldest_client: None,
    };
    message("map-reply.json", &reply);
}

#[test]
fn nodes_and_clients_know_each_other_by_the_signatures_of_the_first_version() {
    let secret = ClusterSecret::new("0123456789abcdef").unwrap();
    let capture = fs::read_to_string(path_of("signatures.txt")).unwrap();
    let [redirect, grant, node] = capture.lines().collect::<Vec<_>>()[..] else {
        panic!("three lines")
    };
    let (expiry, tag) = redirect.split_once("&fbs=").unwrap();
    let expiry = expiry.strip_prefix("fbx=").unwrap();
    let trust = Trust::by_secret(&secret);
    assert!(trust.verify_first_redirect("GET", "/v1/objects/train/a", expiry, tag, NOW_S));
    assert!(!trust.verify_first_redirect("PUT", "/v1/objects/train/a", expiry, tag, NOW_S));
    assert!(trust.verify_first_node("POST", "/internal/v1/join", node, NOW_S));
    assert!(!trust.verify_first_node("POST", "/internal/v1/leave", node, NOW_S));
    assert!(!trust.verify_first_node("POST", "/internal/v1/join", node, NOW_S + 301));
    assert_eq!(trust.verify_grant(grant, NOW_S + 1), Held::Yes);
}

#[test]
fn a_batch_is_asked_for_and_answered_in_the_bytes_of_the_first_version() {
    let name = |text: &str| ObjectName::new(text).unwrap();
    let member = BatchEntry {
        archpath: "000/ä.jpg".into(),
        range: Some((3, None)),
        ..BatchEntry::whole(1, name("shard-0001.tar"))
    };
    let request = BatchRequest {
        buckets: vec![bucket("train"), bucket("images")],
        entries: vec![BatchEntry::whole(0, name("a/1")), member],
        ordered: false,
    };
    message("batch-request.json", &request);

    let gone = Error::new(ErrorCode::ObjectNotFound, "ais://train/b does not exist");
    let rows = vec![
        Row { index: 1, status: 0, more: true, total: 11, payload: "hello ".into() },
        Row { index: 0, status: 0, more: false, total: 0, payload: "".into() },
        Row { index: 1, status: 0, more: false, total: 11, payload: "world".into() },
        Row::failure(2, &gone),
    ];
    let mut sent = Encoder::header(26).to_vec();
    let mut encoder = Encoder::default();
    for frame in rows.chunks(3) {
        frame.iter().cloned().for_each(|row| encoder.push(row));
        encoder.flush().iter().for_each(|part| sent.extend_from_slice(part));
    }
    sent.extend_from_slice(&encoder.end());
    let capture = captured("batch-stream.bin", &sent);
    let (mut decoder, mut read) = (Decoder::new(), VecDeque::new());
    decoder.decode(&capture, &mut read).unwrap();
    assert!(decoder.is_complete());
    assert_eq!((decoder.map_version(), Vec::from(read)), (Some(26), rows));
}

fn meta() -> ObjectMeta {
    ObjectMeta {
        size: 5,
        version: "7".into(),
        checksum: Some(Checksum { kind: ChecksumKind::Xxhash2, value: "26c7827d889f6da3".into() }),
        mtime_ns: 1_795_233_111_530_862_741,
        custom: [("colour".to_owned(), "grün".to_owned())].into(),
        present: true,
        ..ObjectMeta::default()
    }
}

#[test]
fn pages_of_listings_are_those_of_the_first_version() {
    let request = ListRequest {
        bucket_id: 1,
        prefix: "a".into(),
        after: "a.tar".into(),
        limit: 1000,
        archive: true,
        detail: Detail::Size,
        ..ListRequest::default()
    };
    message("list-request.json", &request);
    let shard = ListEntry { name: "a.tar".into(), meta: meta(), kind: RowKind::Shard };
    let member = ListEntry { name: "a.tar/é".into(), kind: RowKind::Member, ..shard.clone() };
    let bare = ListEntry { name: "b".into(), ..ListEntry::default() };
    let page = ListPage { entries: vec![shard, member, bare], more: true };
    let all = captured("list-page-all.msgpack", &page.encode(Detail::All).unwrap());
    assert_eq!(ListPage::decode(&all, Detail::All).unwrap(), page);
    let sizes = captured("list-page-size.bin", &page.encode(Detail::Size).unwrap());
    let read = ListPage::decode(&sizes, Detail::Size).unwrap();
    let rows = |page: &ListPage| -> Vec<_> {
        let row = |e: &ListEntry| (e.name.clone(), e.kind, e.meta.size, e.meta.mtime_ns);
        page.entries.iter().map(row).collect()
    };
    assert_eq!((rows(&read), read.more), (rows(&page), true));
}

#[test]
fn targets_speak_of_copies_in_the_words_of_the_first_version() {
    let stamp = Stamp::new(26, "7");
    let head = CopyHead {
        meta: meta(),
        epoch: 26,
        from: Some(id("target-1")),
        written: true,
        ..CopyHead::default()
    };
    message("copy-head.json", &head);
    assert_eq!(CopyHead::from_header(head.to_header().unwrap().as_bytes()).unwrap(), head);
    let names = vec!["a/1".into(), "ä".into()];
    message("survey-request.json", &SurveyRequest { bucket: bucket("train"), names });
    message(
        "copy-look.json",
        &CopyLook { there: Some(stamp), damaged: true, ..CopyLook::default() },
    );
}

/// Earlier versions send one JSON object, `copy-request.json`, for all requests about a copy.
#[test]
fn requests_about_copies_are_those_of_earlier_versions() {
    fn read<T: DeserializeOwned>() -> T {
        serde_json::from_slice(&fs::read(path_of("copy-request.json")).unwrap()).unwrap()
    }
    let (stamp, by) = (Stamp::new(26, "7"), id("target-2"));
    let object = || (bucket("train"), "a/1".to_owned());

    let (bucket, name) = object();
    let look = LookRequest { bucket, name, in_part: true, older: true };
    message("copy-request-look.json", &look);
    assert_eq!(read::<LookRequest>(), LookRequest { in_part: false, older: false, ..look });

    let (bucket, name) = object();
    let send = SendRequest { bucket, name, by: by.clone(), anew: true };
    message("copy-request-send.json", &send);
    assert_eq!(read::<SendRequest>(), send);

    let (bucket, name) = object();
    let versions = SendVersionsRequest { bucket, name, by: by.clone() };
    message("copy-request-send-versions.json", &versions);
    assert_eq!(read::<SendVersionsRequest>(), versions);

    let reasons = [Reason::Deleted, Reason::Superseded, Reason::Replaced, Reason::Undone];
    for (n, reason) in reasons.into_iter().enumerate() {
        let ((bucket, name), by) = (object(), Some(by.clone()));
        let remove = RemoveRequest { bucket, name, stamp, by, reason, older: n == 1 };
        message(&format!("copy-request-remove-{n}.json"), &remove);
        if reason == Reason::Deleted {
            assert_eq!(read::<RemoveRequest>(), remove);
        }
    }

    let (bucket, name) = object();
    let ensure = EnsureRequest { bucket, name, stamp };
    message("copy-request-ensure.json", &ensure);
    assert_eq!(read::<EnsureRequest>(), ensure);

    let (bucket, name) = object();
    let slice = Slice { data: 2, parity: 1, number: 2 };
    message("copy-request-slice.json", &SliceRequest { bucket, name, stamp, slice });
}
