//! Configuration of a node: sections, fields, defaults, units, and the checks on them.
//!
//! Nothing here reads a file or the environment; `forebay-node` does, in one place.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::size::ByteSize;

/// Settings of one node, as its TOML file holds them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    pub cluster: ClusterConfig,
    pub node: NodeSection,
    pub listen: ListenConfig,
    pub disk: Vec<DiskConfig>,
    pub cache: CacheConfig,
    pub scrub: ScrubConfig,
    pub folder: FolderConfig,
    pub promote: PromoteConfig,
    pub s3: S3Config,
    pub etl: EtlConfig,
    pub download: DownloadConfig,
    pub limits: LimitsConfig,
    pub log: LogConfig,
}

/// Which cluster the node belongs to.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    pub name: String,
    /// URLs of gateways, which hold the cluster's metadata together. All of them for a new cluster, the
    /// same on every node; later some that live are enough, for new gateways too.
    pub gateways: Vec<String>,
    /// File with the secret that nodes of one cluster share.
    pub secret_file: String,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { name: "forebay".into(), gateways: Vec::new(), secret_file: String::new() }
    }
}

/// The node itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSection {
    /// At least 8 letters, digits, `-` or `_`; decides placement, so it must never change.
    pub id: String,
    /// Folder for the node's own state (a gateway's metadata, identity).
    pub dir: String,
    pub zone: String,
}

/// Where it listens.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// `address:port`.
    pub http: String,
    /// URL by which others reach this node; made from `http` when empty.
    pub advertise: String,
    /// Allows listening beyond loopback without authentication.
    pub insecure: bool,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self { http: "127.0.0.1:7400".into(), advertise: String::new(), insecure: false }
    }
}

/// One disk of a target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    pub path: String,
    /// Bytes Forebay may use there; 10 % of the file system or 20 GiB, the smaller, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Only a file system mounted at `path` is this disk: while it is missing, the folder under it
    /// is not used in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mount: bool,
    /// Makes the index of this disk anew from the objects themselves at start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuild_index: bool,
}

/// How the cache fills and empties.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Percent of the disk's budget above which eviction starts.
    pub high: u8,
    /// Percent below which it stops.
    pub low: u8,
    /// Percent above which reads of a backend's objects go through and keep nothing.
    pub out_of_space: u8,
    /// What goes first.
    pub policy: CachePolicy,
}

/// The order in which cached copies are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachePolicy {
    /// Lowest expected hits for the time until them.
    #[default]
    Density,
    /// Least recently used.
    Lru,
    Sieve,
    S3Fifo,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { high: 90, low: 80, out_of_space: 95, policy: CachePolicy::default() }
    }
}

/// How stored bytes that nobody reads are checked from time to time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubConfig {
    pub enabled: bool,
    /// What is read of each disk in a second, less while the disk is busy. The default checks a
    /// terabyte in 17 hours.
    pub bytes_per_second: ByteSize,
    /// From the end of one pass over a disk to the begin of the next.
    pub pause_hours: u32,
}

impl Default for ScrubConfig {
    fn default() -> Self {
        Self { enabled: true, bytes_per_second: ByteSize(16 << 20), pause_hours: 7 * 24 }
    }
}

/// Buckets of the folder backend.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FolderConfig {
    /// Folders under which such buckets may lie; none allows none.
    pub roots: Vec<String>,
}

/// Files of the node that may become objects.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromoteConfig {
    /// The folder under which they lie; nothing outside of it is ever read.
    pub root: String,
}

impl Default for PromoteConfig {
    fn default() -> Self {
        Self { root: "/var/lib/ais/promote".into() }
    }
}

