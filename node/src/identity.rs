//! The identity of this node.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forebay_core::config::{NodeConfig, external_url};
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::state::Role;
use forebay_core::{Error, NodeId, Result};

use crate::access::Sealer;
use crate::node_key;
use crate::scale_down::ScaleDown;
use crate::secret_file;
use crate::token_join::TokenJoin;

/// A node's id, addresses and keys; cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: NodeId,
    pub role: Role,
    /// Base URL by which clients and nodes reach it.
    pub url: String,
    pub signer: Signer,
    pub zone: String,
    pub started: Instant,
    /// Id of this process, random for each start.
    pub instance: u64,
    /// Id of the cluster whose data the disks of this node hold; empty where they hold none.
    pub cluster: String,
    /// Whether all disks of this node are in use and were empty when it started.
    pub empty: bool,
    /// Base URL for HTTPS; empty if this node serves plain HTTP only.
    pub https: String,
    /// Base URL for clients outside of the cluster's network; empty for none.
    pub external: String,
    /// Opens secrets of the cluster's state.
    pub sealer: Arc<Sealer>,
    /// How a target without the cluster's secret joins.
    pub token_join: Option<Arc<TokenJoin>>,
    /// Whether a scale-down drained this target before its last stop.
    pub scale_down: ScaleDown,
}

impl Identity {
    /// Reads the id and the cluster's secret or the join token that the configuration names, and the
    /// node's own key, which is made at the first start.
    pub fn load(config: &NodeConfig, role: Role) -> Result<Self> {
        let secret = secret(config, role)?;
        let (url, https) = urls(config);
        let id = NodeId::new(&config.node.id)?;
        let dir = &config.node.dir;
        let host_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let external = external_url(&config.listen.external, id.as_str(), host_name.trim())?;
        let known = if dir.is_empty() { None } else { node_key::load(Path::new(dir))? };
        let token_join = match &secret {
            Some(_) => None,
            None => {
                Some(Arc::new(TokenJoin::new(&config.cluster.join_token_file, known.is_some())?))
            }
        };
        let key = match known {
            Some(key) => key,
            None => node_key::load_or_make(dir)?,
        };
        let sealer = Arc::new(Sealer::new(secret.as_ref()));
        let signer = match secret {
            Some(secret) => Signer::new(secret, id.clone(), rand::random()),
            None => Signer::without_secret(id.clone(), rand::random()),
        };
        let signer = signer.with_key(key);
        Ok(Self {
            sealer,
            token_join,
            id,
            role,
            url,
            signer,
            zone: config.node.zone.clone(),
            started: Instant::now(),
            // So that JSON readers that use floats read the number exactly.
            instance: rand::random_range(1..1 << 53),
            cluster: String::new(),
            empty: false,
            https,
            external,
            scale_down: ScaleDown::of(dir),
        })
    }

    /// The short form in messages of v1: `p[id]` for gateways, `t[id]` for targets.
    pub fn label(&self) -> String {
        let letter = if self.role == Role::Gateway { 'p' } else { 't' };
        format!("{letter}[{}]", self.id)
    }

    /// Whether a request with this `Host` came by the external URL of this node.
    pub(crate) fn is_external(&self, host: &[u8]) -> bool {
        let own = after_scheme(&self.external).as_bytes();
        !own.is_empty() && own.eq_ignore_ascii_case(host)
    }

    pub fn uptime_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// The cluster's secret; `None` for a target that joins by a token.
fn secret(config: &NodeConfig, role: Role) -> Result<Option<ClusterSecret>> {
    let (path, token) = (&config.cluster.secret_file, &config.cluster.join_token_file);
    match (path.as_str(), token.as_str()) {
        ("", "") => Err(Error::invalid("cluster.secret_file is not set").hint(
            "every gateway needs the same secret file, and a target the same or a join token",
        )),
        ("", _) if role == Role::Gateway => Err(Error::invalid("a gateway cannot join by a token")
            .hint("set cluster.secret_file, and give it the file of the other gateways")),
        ("", _) if config.node.dir.is_empty() => {
            Err(Error::invalid("a target that joins by a token needs node.dir")
                .hint("its key in this folder proves who it is, when the token has expired"))
        }
        ("", _) => Ok(None),
        (_, token) if !token.is_empty() => {
            Err(Error::invalid("cluster.secret_file and cluster.join_token_file are both set")
                .hint("a target with a join token needs no secret of the cluster"))
        }
        _ => {
            let text = secret_file::read_text("cluster.secret_file", Path::new(path))?;
            ClusterSecret::new(&text).map(Some)
        }
    }
}

/// The node's URL, and its URL for HTTPS if it serves HTTPS.
///
/// The first one names the node in the cluster, so that a gateway keeps the scheme that
/// `cluster.gateways` has for its address: the scheme of its URL does not change when it gets TLS.
fn urls(config: &NodeConfig) -> (String, String) {
    let (listen, tls) = (&config.listen, &config.tls);
    let scheme = if tls.serves_http() { "http" } else { "https" };
    let url = match listen.advertise.as_str() {
        "" => {
            let is_this = |url: &&str| after_scheme(url) == listen.http;
            let mut listed = config.cluster.gateways.iter().map(|url| url.trim_end_matches('/'));
            listed
                .find(is_this)
                .map_or_else(|| format!("{scheme}://{}", listen.http), str::to_owned)
        }
        url => url.trim_end_matches('/').to_owned(),
    };
    let https = if tls.is_on() { over_https(&url) } else { String::new() };
    (url, https)
}

/// A URL without its scheme.
pub(crate) fn after_scheme(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest)
}

/// The same URL with the scheme `https`. A node serves both schemes on one port.
pub fn over_https(url: &str) -> String {
    format!("https://{}", after_scheme(url))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;

    /// The gateway at `http://127.0.0.1:7400`.
    pub(crate) fn identity() -> Identity {
        let id = NodeId::new("gateway-1").unwrap();
        let secret = ClusterSecret::new("0123456789abcdef").unwrap();
        let sealer = Sealer::new(Some(&secret));
        Identity {
            id: id.clone(),
            role: Role::Gateway,
            url: "http://127.0.0.1:7400".into(),
            signer: Signer::new(secret, id, 1),
            zone: String::new(),
            started: Instant::now(),
            instance: 1,
            cluster: String::new(),
            empty: false,
            https: String::new(),
            external: String::new(),
            sealer: Arc::new(sealer),
            token_join: None,
            scale_down: Default::default(),
        }
    }

    #[test]
    fn a_gateway_keeps_its_listed_url_when_it_gets_tls() {
        let mut config = NodeConfig::default();
        let own = |scheme: &str| format!("{scheme}://127.0.0.1:7400");
        assert_eq!(urls(&config), (own("http"), String::new()));
        (config.tls.cert, config.tls.http) = ("cert".into(), true);
        assert_eq!(urls(&config), (own("http"), own("https")));
        config.tls.http = false;
        assert_eq!(urls(&config), (own("https"), own("https")));
        config.cluster.gateways = vec![own("http") + "/"];
        assert_eq!(urls(&config), (own("http"), own("https")));
        config.listen.advertise = "https://store.example:7400/".into();
        let advertised = "https://store.example:7400".to_owned();
        assert_eq!(urls(&config), (advertised.clone(), advertised));
    }
}
