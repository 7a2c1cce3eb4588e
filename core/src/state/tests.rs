//! Tests of commands and the resulting states.

use super::*;
use crate::bucket::BackendKind;
use crate::egress::EndpointTrust;
use crate::error::ErrorCode;
use crate::name::Provider;
use crate::settings::Change;

pub(super) fn join(id: &str) -> Command {
    Command::Join {
        id: NodeId::new(id).unwrap(),
        role: Role::Target,
        url: "http://127.0.0.1:1".into(),
        weight: 1,
        zone: String::new(),
        instance: 0,
        https: String::new(),
        external: String::new(),
    }
}

pub(super) fn create(name: &str) -> Command {
    let bucket = Bucket::new(Provider::Ais, name).unwrap();
    Command::CreateBucket { info: Box::new(BucketInfo::requested(bucket, None)), now_ns: 7 }
}

#[test]
fn a_bucket_created_again_gets_a_new_id() {
    let mut s = ClusterState::default();
    s.apply(1, Command::Init { cluster_id: "c".into(), now_ns: 1 }).unwrap();
    s.apply(2, create("b")).unwrap();
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let first = s.bucket(&bucket).unwrap().id;
    assert_eq!(s.apply(3, create("b")).unwrap_err().code, ErrorCode::BucketExists);
    s.apply(4, Command::DestroyBucket { bucket: bucket.clone() }).unwrap();
    assert_eq!(s.bucket(&bucket).unwrap_err().code, ErrorCode::BucketNotFound);
    s.apply(5, create("b")).unwrap();
    assert_ne!(s.bucket(&bucket).unwrap().id, first);
    assert_eq!(s.version, 5);
}

#[test]
fn erasure_coding_that_needs_more_targets_is_refused_by_a_name_that_clients_know() {
    let mut s = ClusterState::default();
    for i in 1..=4 {
        s.apply(i, join(&format!("target-0{i}"))).unwrap();
    }
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let mut info = BucketInfo::requested(bucket, None);
    info.erasure = Some(crate::erasure::Erasure::default());
    let create =
        |info: &BucketInfo| Command::CreateBucket { info: Box::new(info.clone()), now_ns: 7 };
    let e = s.apply(5, create(&info)).unwrap_err();
    assert_eq!((e.code.v1_tcode(), e.code.status()), (Some("ErrNotEnoughTargets"), 400), "{e}");
    s.apply(6, join("target-05")).unwrap();
    s.apply(7, create(&info)).unwrap();
}

#[test]
fn a_target_in_maintenance_owns_nothing_until_it_is_given_back() {
    let mut s = ClusterState::default();
    s.apply(1, join("target-01")).unwrap();
    let id = NodeId::new("target-01").unwrap();
    let maintain = |on| Command::SetMaintenance { id: id.clone(), on };
    let alone = s.apply(2, maintain(true)).unwrap_err();
    assert_eq!(alone.code, ErrorCode::Conflict, "{alone}");
    s.apply(3, join("target-02")).unwrap();
    s.apply(4, create("b")).unwrap();
    s.apply(5, maintain(true)).unwrap();
    assert_eq!((s.alive_targets().count(), s.owning_targets().count()), (2, 1));
    assert_eq!(s.targets_changed, 5);
    s.apply(6, join("target-01")).unwrap();
    assert_eq!(s.owning_targets().count(), 1, "a restart does not end it");
    s.apply(7, maintain(false)).unwrap();
    assert_eq!((s.owning_targets().count(), s.targets_changed), (2, 7));
}

