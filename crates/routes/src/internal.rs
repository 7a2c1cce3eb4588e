//! Requests between nodes, under `/internal`: each needs the proof of a node.

use super::{Rule, ServedBy, Verb, Who};

/// A request between nodes; its operation is its path.
const fn node(verb: Verb, served_by: ServedBy, paths: &'static [&'static str]) -> Rule {
    Rule::new(verb, paths, paths[0], "A request of a node of this cluster")
        .on(served_by)
        .who(Who::Node)
}

macro_rules! rules {
    ($($name:ident: $verb:ident $served_by:ident $path:literal)*) => {
        $(pub static $name: Rule = node(Verb::$verb, ServedBy::$served_by, &[$path]);)*
        pub static TABLE: &[&Rule] = &[$(&$name),*];
    };
}

rules! {
    JOIN: Post Gateways "/internal/v1/join"
    HEARTBEAT: Post Gateways "/internal/v1/heartbeat"
    LEAVE: Post Gateways "/internal/v1/leave"
    DECOMMISSION: Post Gateways "/internal/v1/decommission"
    INSTANCE: Get Both "/internal/v1/instance"
    STATE: Post Both "/internal/v1/state"
    COMMAND: Post Gateways "/internal/v1/command"
    RAFT_APPEND: Post Gateways "/internal/v1/raft/append"
    RAFT_VOTE: Post Gateways "/internal/v1/raft/vote"
    RAFT_SNAPSHOT: Post Gateways "/internal/v1/raft/snapshot"
    RAFT_GROUP: Get Gateways "/internal/v1/raft/group"
    RAFT_ENTER: Post Gateways "/internal/v1/raft/enter"
    RAFT_REMOVE: Post Gateways "/internal/v1/raft/remove"
    RAFT_REMOVED: Post Gateways "/internal/v1/raft/removed"
    LIST: Post Targets "/internal/v1/list"
    UPLOADS: Post Targets "/internal/v1/uploads"
    BACKEND_HEAD: Post Targets "/internal/v1/backend/head"
    BACKEND_LIST: Post Targets "/internal/v1/backend/list"
    BACKEND_CHANGES: Post Targets "/internal/v1/backend/changes"
    BACKEND_ACCESS: Post Targets "/internal/v1/backend/access"
    BACKEND_BILL: Post Targets "/internal/v1/backend/bill"
    JOB_START: Post Targets "/internal/v1/job"
    JOBS: Get Targets "/internal/v1/job"
    JOB: Get Targets "/internal/v1/job/{id}"
    JOB_STOP: Delete Targets "/internal/v1/job/{id}"
    JOB_FORGET: Post Targets "/internal/v1/job/{id}/forget"
    DISKS: Post Targets "/internal/v1/disks"
    STOP: Post Targets "/internal/v1/stop"
    PRESTOP: Post Targets "/internal/v1/prestop"
    COPY_LOOK: Post Targets "/internal/v1/copy/look"
    COPY_SURVEY: Post Targets "/internal/v1/copy/survey"
    COPY_PEEK: Post Targets "/internal/v1/copy/peek"
    COPY_SEND: Post Targets "/internal/v1/copy/send"
    COPY_SEND_VERSIONS: Post Targets "/internal/v1/copy/send-versions"
    COPY_REMOVE: Post Targets "/internal/v1/copy/remove"
    COPY_ENSURE: Post Targets "/internal/v1/copy/ensure"
    COPY_SLICE: Post Targets "/internal/v1/copy/slice"
    COPY_TAKE: Put Targets "/internal/v1/copies/{*name}"
    BUILD_START: Post Targets "/internal/v1/shard/build"
    BUILD: Get Targets "/internal/v1/shard/build/{id}"
    BUILD_STOP: Delete Targets "/internal/v1/shard/build/{id}"
    BUILD_PUBLISH: Post Targets "/internal/v1/shard/build/{id}/publish"
    BUILD_HOLD: Post Targets "/internal/v1/shard/hold"
    BUILD_UNPACK: Post Targets "/internal/v1/shard/unpack"
    INVENTORY_CREATE: Post Targets "/internal/v1/inventory/create"
    INVENTORY_INFO: Post Targets "/internal/v1/inventory/info"
    INVENTORY_PAGE: Post Targets "/internal/v1/inventory/page"
    INVENTORY_DESTROY: Post Targets "/internal/v1/inventory/destroy"
    FEEDS: Get Gateways "/internal/v1/feeds"
    BUCKET_WARMTH: Post Targets "/internal/v1/bucket/warmth"
    TRAFFIC: Get Both "/internal/v1/traffic"
    TRAFFIC_HISTORY: Get Both "/internal/v1/traffic/history"
    REQUESTS_LIVE: Get Both "/internal/v1/requests/live"
    TRACE_MARKS: Post Both "/internal/v1/trace/marks"
    TRACES: Get Both "/internal/v1/traces"
    TRACE: Get Both "/internal/v1/traces/{id}"
    BUCKET_DROP: Delete Targets "/internal/v1/bucket/{id}"
    OBJECT_ACCEPT: Put Targets "/internal/v1/objects/{*name}"
    OBJECT_REMOVE: Delete Targets "/internal/v1/objects/{*name}"
    PROMOTE: Post Targets "/internal/v1/promote"
    PROMOTE_SCAN: Post Targets "/internal/v1/promote/scan"
    ETL_CHECK: Post Targets "/internal/v1/etl"
    ETL_PART: Post Targets "/internal/v1/etl/part"
    DOWNLOAD_START: Post Targets "/internal/v1/download"
    DOWNLOADS: Get Targets "/internal/v1/download"
    DOWNLOAD: Get Targets "/internal/v1/download/{id}"
    DOWNLOAD_REMOVE: Delete Targets "/internal/v1/download/{id}"
    DOWNLOAD_ABORT: Post Targets "/internal/v1/download/{id}/abort"
}
