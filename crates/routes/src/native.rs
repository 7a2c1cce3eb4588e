//! The API of Forebay's own clients, under `/api`.

use forebay_core::access::Right;

use super::{On, Rule, ServedBy, Verb, Who, need};

pub static TABLE: &[&Rule] = &[
    &MAP,
    &CLUSTER,
    &LEADER,
    &BATCH,
    &SHARD,
    &JOBS,
    &JOB,
    &JOB_STOP,
    &ISHARD,
    &ACCESS,
    &BILL,
    &WARMTH,
    &WARMTHS,
    &OVERVIEW,
    &OVERVIEW_LIVE,
    &OVERVIEW_HISTORY,
    &REQUESTS_LIVE,
    &TRACES,
    &TRACE,
    &FEEDS,
    &FEED_PUT,
    &DISKS,
    &ETLS,
    &ETL_INIT,
    &OBJECTS,
    &CONTENT,
    &MEMBERS,
];

pub static MAP: Rule =
    Rule::new(Verb::Get, &["/api/v1/map"], "map", "The cluster map, and a grant for the client")
        .types("", "MapReply");

pub static CLUSTER: Rule =
    Rule::new(Verb::Get, &["/api/v1/cluster"], "cluster", "Nodes of the cluster and their usage")
        .needs(&[need(&[Right::ShowCluster], On::Cluster)])
        .types("", "ClusterInfo");

pub static LEADER: Rule =
    Rule::new(Verb::Get, &["/api/v1/leader"], "leader", "Whether this gateway leads")
        .types("", "LeaderReply");

pub static BATCH: Rule =
    Rule::new(Verb::Post, &["/api/v1/batch"], "batch", "Reads many objects as one stream")
        .on(ServedBy::Targets)
        .needs(&[need(&[Right::GetObject], On::Entry)])
        .types("BatchRequest", "BatchStream");

pub static SHARD: Rule =
    Rule::new(Verb::Get, &["/api/v1/shard/{*name}"], "shard", "The index of a shard")
        .on(ServedBy::Both)
        .needs(&[need(&[Right::GetObject], On::Object)])
        .query(&["provider", "namespace", "stats"])
        .types("", "ShardIndexReply");

pub static JOBS: Rule =
    Rule::new(Verb::Get, &["/api/v1/jobs"], "jobs", "Jobs on the buckets that the user sees")
        .needs(&[need(&[Right::HeadBucket], On::Job)])
        .types("", "JobStatuses");

pub static JOB: Rule = Rule::new(Verb::Get, &["/api/v1/jobs/{id}"], "job", "The status of a job")
    .needs(&[need(&[Right::HeadBucket], On::Job)])
    .types("", "JobStatus");

pub static JOB_STOP: Rule =
    Rule::new(Verb::Delete, &["/api/v1/jobs/{id}"], "job_stop", "Stops a job")
        .needs(&[need(&[Right::RunJobs], On::Job)]);

pub static ISHARD: Rule =
    Rule::new(Verb::Post, &["/api/v1/ishard"], "ishard", "Starts a job that packs objects")
        .needs(&[
            need(&[Right::GetObject], On::Source),
            need(&[Right::PutObject], On::Destination),
            need(&[Right::CreateBucket], On::Created),
        ])
        .query(&["id"])
        .types("IshardSpec", "StartedJob");

pub static ACCESS: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/access/{bucket}"],
    "access",
    "The credential that each target uses for a bucket, and what it allows",
)
.needs(&[need(&[Right::PatchBucket], On::Bucket)])
.query(&["provider", "namespace", "prefix"])
.types("", "BucketAccess");

pub static BILL: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/bill/{bucket}"],
    "bill",
    "Requests and bytes that a cloud bills for a bucket",
)
.needs(&[need(&[Right::HeadBucket], On::Bucket)])
.query(&["provider", "namespace"])
.types("", "BucketBill");