#[test]
fn objects_are_out_of_place_until_the_rebalance_is_logged_as_complete() {
    let mut s = ClusterState::default();
    s.apply(1, join("target-01")).unwrap();
    assert!(s.is_rebalance_complete(), "there is nothing to move");
    s.apply(2, create("b")).unwrap();
    s.apply(3, join("target-02")).unwrap();
    s.apply(4, create("later")).unwrap();
    let info = |s: &ClusterState, name| {
        s.bucket(&Bucket::new(Provider::Ais, name).unwrap()).unwrap().clone()
    };
    assert!(!s.is_in_place(&info(&s, "b")) && s.is_in_place(&info(&s, "later")));
    s.apply(5, Command::RebalanceComplete { placed: 1, repaired: vec![] }).unwrap();
    assert!(!s.is_rebalance_complete(), "that was an older change");
    s.apply(6, Command::RebalanceComplete { placed: 3, repaired: vec![] }).unwrap();
    assert!(s.is_rebalance_complete() && s.is_in_place(&info(&s, "b")));
    let id = NodeId::new("target-01").unwrap();
    s.apply(7, Command::Retire { id: id.clone(), leaving: Leaving::Remove }).unwrap();
    assert!(!s.is_rebalance_complete());
    assert_eq!(s.holding_targets().count(), 2);
    s.apply(8, Command::RebalanceComplete { placed: 7, repaired: vec![] }).unwrap();
    assert_eq!(s.holding_targets().count(), 1);
    s.apply(9, Command::Remove { id }).unwrap();
    assert!(s.is_rebalance_complete(), "it owned nothing any more");
}

#[test]
fn a_target_that_was_away_lags_until_it_got_what_it_missed() {
    let mut s = ClusterState::default();
    s.apply(1, join("target-01")).unwrap();
    s.apply(2, join("target-02")).unwrap();
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let mut info = BucketInfo::requested(bucket.clone(), None);
    let id = NodeId::new("target-01").unwrap();
    let alive = |alive| Command::SetAlive { id: id.clone(), alive, yields: false };
    s.apply(3, Command::CreateBucket { info: info.clone().into(), now_ns: 1 }).unwrap();
    s.apply(4, alive(false)).unwrap();
    s.apply(5, alive(true)).unwrap();
    assert!(!s.needs_repair(), "of one copy nothing is missed");
    info = BucketInfo::clone(s.bucket(&bucket).unwrap());
    info.copies = 2;
    s.apply(6, Command::SetBucket { info: info.into() }).unwrap();
    assert!(!s.is_rebalance_complete(), "copies have to be made");
    s.apply(7, Command::RebalanceComplete { placed: 6, repaired: vec![] }).unwrap();
    assert!(s.is_quiescent());
    s.apply(8, alive(false)).unwrap();
    assert!(!s.is_quiescent() && !s.needs_repair());
    s.apply(9, join("target-01")).unwrap();
    assert!(s.needs_repair() && s.is_rebalance_complete());
    let repaired =
        |since| Command::RebalanceComplete { placed: 6, repaired: vec![(id.clone(), since)] };
    s.apply(10, repaired(5)).unwrap();
    assert!(s.needs_repair(), "it was away since");
    s.apply(11, repaired(9)).unwrap();
    assert!(s.is_quiescent());
    let yields = Command::SetAlive { id: id.clone(), alive: true, yields: true };
    s.apply(12, yields).unwrap();
    let node = s.node(&id).unwrap();
    assert!(node.alive && node.lagging, "it gets writes, and others own its objects");
}

#[test]
fn settings_are_part_of_the_state_and_a_state_without_them_is_read() {
    let mut s = ClusterState::default();
    assert!(serde_json::to_value(&s).unwrap().get("settings").is_none());
    let change = Change::from([("checksum.type".to_owned(), "md5".to_owned())]);
    s.apply(1, Command::Configure { change, reset: false, now_ns: 3 }).unwrap();
    let read: ClusterState = serde_json::from_value(serde_json::to_value(&s).unwrap()).unwrap();
    assert_eq!(read.settings.checksum().as_str(), "md5");
    let wrong = Change::from([("no.such".to_owned(), "1".to_owned())]);
    assert!(s.apply(2, Command::Configure { change: wrong, reset: true, now_ns: 4 }).is_err());
    assert_eq!(s.settings, read.settings);
}

#[test]
fn a_renamed_bucket_keeps_its_id_and_its_objects_lie_with_former_owners() {
    let mut s = ClusterState::default();
    s.apply(1, join("target-01")).unwrap();
    s.apply(2, create("b")).unwrap();
    s.apply(3, create("c")).unwrap();
    let bucket = |name| Bucket::new(Provider::Ais, name).unwrap();
    let id = s.bucket(&bucket("b")).unwrap().id;
    let rename = |to| Command::RenameBucket {
        from: bucket("b"),
        to: Bucket::new(Provider::Ais, to).unwrap(),
    };
    assert_eq!(s.apply(4, rename("c")).unwrap_err().code, ErrorCode::BucketExists);
    s.apply(5, rename("d")).unwrap();
    assert_eq!(s.bucket(&bucket("b")).unwrap_err().code, ErrorCode::BucketNotFound);
    let renamed = s.bucket(&bucket("d")).unwrap();
    assert_eq!(renamed.id, id);
    assert!(renamed.created_version <= s.targets_changed);
}

