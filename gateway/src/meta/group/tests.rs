//! Tests of a group of one over restarts, and of the rules for membership. `tests/` tests several
//! gateways over HTTP.

use forebay_core::bucket::BucketInfo;
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::state::Role;
use forebay_core::{Bucket, ErrorCode, NodeId, Provider};
use proptest::prelude::*;

use super::*;
use crate::meta::view::{EnterReply, EnterRequest, RemoveReply, RemoveRequest};

const URL: &str = "http://127.0.0.1:1";

/// A running group of one.
pub(crate) struct Alone {
    pub(crate) group: Group,
    pub(crate) maps: Maps,
    closing: Closing,
    lifecycle: Lifecycle,
}

impl Alone {
    pub(crate) async fn start(path: &Path) -> Self {
        Self::try_start(path, URL, &[]).await.unwrap()
    }

    async fn try_start(path: &Path, url: &str, gateways: &[String]) -> Result<Self> {
        let (maps, lifecycle) = (Maps::default(), Lifecycle::new());
        let secret = ClusterSecret::new("0123456789abcdef").unwrap();
        let peer = PeerClient::new(Signer::new(secret, NodeId::new("gateway-1").unwrap(), 1));
        let (group, closing) =
            Group::open(path, url, gateways, peer, maps.clone(), &lifecycle).await?;
        let alone = Self { group, maps, closing, lifecycle };
        if alone.group.is_alone() {
            alone.lead().await?;
        }
        Ok(alone)
    }

    /// Starts the only voter of a group that also has learners.
    async fn start_among(path: &Path) -> Self {
        let alone = Self::try_start(path, URL, &[]).await.unwrap();
        alone.lead().await.unwrap();
        alone
    }

    async fn lead(&self) -> Result<()> {
        self.group.discover().await?;
        let mut leader = self.group.leader();
        leader.wait_for(|l| matches!(l, Leader::Here { .. })).await.unwrap();
        self.group.catch_up().await
    }

