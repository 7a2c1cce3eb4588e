//! Gateways and stand-ins that form one cluster.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::Duration;

use forebay_core::config::NodeConfig;
use forebay_core::intra::MapReply;
use forebay_node::lifecycle::Lifecycle;

use crate::stand_in::StandIn;
use crate::wire::get;

pub(crate) const SECRET: &str = "0123456789abcdef-secret";

pub(crate) struct Gateway {
    pub(crate) url: String,
    lifecycle: Lifecycle,
    task: tokio::task::JoinHandle<()>,
}

impl Gateway {
    pub(crate) async fn stop(self) {
        self.lifecycle.shutdown(Duration::from_secs(5)).await;
        self.task.await.unwrap();
    }
}

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) urls: Vec<String>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) targets: Vec<StandIn>,
}

/// An unused port, below the range of ports for outgoing connections; never the same twice.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = rand::random_range(20_000..32_000);
        let is_free = std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free && GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

pub(crate) async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "no {what} in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl World {
    pub(crate) async fn new(gateways: usize, targets: usize) -> Self {
        let urls = (0..gateways).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut world = Self { dir, urls, gateways: vec![], targets: vec![] };
        for i in 0..gateways {
            let gateway = world.start_gateway(i).await;
            world.gateways.push(gateway);
        }
        for i in 0..targets {
            let id = format!("target-{i:02}");
            world.targets.push(StandIn::start(&id, SECRET, world.urls.clone()).await);
        }
        for gateway in &world.gateways {
            until("map with all targets", async || {
                let map = map(&gateway.url).await?;
                (map.state.alive_targets().count() == targets
                    && map.state.gateways().count() == gateways)
                    .then_some(())
            })
            .await;
        }
        world
    }

    pub(crate) async fn start_gateway(&self, index: usize) -> Gateway {
        let path = |name: &str| self.dir.path().join(name).to_str().unwrap().to_owned();
        let mut config = NodeConfig::default();
        config.cluster.gateways = self.urls.clone();
        config.cluster.secret_file = path("secret");
        config.node.id = format!("gateway-{index}");
        config.node.dir = path(&format!("gateway-{index}"));
        config.listen.http = self.urls[index].strip_prefix("http://").unwrap().to_owned();
        let lifecycle = Lifecycle::new();
        let (is_up, up) = tokio::sync::oneshot::channel();
        let run = forebay_gateway::run(config, lifecycle.clone(), move |_: &str| {
            let _ = is_up.send(());
        });
        let task = tokio::spawn(async move { run.await.unwrap() });
        up.await.expect("the gateway starts");
        Gateway { url: self.urls[index].clone(), lifecycle, task }
    }

    pub(crate) fn url(&self) -> &str {
        &self.gateways[0].url
    }

    pub(crate) fn target(&self, id: &str) -> &StandIn {
        self.targets.iter().find(|t| t.id == id).unwrap()
    }
}

pub(crate) async fn map(url: &str) -> Option<MapReply> {
    let answer = get(url, "/api/v1/map").await;
    (answer.status == 200).then(|| serde_json::from_slice(&answer.body).unwrap())
}