#[test]
fn a_bucket_of_an_attached_cluster_has_that_cluster_behind_it() {
    let mut s = ClusterState::default();
    let attach = |alias: &str, url: &str| Command::AttachCluster {
        alias: alias.into(),
        url: url.into(),
        endpoint_trust: EndpointTrust::Accepted,
    };
    for (alias, url) in [("a", "http://x"), ("a b", "http://x"), ("far", "x"), ("far", "")] {
        assert!(s.apply(1, attach(alias, url)).is_err(), "{alias} {url}");
    }
    s.apply(2, attach("far", "http://x:1/")).unwrap();
    let bucket = Bucket::parse_uri("ais://@far/b").unwrap().0;
    let info = s.requested(bucket.clone(), None);
    let behind = info.backend.clone().unwrap();
    assert_eq!((behind.kind, behind.bucket.as_str()), (BackendKind::Ais, "b"));
    assert_eq!(behind.endpoint.as_deref(), Some("http://x:1"));
    s.apply(3, Command::CreateBucket { info: Box::new(info), now_ns: 7 }).unwrap();
    s.apply(4, attach("far", "http://y:1")).unwrap();
    let moved = s.bucket(&bucket).unwrap().backend.clone().unwrap();
    assert_eq!(moved.endpoint.as_deref(), Some("http://y:1"));
    let native = s.requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
    assert_eq!(native.backend, None);
    s.apply(5, Command::DetachCluster { alias: "far".into() }).unwrap();
    assert!(s.bucket(&bucket).is_err() && s.requested(bucket, None).backend.is_none());
    assert!(s.apply(6, Command::DetachCluster { alias: "far".into() }).is_err());
}

#[test]
fn the_buckets_of_a_cluster_are_judged_if_its_url_was() {
    let mut s = ClusterState::default();
    let attach = |endpoint_trust| {
        let (alias, url) = ("far".to_owned(), "http://x:1".to_owned());
        Command::AttachCluster { alias, url, endpoint_trust }
    };
    let bucket = Bucket::parse_uri("ais://@far/b").unwrap().0;
    // A log of an earlier version has no such field.
    let old = r#"{"op":"attach_cluster","alias":"far","url":"http://x:1"}"#;
    assert_eq!(serde_json::from_str::<Command>(old).unwrap(), attach(EndpointTrust::Accepted));
    s.apply(1, attach(EndpointTrust::Accepted)).unwrap();
    let json = serde_json::to_string(&s).unwrap();
    assert!(!json.contains("judged"), "an accepted URL is written as before: {json}");
    let info = s.requested(bucket.clone(), None);
    assert_eq!(info.endpoint_trust, EndpointTrust::Accepted);
    s.apply(2, Command::CreateBucket { info: Box::new(info), now_ns: 7 }).unwrap();
    s.apply(3, attach(EndpointTrust::Judged)).unwrap();
    assert_eq!(s.bucket(&bucket).unwrap().endpoint_trust, EndpointTrust::Judged);
    let other = Bucket::parse_uri("ais://@far/c").unwrap().0;
    assert_eq!(s.requested(other, None).endpoint_trust, EndpointTrust::Judged);
}

#[test]
fn the_usual_weight_is_not_written_and_every_weight_is_read() {
    let mut s = ClusterState::default();
    s.apply(1, join("target-01")).unwrap();
    let heavy = NodeId::new("target-02").unwrap();
    let node = Node { id: heavy.clone(), weight: 2, ..s.nodes.values().next().unwrap().clone() };
    s.nodes.insert(heavy, node);
    let json = serde_json::to_string(&s).unwrap();
    assert_eq!(json.matches("\"weight\"").count(), 1);
    assert_eq!(serde_json::from_str::<ClusterState>(&json).unwrap(), s);
    let before = json.replace("\"alive\":true,", "\"alive\":true,\"weight\":1,");
    let before = before.replacen(",\"weight\":2", "", 1);
    let read = serde_json::from_str::<ClusterState>(&before).unwrap();
    assert!(read.nodes.values().all(|n| n.weight == 1), "as earlier versions wrote it");
}