pub static WARMTH: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/warmth/{bucket}"],
    "warmth",
    "How much of a bucket is cached, and what its readers got from the cache",
)
.needs(&[need(&[Right::HeadBucket], On::Bucket)])
.query(&["provider", "namespace"])
.types("", "WarmthReply");

pub static WARMTHS: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/warmth"],
    "warmths",
    "The warmth of all buckets that the user sees",
)
.needs(&[need(&[Right::HeadBucket], On::Selected)])
.query(&["provider"])
.types("", "WarmthReply");

pub static FEEDS: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/feeds"],
    "feeds",
    "How long the steps of training loops waited, and for what",
)
.needs(&[need(&[Right::HeadBucket], On::Job)])
.types("", "FeedsReply");

pub static FEED_PUT: Rule = Rule::new(
    Verb::Put,
    &["/api/v1/feeds/{id}"],
    "feed_put",
    "Reports the feed of a training loop",
)
.needs(&[need(&[Right::GetObject], On::Job)])
.types("Feed", "");

pub static OVERVIEW: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/overview"],
    "overview",
    "Rates of nodes, buckets and clients over the last seconds, disks, jobs and alerts",
)
.needs(&[need(&[Right::ShowCluster], On::Cluster)])
.types("", "Overview");

pub static OVERVIEW_LIVE: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/overview/live"],
    "overview_live",
    "The overview as events `overview`, one a second",
)
.needs(&[need(&[Right::ShowCluster], On::Cluster)])
.query(&["max_s"])
.types("", "EventStream");

pub static OVERVIEW_HISTORY: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/overview/history"],
    "overview_history",
    "Rates of the cluster in the last five minutes, one point for five seconds",
)
.needs(&[need(&[Right::ShowCluster], On::Cluster)])
.types("", "OverviewHistory");

pub static REQUESTS_LIVE: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/requests/live"],
    "requests_live",
    "Requests that nodes finish, as events `request`; `dropped` counts those that a slow reader missed",
)
.who(Who::Operator)
.query(&["bucket", "operation", "api", "min_ms", "failed", "node", "max_s"])
.types("", "EventStream");

pub static TRACES: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/traces"],
    "traces",
    "The slow, failed and sampled traces of the last hour",
)
.who(Who::Operator)
.types("", "TracesReply");

pub static TRACE: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/traces/{id}"],
    "trace",
    "The spans of a trace, by its id or by the id of a request",
)
.who(Who::Operator)
.types("", "TraceReply");

pub static DISKS: Rule =
    Rule::new(Verb::Post, &["/api/v1/disks"], "disks", "Shows or changes the disks of a target")
        .who(Who::Operator)
        .types("NodeDiskCommand", "DiskUsages");

pub static ETLS: Rule = Rule::new(Verb::Get, &["/api/v1/etl"], "etl_list", "The transforms")
    .needs(&[need(&[Right::ShowCluster], On::Cluster)])
    .types("", "EtlList");

pub static ETL_INIT: Rule = Rule::new(Verb::Post, &["/api/v1/etl"], "etl", "Registers a transform")
    .who(Who::Operator)
    .types("EtlSpec", "EtlId");

pub static OBJECTS: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/objects/{bucket}"],
    "objects",
    "A page of the objects of a bucket, and which of them are cached",
)
.needs(&[need(&[Right::ListObjects], On::Selected)])
.query(&["provider", "namespace", "prefix", "after", "limit", "folders", "cached"])
.types("", "ObjectsPage");

pub static CONTENT: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/content/{*name}"],
    "content",
    "Reads an object, or a part of it, through the gateway",
)
.needs(&[need(&[Right::GetObject], On::Object)])
.query(&["provider", "namespace", "archpath", "archmime"])
.types("", "Bytes");

pub static MEMBERS: Rule = Rule::new(
    Verb::Get,
    &["/api/v1/members/{*name}"],
    "members",
    "The index of a shard, through the gateway",
)
.needs(&[need(&[Right::GetObject], On::Object)])
.query(&["provider", "namespace"])
.types("", "ShardIndexReply");