/// The S3 front.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Config {
    /// Who may come in. With an empty list there is no login: everybody may do everything, with any
    /// signature or none. Absent is the same, except in `forebay dev` and in `forebay serve` on
    /// loopback, which have two users then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<S3Key>>,
    /// DeleteBucket takes the objects of a bucket along, as AIStore's does.
    pub delete_nonempty_buckets: bool,
    /// Serves S3 at `/` too, not only under `/s3`.
    pub root: bool,
    /// Domains whose sub-domains are buckets: `s3.example.com` for `bucket.s3.example.com`. Such a
    /// host serves S3 alone, at `/`.
    pub domains: Vec<String>,
    /// Least size of every part of an upload but the last. 5 MiB as on AWS when absent, except with
    /// `delete_nonempty_buckets`: whoever expects that of AIStore expects its small parts too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_part_size: Option<ByteSize>,
}

impl S3Config {
    /// The keys of those who may come in; empty where everybody may.
    pub fn keys(&self) -> &[S3Key] {
        self.keys.as_deref().unwrap_or_default()
    }

    /// Adds two users with published keys where the settings say nothing about keys. For clusters that
    /// only this machine reaches.
    pub fn with_trial_keys(&mut self) {
        let key = |access: &str, secret: &str| S3Key {
            access: access.into(),
            secret: secret.into(),
            user: None,
        };
        self.keys.get_or_insert_with(|| {
            vec![key("forebay", "forebaysecret"), key("forebay2", "forebaysecret2")]
        });
    }

    /// Least bytes of every part of an upload but the last.
    pub fn min_part(&self) -> u64 {
        let aws = if self.delete_nonempty_buckets { 0 } else { 5 << 20 };
        self.min_part_size.map_or(aws, |size| size.0)
    }
}

/// A key of a user of the S3 front.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct S3Key {
    pub access: String,
    pub secret: String,
    /// Whose key it is: who owns what is made with it, and whom policies and access control lists
    /// name. The access key itself when absent, so that every key is a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl S3Key {
    /// Whose key it is.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.access)
    }
}

/// Transforms of objects.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtlConfig {
    /// Objects transformed at once on this target; more wait.
    pub parallel: usize,
    /// Beginnings of the URLs that services may have. None given: any, on any network but the link's
    /// own addresses (169.254.0.0/16), where clouds hand out credentials.
    pub services: Vec<String>,
    /// Commands that a transform may name; the same on all targets.
    pub command: Vec<EtlCommand>,
}

/// A command that transforms what comes on its standard input.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EtlCommand {
    pub name: String,
    /// Program and arguments, as they are: no shell reads them.
    pub argv: Vec<String>,
}

impl Default for EtlConfig {
    fn default() -> Self {
        Self { parallel: 32, services: Vec::new(), command: Vec::new() }
    }
}

/// Downloads from the web.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DownloadConfig {
    /// Whether links may lead to private networks and to this machine.
    pub allow_private: bool,
    /// Objects downloaded at once by one job on this target.
    pub parallel: usize,
}

impl Default for DownloadConfig {
    fn default() -> Self {
        Self { allow_private: false, parallel: 8 }
    }
}

/// Batches with less memory would read one object after the other.
const LEAST_BATCH_MEMORY: u64 = 16 << 20;

/// Bounds on what clients may ask of a node at once.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Batches answered at once; more get 429.
    pub batches: usize,
    /// Memory that all batches share for what they read ahead.
    pub batch_memory: ByteSize,
    /// Cold GETs in flight to all backends together.
    pub cold_gets: usize,
    /// Percent of the cold GETs, and of a cloud's calls and budgets, that work ahead of need may take;
    /// the rest is left to readers who wait.
    pub prefetch_percent: u8,
    /// Connections open at once; above that the oldest ones end, and new ones may get 503. 0: as many
    /// as the limit of open files allows, less a reserve for files.
    pub connections: usize,
    /// Seconds that a client may let this node wait for the next bytes of a request's body, or with
    /// bytes of a reply that it does not read.
    pub client_timeout_s: u32,
    /// Bytes in a second that a client moves at least, over the time that this node waits for it.
    pub client_min_rate: ByteSize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            batches: 256,
            batch_memory: ByteSize(128 << 20),
            cold_gets: 64,
            prefetch_percent: 50,
            connections: 0,
            client_timeout_s: 60,
            client_min_rate: ByteSize(1 << 10),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What a node says, and how.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// A level, or directives such as `info,forebay_target=debug`.
    pub level: String,
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