    async fn stop(self) {
        self.group.stop().await;
        self.lifecycle.shutdown(Duration::from_secs(5)).await;
        drop(self.group);
        assert!(self.closing.done(Duration::from_secs(5)).await);
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(Provider::Ais, name).unwrap()
}

fn create(name: &str) -> Command {
    let info = Box::new(BucketInfo::requested(bucket(name), None));
    Command::CreateBucket { info, now_ns: 9 }
}

fn command() -> impl Strategy<Value = Command> {
    let id = |n: u8| NodeId::new(&format!("target-{n:02}")).unwrap();
    prop_oneof![
        (0u8..4).prop_map(|n| create(&format!("b{n}"))),
        (0u8..4).prop_map(|n| Command::DestroyBucket { bucket: bucket(&format!("b{n}")) }),
        (0u8..3, 0u16..3).prop_map(move |(n, port)| Command::Join {
            id: id(n),
            role: Role::Target,
            url: format!("http://127.0.0.1:{port}"),
            weight: 1,
            zone: String::new(),
            instance: 0,
            https: String::new(),
            external: String::new(),
        }),
        (0u8..3, any::<bool>(), any::<bool>())
            .prop_map(move |(n, alive, yields)| Command::SetAlive { id: id(n), alive, yields }),
        (0u8..3).prop_map(move |n| Command::Remove { id: id(n) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_restart_makes_the_state_that_was_live(
        commands in prop::collection::vec(command(), 0..30),
        snapshot_after in 0usize..30,
    ) {
        block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("meta.redb");
            let alone = Alone::start(&path).await;
            for (n, command) in commands.into_iter().enumerate() {
                let before = alone.group.state();
                match alone.group.propose(command).await {
                    Ok(version) => {
                        assert!(version > before.version);
                        assert_eq!(alone.group.state().version, version);
                    }
                    Err(_) => assert_eq!(alone.group.state(), before),
                }
                if n == snapshot_after {
                    let trigger = alone.group.raft.trigger();
                    trigger.snapshot().await.unwrap();
                }
            }
            let live = alone.group.state();
            alone.stop().await;
            let again = Alone::start(&path).await;
            assert_eq!(again.group.state(), live);
            again.stop().await;
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_commands_get_distinct_versions() {
    let dir = tempfile::tempdir().unwrap();
    let alone = Alone::start(&dir.path().join("meta.redb")).await;
    let names: Vec<String> = (0..100).map(|i| format!("b{i}")).collect();
    let proposed = names.iter().map(|name| alone.group.propose(create(name)));
    let mut versions = futures::future::try_join_all(proposed).await.unwrap();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 100);
    assert_eq!(alone.maps.load().buckets.len(), 100);
    alone.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_equal_concurrent_commands_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let alone = Alone::start(&dir.path().join("meta.redb")).await;
    let (a, b) = tokio::join!(alone.group.propose(create("b")), alone.group.propose(create("b")));
    let refused = a.and(b).unwrap_err();
    assert_eq!(refused.code, ErrorCode::BucketExists);
    let version = alone.maps.version();
    let e = alone.group.propose(create("b")).await.unwrap_err();
    assert_eq!((e.code, alone.maps.version()), (ErrorCode::BucketExists, version));
    alone.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_and_a_short_log_hold_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let alone = Alone::start(&path).await;
    for i in 0..20 {
        alone.group.propose(create(&format!("b{i}"))).await.unwrap();
    }
    let raft = &alone.group.raft;
    let wait = raft.wait(Some(Duration::from_secs(10)));
    wait.applied_index_at_least(Some(alone.maps.version()), "the last one").await.unwrap();
    raft.trigger().snapshot().await.unwrap();
    let all = raft.metrics().borrow().last_applied.unwrap();
    wait.snapshot(all, "the snapshot").await.unwrap();
    raft.trigger().purge_log(all.index).await.unwrap();
    wait.purged(Some(all), "the purge").await.unwrap();
    let live = alone.group.state();
    alone.stop().await;
    assert!(MetaFile::open(&path).unwrap().entries(..).unwrap().is_empty());
    let again = Alone::start(&path).await;
    assert_eq!(again.group.state(), live);
    assert!(again.group.propose(create("new")).await.unwrap() > live.version);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_alone_may_move_and_stays_who_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let alone = Alone::try_start(&path, URL, &[format!("{URL}/")]).await.unwrap();
    let version = alone.group.propose(create("b")).await.unwrap();
    alone.stop().await;
    let moved = Alone::try_start(&path, "http://127.0.0.1:2", &[]).await.unwrap();
    assert_eq!(moved.maps.version(), version);
    moved.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_keeps_its_gateways() {
    let dir = tempfile::tempdir().unwrap();
    let list = |ports: &[u16]| -> Vec<String> {
        ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect()
    };
    let refused = async |path: &str, url: &str, gateways: &[String]| match Alone::try_start(
        &dir.path().join(path),
        url,
        gateways,
    )
    .await
    {
        Ok(_) => panic!("{gateways:?} was taken"),
        Err(e) => {
            assert_eq!(e.code, ErrorCode::InvalidArgument, "{e}");
            e.message
        }
    };
    assert!(refused("new.redb", URL, &list(&[1, 2, 2])).await.contains("twice"));

    // The log decides, whatever else the configuration names.
    let path = dir.path().join("one.redb");
    let alone = Alone::start(&path).await;
    let version = alone.group.propose(create("b")).await.unwrap();
    alone.stop().await;
    let again = Alone::try_start(&path, URL, &list(&[1, 2, 3])).await.unwrap();
    assert!(again.group.is_alone() && again.maps.version() == version);
    again.stop().await;
    let path = dir.path().join("three.redb");
    let state = forebay_core::state::ClusterState::default();
    crate::meta::restore::restore(&path, URL, &list(&[1, 2, 3]), state).unwrap();
    let three = Alone::try_start(&path, URL, &list(&[1, 2, 3])).await;
    three.unwrap().stop().await;
    let moved = refused("three.redb", "http://127.0.0.1:2", &list(&[1, 2, 3])).await;
    assert!(moved.contains("was http://127.0.0.1:1"), "{moved}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_gateway_stays_and_one_at_a_former_address_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    Alone::start(&path).await.stop().await;
    let elsewhere = "http://127.0.0.1:2";
    let alone = Alone::try_start(&path, elsewhere, &[]).await.unwrap();
    let only = RemoveRequest { url: elsewhere.into() };
    let e = alone.group.remove(only).await.unwrap_err();
    assert!(e.code == ErrorCode::Conflict && e.message.contains("the only gateway"), "{e}");
    let unknown = RemoveRequest { url: "http://127.0.0.1:3".into() };
    assert_eq!(alone.group.remove(unknown).await.unwrap(), RemoveReply::Done);
    // It keeps the id derived from its first address.
    let id = forebay_core::placement::digest(URL);
    let request =
        EnterRequest { id, url: URL.into(), blank: true, node: String::new(), state_format: 0 };
    let e = alone.group.enter(request).await.unwrap_err();
    assert!(e.code == ErrorCode::Conflict && e.message.contains(elsewhere), "{e}");
    assert_eq!(alone.group.seats().len(), 1);
    alone.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_only_learns_counts_for_no_majority() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let alone = Alone::start(&path).await;
    // A gateway that began to join and ended.
    let (url, node) = ("http://127.0.0.1:9".to_owned(), String::new());
    let request = EnterRequest { id: 7, url, blank: true, node, state_format: 0 };
    for _ in 0..2 {
        assert_eq!(alone.group.enter(request.clone()).await.unwrap(), EnterReply::Learns);
    }
    assert!(!alone.group.is_alone());
    alone.group.propose(create("b")).await.unwrap();
    let half = EnterRequest { blank: false, ..request.clone() };
    assert_eq!(alone.group.enter(half).await.unwrap(), EnterReply::Learns, "it has nothing yet");
    alone.stop().await;
    // The next leader continues, and can remove it.
    let again = Alone::start_among(&path).await;
    assert_eq!(
        again.group.remove(RemoveRequest { url: request.url }).await.unwrap(),
        RemoveReply::Done
    );
    assert!(again.group.is_alone());
    again.stop().await;
}
