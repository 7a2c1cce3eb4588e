//! Settings of what callers may name: destinations of calls, and folders of disks.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ListenConfig;
use crate::egress::AllowEntry;
use crate::error::{Error, Result};

/// Destinations of URLs that callers name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressConfig {
    /// Destinations that URLs of callers may have in addition to public addresses: networks
    /// (`10.0.0.0/8`), addresses, hosts, or one of the last two with a port (`minio.lab:9000`). The URLs
    /// are those of endpoints of buckets, attached clusters, transform services, downloads and web servers.
    pub allow: Vec<String>,
}

impl EgressConfig {
    /// The parsed entries. Fails at the first one that cannot be read.
    pub fn entries(&self) -> Result<Vec<AllowEntry>> {
        self.allow.iter().map(|entry| entry.parse()).collect()
    }
}

/// Folders that a command may attach as disks.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DisksConfig {
    /// Folders under which `forebay disk attach` may add disks, at any depth. With an empty list, a target
    /// that listens on loopback accepts every folder, and any other target the folders beside its
    /// configured disks.
    pub roots: Vec<String>,
}

impl DisksConfig {
    pub(super) fn validate(&self) -> Result<()> {
        match self.roots.iter().find(|root| !Path::new(root).is_absolute()) {
            Some(root) => {
                Err(Error::invalid(format!("disks.roots: \"{root}\" is no absolute path")))
            }
            None => Ok(()),
        }
    }
}

impl ListenConfig {
    /// Whether clients of this node are on this machine: it listens on loopback, and is not
    /// advertised at another address.
    pub fn is_loopback(&self) -> bool {
        let listens = self.http.parse::<SocketAddr>().is_ok_and(|a| a.ip().is_loopback());
        let host = || {
            let (_, rest) = self.advertise.split_once("://")?;
            let authority = rest.split('/').next()?;
            let end = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
            Some(authority[..end.unwrap_or(authority.len())].trim_matches(['[', ']']))
        };
        let is_here = |host: &str| {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        listens && (self.advertise.is_empty() || host().is_some_and(is_here))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_advertised_elsewhere_is_not_on_loopback() {
        let is_loopback = |http: &str, advertise: &str| {
            let (http, advertise) = (http.to_owned(), advertise.to_owned());
            ListenConfig { http, advertise, insecure: true, ..ListenConfig::default() }
                .is_loopback()
        };
        for advertise in
            ["", "http://127.0.0.1:7400", "http://localhost", "http://[::1]:7400", "http://[::1]/"]
        {
            assert!(is_loopback("127.0.0.1:7400", advertise), "{advertise}");
        }
        for advertise in ["http://10.0.0.1:7400", "https://cache.example.org", "nonsense"] {
            assert!(!is_loopback("127.0.0.1:7400", advertise), "{advertise}");
        }
        assert!(is_loopback("[::1]:7400", ""));
        assert!(!is_loopback("0.0.0.0:7400", "") && !is_loopback("10.0.0.1:7400", ""));
        assert!(!is_loopback("0.0.0.0:7400", "http://127.0.0.1:7400"));
    }
}
