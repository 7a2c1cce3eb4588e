//! Configuration of a node: sections, fields, defaults, units, and their validation.
//!
//! Nothing here reads a file or the environment; `forebay-node` does that, in one place.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::size::ByteSize;

/// Settings of one node, as in its TOML file.
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

/// The cluster that the node belongs to.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    pub name: String,
    /// URLs of the gateways, which store the cluster's metadata. For a new cluster list all of
    /// them, the same on every node; later some live ones suffice, for new gateways too.
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

/// The addresses to listen on.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// `address:port`.
    pub http: String,
    /// URL by which other nodes and clients reach this node; derived from `http` if empty.
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
    /// Bytes that Forebay may use there; if absent, the smaller of 10 % of the file system and 20
    /// GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Requires a file system mounted at `path`: while it is not mounted, the folder under the
    /// mount point is not used instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mount: bool,
    /// Rebuilds the index of this disk from the objects at start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuild_index: bool,
}

/// When the cache fills and evicts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Percent of the disk's budget above which eviction starts.
    pub high: u8,
    /// Percent below which it stops.
    pub low: u8,
    /// Percent above which reads of a backend's objects pass through and are not cached.
    pub out_of_space: u8,
    /// The order of eviction.
    pub policy: CachePolicy,
}

/// The order in which cached copies are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachePolicy {
    /// Lowest expected hits per unit of time first.
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

/// Periodic verification of stored bytes that are not read.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubConfig {
    pub enabled: bool,
    /// Bytes per second read from each disk, less while the disk is busy. The default checks a
    /// terabyte in 17 hours.
    pub bytes_per_second: ByteSize,
    /// Pause between two passes over a disk.
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
    /// Folders under which such buckets may be; if empty, none are allowed.
    pub roots: Vec<String>,
}

/// Files of the node that may be promoted to objects.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromoteConfig {
    /// The folder that contains them; nothing outside of it is ever read.
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
    /// The keys of users. With an empty list there is no authentication: everybody may do
    /// everything, with any signature or none. Absent means the same, except in `forebay dev` and
    /// in `forebay serve` on loopback, which then have two users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<S3Key>>,
    /// DeleteBucket also deletes the bucket's objects, as in AIStore.
    pub delete_nonempty_buckets: bool,
    /// Serves S3 at `/` too, not only under `/s3`.
    pub root: bool,
    /// Domains whose sub-domains are buckets: `s3.example.com` for `bucket.s3.example.com`. Such a
    /// host serves only S3, at `/`.
    pub domains: Vec<String>,
    /// Minimum size of every part of an upload except the last. If absent 5 MiB, as on AWS; without
    /// a minimum if `delete_nonempty_buckets` is set, since clients of AIStore also rely on its
    /// small parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_part_size: Option<ByteSize>,
}

impl S3Config {
    /// The keys of users; empty if everybody has access.
    pub fn keys(&self) -> &[S3Key] {
        self.keys.as_deref().unwrap_or_default()
    }

    /// Adds two users with published keys if the settings do not mention keys. For clusters that
    /// only this machine can reach.
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

    /// Minimum bytes of every part of an upload except the last.
    pub fn min_part(&self) -> u64 {
        let aws = if self.delete_nonempty_buckets { 0 } else { 5 << 20 };
        self.min_part_size.map_or(aws, |size| size.0)
    }
}

/// A key of an S3 user.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct S3Key {
    pub access: String,
    pub secret: String,
    /// The user of this key: the owner of everything created with it, and the name used in policies
    /// and access control lists. If absent the access key itself, so that every key is a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl S3Key {
    /// The user of this key.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.access)
    }
}

/// Transforms of objects.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtlConfig {
    /// Objects transformed concurrently on this target; further ones wait.
    pub parallel: usize,
    /// Allowed URL prefixes of services. If empty: any URL on any network except link-local
    /// addresses (169.254.0.0/16), where clouds serve credentials.
    pub services: Vec<String>,
    /// Commands that a transform may name; the same on all targets.
    pub command: Vec<EtlCommand>,
}

/// A command that transforms its standard input.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EtlCommand {
    pub name: String,
    /// Program and arguments, passed without a shell.
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
    /// Concurrent downloads of one job on this target.
    pub parallel: usize,
}

impl Default for DownloadConfig {
    fn default() -> Self {
        Self { allow_private: false, parallel: 8 }
    }
}

/// With less memory, batches would read one object after the other.
const LEAST_BATCH_MEMORY: u64 = 16 << 20;

/// Limits on concurrent requests to a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Concurrent batches; more get 429.
    pub batches: usize,
    /// Memory that all batches share for reading ahead.
    pub batch_memory: ByteSize,
    /// Cold GETs in flight to all backends together.
    pub cold_gets: usize,
    /// Percent of the cold GETs, and of a cloud's calls and budgets, that background work may take;
    /// the rest is reserved for foreground reads.
    pub prefetch_percent: u8,
    /// Maximum open connections; above it the oldest ones are closed, and new ones may get 503. 0:
    /// as many as the limit of open files allows, less a reserve for files.
    pub connections: usize,
    /// Seconds that a client may delay the next bytes of a request's body, or leave bytes of a
    /// reply unread.
    pub client_timeout_s: u32,
    /// Minimum bytes per second of a client, measured over the time that this node waits for it.
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

/// Logging: level and format.
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
    /// Checks rules that types alone cannot express.
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