impl NodeConfig {
    /// Checks what types alone cannot.
    pub fn validate(&self) -> Result<()> {
        let CacheConfig { high, low, out_of_space, .. } = self.cache;
        if high > 100 || low >= high {
            return Err(Error::invalid(format!(
                "cache.low ({low}) must be below cache.high ({high}), both percents up to 100"
            )));
        }
        if out_of_space > 100 || out_of_space < high {
            return Err(Error::invalid(format!(
                "cache.out_of_space ({out_of_space}) must be a percent from cache.high ({high}) to 100"
            )));
        }
        if self.limits.batches == 0 || self.limits.cold_gets == 0 {
            return Err(Error::invalid("limits.batches and limits.cold_gets must be at least 1"));
        }
        if !(1..=100).contains(&self.limits.prefetch_percent) {
            return Err(Error::invalid("limits.prefetch_percent must be from 1 to 100"));
        }
        if self.limits.client_timeout_s == 0 || self.limits.client_min_rate.0 == 0 {
            return Err(Error::invalid(
                "limits.client_timeout_s and limits.client_min_rate must be at least 1",
            ));
        }
        if self.limits.batch_memory.0 < LEAST_BATCH_MEMORY {
            return Err(Error::invalid("limits.batch_memory must be at least 16MiB"));
        }
        if self.etl.parallel == 0 || self.download.parallel == 0 {
            return Err(Error::invalid("etl.parallel and download.parallel must be at least 1"));
        }
        for (i, command) in self.etl.command.iter().enumerate() {
            let taken = self.etl.command[..i].iter().any(|c| c.name == command.name);
            if command.name.is_empty() || command.argv.is_empty() || taken {
                return Err(Error::invalid(format!(
                    "etl.command \"{}\" needs a name of its own and a program in argv",
                    command.name
                )));
            }
        }
        if self.scrub.bytes_per_second.0 == 0 {
            return Err(Error::invalid("scrub.bytes_per_second must be at least 1")
                .hint("scrub.enabled = false turns it off"));
        }
        Ok(())
    }
}

/// The known name closest to a mistyped one, if any is close.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().max(wrong.len()) / 3)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_finds_its_name() {
        assert_eq!(nearest("clutser", ["cluster", "listen"]), Some("cluster"));
        assert_eq!(nearest("hgih", ["high", "low"]), Some("high"));
        assert_eq!(nearest("zzzzzz", ["high", "low"]), None);
    }

    #[test]
    fn watermarks_must_be_in_order() {
        let mut c = NodeConfig::default();
        c.validate().unwrap();
        c.cache = CacheConfig { high: 50, low: 50, ..CacheConfig::default() };
        assert!(c.validate().is_err());
        c.cache = CacheConfig { out_of_space: 89, ..CacheConfig::default() };
        assert!(c.validate().unwrap_err().message.contains("cache.out_of_space (89)"));
    }

    #[test]
    fn commands_of_transforms_have_names_of_their_own_and_a_program() {
        let command = |name: &str, argv: &[&str]| EtlCommand {
            name: name.into(),
            argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        };
        let valid = |command: &[EtlCommand]| {
            let mut c = NodeConfig::default();
            c.etl.command = command.to_vec();
            c.validate().is_ok()
        };
        assert!(valid(&[command("a", &["cat"]), command("b", &["cat"])]));
        assert!(!valid(&[command("a", &["cat"]), command("a", &["tac"])]));
        assert!(!valid(&[command("", &["cat"])]) && !valid(&[command("a", &[])]));
    }

    #[test]
    fn a_scrub_that_reads_nothing_is_refused() {
        let mut c = NodeConfig::default();
        c.scrub.bytes_per_second = ByteSize(0);
        assert!(c.validate().is_err());
    }
}
