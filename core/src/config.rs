//! Configuration of a node: sections, fields, defaults, units, and their validation.
//!
//! Nothing here reads a file or the environment; `forebay-node` does that, in one place.

mod auth;
mod cache;
mod clouds;
mod destinations;
mod external;
mod nearest;
mod tls;
mod trace;
mod validate;

use serde::{Deserialize, Serialize};

pub use self::auth::{AuthConfig, IssuerConfig};
pub use self::cache::{CacheConfig, CachePolicy, RETIRED_VALUES, ScrubConfig};
pub use self::clouds::CloudConfig;
pub use self::destinations::{DisksConfig, EgressConfig};
pub use self::external::external_url;
pub use self::nearest::nearest;
pub use self::tls::TlsConfig;
pub use self::trace::TraceConfig;
use crate::size::ByteSize;

/// Settings of one node, as in its TOML file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    pub cluster: ClusterConfig,
    pub node: NodeSection,
    pub listen: ListenConfig,
    pub tls: TlsConfig,
    pub http: HttpConfig,
    pub disk: Vec<DiskConfig>,
    pub disks: DisksConfig,
    pub cache: CacheConfig,
    pub scrub: ScrubConfig,
    pub folder: FolderConfig,
    pub promote: PromoteConfig,
    pub cloud: Vec<CloudConfig>,
    pub s3: S3Config,
    pub etl: EtlConfig,
    pub download: DownloadConfig,
    pub egress: EgressConfig,
    pub limits: LimitsConfig,
    pub log: LogConfig,
    pub trace: TraceConfig,
    pub audit: AuditConfig,
    pub auth: AuthConfig,
}

/// The cluster of the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Name of the cluster, for people. It has no effect.
    pub name: String,
    /// URLs of the gateways. A new cluster needs the complete list, the same on every node, and begins
    /// only when all of them run. In a cluster that runs, some gateways that are alive are enough, for
    /// new gateways too. Empty: a gateway is the only one; a target needs at least one URL.
    pub gateways: Vec<String>,
    /// File with the secret of the cluster, at least 16 characters; required, except at a target with
    /// `cluster.join_token_file`. Every node needs the same secret.
    pub secret_file: String,
    /// For a target, instead of `cluster.secret_file`: file with a token of `forebay node join-token
    /// create`. The cluster needs users. After the first start, the key in `node.dir` proves who the target
    /// is, and the file can be removed.
    pub join_token_file: String,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            name: "forebay".into(),
            gateways: Vec::new(),
            secret_file: String::new(),
            join_token_file: String::new(),
        }
    }
}

/// The node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSection {
    /// Id of the node, required: at least 8 letters, digits, `-` or `_`, starting with a letter. It decides
    /// the placement of objects and must never change.
    pub id: String,
    /// Folder for the state of the node. A gateway needs it for its copy of the cluster's metadata. A
    /// target needs it to keep jobs over a restart, and to attach or detach disks by command.
    pub dir: String,
    /// Failure zone of the node, such as its rack. Copies and slices of an object lie in different
    /// zones if there are enough of them. Empty: no zone.
    pub zone: String,
}

/// The address of the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// Address and port to listen on, as `address:port`.
    pub http: String,
    /// URL under which clients and other nodes reach this node. Empty: made from `listen.http`.
    pub advertise: String,
    /// Further names under which clients reach this node, such as that of a load balancer: a name,
    /// `*.example.com`, or `*` for every name. A request with another `Host` is refused.
    pub hosts: Vec<String>,
    /// URL under which clients outside of the cluster's network reach this node, for requests under
    /// one of `external_hosts`. `{name}` is the id of the node, `{ordinal}` the number at the end of
    /// the id or of the host name, and `{ordinal+N}` that number plus N. Empty: none; a node that
    /// gets such a request relays the data of this one.
    pub external: String,
    /// Names under which clients outside of the cluster's network reach this node, as in `hosts`: the
    /// answers have external URLs of nodes.
    pub external_hosts: Vec<String>,
    /// Allows an address beyond loopback although there is no authentication.
    pub insecure: bool,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            http: "127.0.0.1:7400".into(),
            advertise: String::new(),
            hosts: Vec::new(),
            external: String::new(),
            external_hosts: Vec::new(),
            insecure: false,
        }
    }
}

