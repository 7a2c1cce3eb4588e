//! Who this node is.

use std::time::Instant;

use forebay_core::config::NodeConfig;
use forebay_core::sign::ClusterSecret;
use forebay_core::state::Role;
use forebay_core::{Error, NodeId, Result};

/// What a node knows of itself and proves to others; cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: NodeId,
    pub role: Role,
    /// Base URL by which clients and nodes reach it.
    pub url: String,
    pub secret: ClusterSecret,
    pub zone: String,
    pub started: Instant,
    /// Id of this process, random for each start.
    pub instance: u64,
    /// Id of the cluster whose data the disks of this node hold; empty where they hold none.
    pub cluster: String,
}

impl Identity {
    /// Reads the id and the cluster's secret that the configuration names.
    pub fn load(config: &NodeConfig, role: Role) -> Result<Self> {
        let path = &config.cluster.secret_file;
        if path.is_empty() {
            return Err(Error::invalid("cluster.secret_file is not set")
                .hint("every node of a cluster needs the same secret file"));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::invalid(format!("cannot read the secret file {path}: {e}")))?;
        let url = match config.listen.advertise.as_str() {
            "" => format!("http://{}", config.listen.http),
            url => url.trim_end_matches('/').to_owned(),
        };
        Ok(Self {
            id: NodeId::new(&config.node.id)?,
            role,
            url,
            secret: ClusterSecret::new(&text)?,
            zone: config.node.zone.clone(),
            started: Instant::now(),
            // Numbers of JSON readers that use floats stay exact.
            instance: rand::random_range(1..1 << 53),
            cluster: String::new(),
        })
    }

    /// The short form in messages of v1: `p[id]` for gateways, `t[id]` for targets.
    pub fn label(&self) -> String {
        let letter = if self.role == Role::Gateway { 'p' } else { 't' };
        format!("{letter}[{}]", self.id)
    }

    pub fn uptime_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}
