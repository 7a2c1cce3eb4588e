//! The cluster and its nodes over v1: `/v1/cluster` and `/v1/daemon`.

use forebay_core::access::Right;

use super::{By, Case, Need, On, Rule, ServedBy, Verb, Who, need};

pub static TABLE: &[&Rule] = &[
    &DAEMON,
    &NODE_CONTROL,
    &REVERSE,
    &REVERSE_PUT,
    &REVERSE_CONTROL,
    &CLUSTER,
    &CLUSTER_PUT,
    &CLUSTER_CONTROL,
];

/// Clients need the map before anything else; it shows no more than the addresses of nodes.
const SMAP: Case = Case::new(By::What("smap"), "smap", &[]).types("", "Smap");
/// The list has only the buckets that the user sees.
const BMD: Case = Case::new(By::What("bmd"), "bmd", &[]).types("", "Bmd");
const LOG: Case = Case::new(By::What("log"), "log", &[]).who(Who::Operator).types("", "Text");

pub static DAEMON: Rule =
    Rule::new(Verb::Get, &["/v1/daemon"], "daemon", "A property of this node, named by `what`")
        .on(ServedBy::Both)
        .needs(&[need(&[Right::ShowCluster], On::Cluster)])
        .types("", "Json")
        .cases(&[SMAP, BMD, LOG]);

pub static NODE_CONTROL: Rule =
    Rule::new(Verb::Any, &["/v1/daemon/{*rest}"], "node_control", "Changes of one node")
        .who(Who::Operator);

pub static REVERSE: Rule = Rule::new(
    Verb::Get,
    &["/v1/reverse/daemon"],
    "reverse",
    "A property of the node that a header names",
)
.needs(&[need(&[Right::ShowCluster], On::Cluster)])
.types("", "Json")
.cases(&[SMAP, BMD, LOG]);

pub static REVERSE_PUT: Rule =
    Rule::new(Verb::Put, &["/v1/reverse/daemon"], "node_control", "Changes of one node")
        .who(Who::Operator)
        .types("ActionMsg", "");

pub static REVERSE_CONTROL: Rule = Rule::new(
    Verb::Any,
    &["/v1/reverse/daemon/{*rest}"],
    "node_control",
    "Changes of the disks of the node that a header names",
)
.who(Who::Operator)
.types("ActionMsg", "");

const SEEN_JOBS: &[Need] = &[need(&[Right::HeadBucket], On::Job)];

/// A question about jobs, whose answer has only those on buckets that the user sees.
const fn about_jobs(what: &'static str) -> Case {
    Case::new(By::What(what), what, SEEN_JOBS).types("JobQuestion", "JobStatuses")
}

pub static CLUSTER: Rule =
    Rule::new(Verb::Get, &["/v1/cluster"], "cluster", "A property of the cluster, named by `what`")
        .needs(&[need(&[Right::ShowCluster], On::Cluster)])
        .types("", "Json")
        .cases(&[
            SMAP,
            BMD,
            about_jobs("status"),
            about_jobs("status_all"),
            about_jobs("running_all"),
            about_jobs("qryxstats"),
        ]);

/// A change of the cluster.
const fn change(action: &'static str) -> Case {
    Case::action(action, &[]).who(Who::Operator)
}

pub static CLUSTER_PUT: Rule =
    Rule::new(Verb::Put, &["/v1/cluster"], "", "Changes the cluster, or starts and stops jobs")
        .types("ActionMsg", "")
        .cases(&[
            Case::action("start", &[need(&[Right::RunJobs], On::Job)]).types("ActionMsg", "JobId"),
            Case::action("stop", &[need(&[Right::RunJobs], On::Job)]),
            change("set-config"),
            change("reset-config"),
            change("start-maintenance"),
            change("stop-maintenance"),
            change("shutdown-node"),
            change("decommission-node"),
            change("rotate-logs"),
            change("reset-stats"),
            change("clear-lcache"),
            change("reload-creds"),
            change("shutdown"),
            change("decommission"),
        ]);

pub static CLUSTER_CONTROL: Rule = Rule::new(
    Verb::Any,
    &["/v1/cluster/{*rest}"],
    "admin",
    "Changes of the cluster whose arguments are in the URL",
)
.who(Who::Operator);