#[test]
fn a_bucket_name_is_unique_over_providers() {
    let mut s = ClusterState::default();
    s.apply(1, create("b")).unwrap();
    let cloud = BucketInfo::requested(Bucket::new(Provider::Aws, "b").unwrap(), None);
    let e = s.apply(2, Command::CreateBucket { info: Box::new(cloud), now_ns: 7 }).unwrap_err();
    assert_eq!(e.code, ErrorCode::Conflict);
    assert!(e.message.contains("\"ais://b\""), "{e}");
}

#[test]
fn a_node_that_comes_back_is_alive_since_then_and_stays_the_same_member() {
    let mut s = ClusterState::default();
    s.apply(1, join("target-01")).unwrap();
    let id = NodeId::new("target-01").unwrap();
    s.apply(2, Command::SetAlive { id: id.clone(), alive: false, yields: false }).unwrap();
    assert_eq!(s.alive_targets().count(), 0);
    assert_eq!(s.targets().count(), 1);
    s.apply(3, join("target-01")).unwrap();
    assert_eq!(s.node(&id).unwrap().alive_since, 3);
    assert_eq!(s.targets_changed, 1);
    s.apply(4, Command::Remove { id }).unwrap();
    assert_eq!(s.targets_changed, 4);
}

fn in_cloud(name: &str, account: Option<&str>, min_share: u8) -> BucketInfo {
    let mut info = BucketInfo::requested(Bucket::new(Provider::Aws, name).unwrap(), None);
    let backend = info.backend.as_mut().unwrap();
    backend.account = account.map(str::to_owned);
    info.cache.min_share = min_share;
    info
}

#[test]
fn minimum_shares_of_more_than_the_whole_cache_are_refused() {
    let mut s = ClusterState::default();
    let create = |info: &BucketInfo| Command::CreateBucket { info: info.clone().into(), now_ns: 7 };
    s.apply(1, create(&in_cloud("a", None, 60))).unwrap();
    s.apply(2, create(&in_cloud("b", None, 0))).unwrap();
    let e = s.apply(3, create(&in_cloud("c", None, 41))).unwrap_err();
    assert!(e.code == ErrorCode::InvalidArgument && e.message.contains("60 %"), "{e}");
    assert!(e.hint.unwrap().contains("at most 40 %"));
    let with_share = |s: &ClusterState, name, share| {
        let bucket = Bucket::new(Provider::Aws, name).unwrap();
        let mut info = BucketInfo::clone(s.bucket(&bucket).unwrap());
        info.cache.min_share = share;
        Command::SetBucket { info: info.into() }
    };
    assert!(s.apply(4, with_share(&s.clone(), "b", 41)).is_err());
    s.apply(5, with_share(&s.clone(), "b", 40)).unwrap();
    assert!(s.apply(6, with_share(&s.clone(), "a", 61)).is_err(), "a bucket counts once");
    s.apply(7, with_share(&s.clone(), "a", 20)).unwrap();
    s.apply(8, with_share(&s.clone(), "b", 80)).unwrap();
}

#[test]
fn a_bucket_with_an_account_or_a_minimum_share_needs_the_newest_format() {
    let create = |info: BucketInfo| Command::CreateBucket { info: info.into(), now_ns: 7 };
    let plain = in_cloud("data", None, 0);
    assert_eq!(create(plain.clone()).format(), 0);
    assert_eq!(Command::SetBucket { info: plain.into() }.format(), 0);
    for (account, min_share) in [(Some("prod"), 0), (None, 30)] {
        let info = in_cloud("data", account, min_share);
        assert_eq!(Command::SetBucket { info: info.clone().into() }.format(), STATE_FORMAT);
        let mut s = ClusterState::default();
        assert_eq!(s.format(), 0);
        s.apply(1, create(info.clone())).unwrap();
        assert_eq!(s.format(), STATE_FORMAT);
        let bucket = info.bucket.clone();
        s.apply(2, Command::DestroyBucket { bucket }).unwrap();
        assert_eq!(s.format(), 0, "without the bucket earlier versions can join again");
    }
}