/// How the node serves HTTP.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Answers small requests for cached objects without the HTTP library `hyper`, for less CPU time.
    /// `false`: `hyper` gets every connection from its first byte. Turn it off to find out whether a
    /// wrong answer comes from this path.
    pub fast_path: bool,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { fast_path: true }
    }
}

/// One disk of a target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// Folder of the disk.
    pub path: String,
    /// Most bytes to use on the disk. Absent: 10 % of the file system or 20 GiB, the smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Uses the disk only while a file system is mounted at `disk.path`. If the mount is missing, the
    /// folder below it is not used in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mount: bool,
    /// Rebuilds the index of the disk from the stored objects at start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebuild_index: bool,
}

/// Buckets of the folder backend.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FolderConfig {
    /// Folders that may hold buckets of the folder backend, at any depth. An empty list allows no such
    /// bucket.
    pub roots: Vec<String>,
}

/// Promotion of files of the target's machine to objects.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromoteConfig {
    /// Folder of the files that may be promoted. No file outside it is read.
    pub root: String,
}

impl Default for PromoteConfig {
    fn default() -> Self {
        Self { root: "/var/lib/ais/promote".into() }
    }
}

/// The S3 API.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Config {
    /// Keys of the users. With an empty list there is no authentication: every request is allowed,
    /// with any signature or none. Absent: as with an empty list, but `forebay dev`, and `forebay
    /// serve` on loopback, then have two users with published keys. Published keys are invalid while the
    /// cluster has users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<S3Key>>,
    /// Lets DeleteBucket delete a bucket together with its objects, as AIStore does.
    pub delete_nonempty_buckets: bool,
    /// Serves S3 at `/` too, not only below `/s3`.
    pub root: bool,
    /// Domains with buckets as sub-domains: `s3.example.com` for `bucket.s3.example.com`. A request to
    /// such a host is served as S3 at `/`, and no other API is.
    pub domains: Vec<String>,
    /// Smallest size of every part of an upload but the last. Absent: 5 MiB, as on AWS, or no limit
    /// with `s3.delete_nonempty_buckets`, as in AIStore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_part_size: Option<ByteSize>,
}

/// Access and secret keys of the users of trial clusters.
const PUBLISHED_KEYS: [(&str, &str); 2] =
    [("forebay", "forebaysecret"), ("forebay2", "forebaysecret2")];

impl S3Config {
    /// The keys of users; empty if everybody has access.
    pub fn keys(&self) -> &[S3Key] {
        self.keys.as_deref().unwrap_or_default()
    }

    /// Adds two users with published keys if the settings do not mention keys. For clusters that
    /// only this machine can reach.
    pub fn with_trial_keys(&mut self) {
        let key = |(access, secret): (&str, &str)| S3Key {
            access: access.into(),
            secret: secret.into(),
            user: None,
        };
        self.keys.get_or_insert_with(|| PUBLISHED_KEYS.map(key).into());
    }

    /// Whether a key has a secret that everybody can read in the documentation.
    pub fn has_published_key(&self) -> bool {
        self.keys().iter().any(S3Key::is_published)
    }

    /// Minimum bytes of every part of an upload except the last.
    pub fn min_part(&self) -> u64 {
        let aws = if self.delete_nonempty_buckets { 0 } else { 5 << 20 };
        self.min_part_size.map_or(aws, |size| size.0)
    }
}

/// A key of a user of the S3 API.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct S3Key {
    /// The access key.
    pub access: String,
    /// The secret key.
    pub secret: String,
    /// User of the key: the owner of everything made with the key, and the name in policies and access
    /// control lists. Absent: the access key itself, so that every key is a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl S3Key {
    /// The user of this key.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.access)
    }

    /// Whether everybody can read the secret in the documentation.
    pub fn is_published(&self) -> bool {
        PUBLISHED_KEYS.iter().any(|(_, secret)| *secret == self.secret)
    }
}

/// Transforms of objects (ETL).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtlConfig {
    /// Most objects that this target transforms at once; further objects wait.
    pub parallel: usize,
    /// Allowed prefixes of the URLs of transform services; their hosts and ports may be private. An
    /// empty list allows public addresses, what `egress.allow` opens, and loopback addresses if the target
    /// itself listens on loopback.
    pub services: Vec<String>,
    /// Commands that transforms may use. Every target needs the same commands.
    pub command: Vec<EtlCommand>,
}

/// A command that transforms its standard input.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EtlCommand {
    /// Name of the command, unique in the list.
    pub name: String,
    /// Program and arguments. No shell interprets them.
    pub argv: Vec<String>,
}

impl Default for EtlConfig {
    fn default() -> Self {
        Self { parallel: 32, services: Vec::new(), command: Vec::new() }
    }
}

/// Downloads from web servers.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DownloadConfig {
    /// Allows downloads, and buckets over web servers (`ht://`), to use addresses of private networks
    /// and of this machine. `egress.allow` opens single destinations.
    pub allow_private: bool,
    /// Most objects that one job downloads at once on this target.
    pub parallel: usize,
}

impl Default for DownloadConfig {
    fn default() -> Self {
        Self { allow_private: false, parallel: 8 }
    }
}

/// Limits of the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Most batches that the target answers at once. Further batches wait for up to 2 s, then get 429.
    pub batches: usize,
    /// Memory for entries that batches read ahead, shared by all batches of the target. At least
    /// 16 MiB.
    pub batch_memory: ByteSize,
    /// Most cold GETs in flight, over all backends.
    pub cold_gets: usize,
    /// Largest percentage, of cold GETs and of a cloud's calls and budgets, that work ahead of need may
    /// use. The rest is reserved for requests of readers.
    pub prefetch_percent: u8,
    /// Most open connections. Above the limit, the oldest connections are closed after their current
    /// request, and new connections may get 503. 0: the limit of open files, less a reserve for files.
    pub connections: usize,
    /// Timeout in seconds for a client that stops sending a request's body, or stops reading a reply.
    pub client_timeout_s: u32,
    /// Lowest rate of a client, in bytes per second, over the time that the node waits for it.
    pub client_min_rate: ByteSize,
    /// Most requests for objects per second of each user, in the whole cluster. Each target enforces
    /// an even part of it. 0: no limit.
    pub user_requests_per_second: u64,
    /// Most bytes per second of each user's bodies, read and written together, in the whole cluster. 0:
    /// no limit.
    pub user_bytes_per_second: ByteSize,
    /// Weights of users, such as `"ann=4"`: users that compete for the limit of a bucket get parts of it
    /// in proportion. A user that is not named has the weight 1.
    pub weights: Vec<String>,
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
            user_requests_per_second: 0,
            user_bytes_per_second: ByteSize(0),
            weights: Vec::new(),
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

/// The log of the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Level (`off`, `error`, `warn`, `info`, `debug` or `trace`), or directives such as
    /// `info,forebay_target=debug`.
    pub level: String,
    /// Format of the lines.
    pub format: LogFormat,
    /// Share of the requests that have a line with their result, size and times: 0 (none) to 1 (all).
    pub access_share: f64,
    /// Failed requests per second that have a line of their own; more are counted in a line every
    /// 10 s. 0: no limit.
    pub failures_per_s: u32,
}

impl Default for LogConfig {
    fn default() -> Self {
        let (access_share, failures_per_s) = (0.0, 5);
        Self { level: "info".into(), format: LogFormat::Text, access_share, failures_per_s }
    }
}

/// The audit log: changes that requests made, and requests that were refused.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// File of the audit log, one JSON object a line. A relative path begins in `node.dir`. Empty: no
    /// file.
    pub file: String,
    /// Size at which the file is rotated. 0: never.
    pub max_size: ByteSize,
    /// Number of rotated files that are kept.
    pub keep: u32,
    /// URL of a collector that gets the records by POST, one JSON object a line. Empty: none.
    pub url: String,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { file: String::new(), max_size: ByteSize(64 << 20), keep: 10, url: String::new() }
    }
}
