//! Downloads, jobs that sort shards, and transforms over v1.

use forebay_core::access::Right;

use super::{On, Rule, Verb, Who, need};

pub static TABLE: &[&Rule] = &[
    &DOWNLOADS,
    &DOWNLOAD,
    &DOWNLOAD_ORDER,
    &SORTS,
    &SORT,
    &SORT_REMOVE,
    &SORT_ABORT,
    &ETLS,
    &ETL_INIT,
    &ETL,
    &ETL_DELETE,
    &ETL_PART,
    &ETL_ORDER,
    &ETL_LOGS,
];

const DOWNLOAD_PATHS: &[&str] = &["/v1/download", "/v1/download/"];
const SORT_PATHS: &[&str] = &["/v1/sort", "/v1/sort/"];
const ETL_PATHS: &[&str] = &["/v1/etl", "/v1/etl/"];

pub static DOWNLOADS: Rule =
    Rule::new(Verb::Get, DOWNLOAD_PATHS, "download_status", "One download, or all downloads")
        .needs(&[need(&[Right::RunJobs, Right::ShowCluster], On::Cluster)])
        .types("DownloadQuestion", "DownloadStatus");

pub static DOWNLOAD: Rule =
    Rule::new(Verb::Post, DOWNLOAD_PATHS, "download", "Starts a download into a bucket")
        .needs(&[
            need(&[Right::PutObject], On::Destination),
            need(&[Right::CreateBucket], On::Created),
        ])
        .types("DownloadRequest", "JobId");

pub static DOWNLOAD_ORDER: Rule = Rule::new(
    Verb::Delete,
    &["/v1/download/{order}"],
    "download_order",
    "Aborts a download, or removes one that is over",
)
.needs(&[need(&[Right::RunJobs], On::Cluster)])
.types("DownloadQuestion", "");

pub static SORTS: Rule =
    Rule::new(Verb::Get, SORT_PATHS, "dsort_status", "One job that sorts shards, or all of them")
        .needs(&[need(&[Right::HeadBucket], On::Job)])
        .types("", "DsortStatus");

pub static SORT: Rule =
    Rule::new(Verb::Post, SORT_PATHS, "dsort", "Starts a job that sorts shards")
        .needs(&[
            need(&[Right::GetObject], On::Source),
            need(&[Right::PutObject], On::Destination),
            need(&[Right::CreateBucket], On::Created),
        ])
        .types("DsortSpec", "JobId");

pub static SORT_REMOVE: Rule =
    Rule::new(Verb::Delete, SORT_PATHS, "dsort_remove", "Removes a job that is over")
        .needs(&[need(&[Right::RunJobs], On::Job)]);

pub static SORT_ABORT: Rule =
    Rule::new(Verb::Delete, &["/v1/sort/abort"], "dsort_abort", "Stops a job that sorts shards")
        .needs(&[need(&[Right::RunJobs], On::Job)]);

pub static ETLS: Rule = Rule::new(Verb::Get, ETL_PATHS, "etl_list", "The transforms")
    .needs(&[need(&[Right::ShowCluster], On::Cluster)])
    .types("", "EtlList");

pub static ETL_INIT: Rule = Rule::new(Verb::Put, ETL_PATHS, "etl_init", "Registers a transform")
    .who(Who::Operator)
    .types("EtlSpec", "JobId");

pub static ETL: Rule =
    Rule::new(Verb::Get, &["/v1/etl/{name}"], "etl_view", "A transform with its specification")
        .who(Who::Operator)
        .types("", "EtlDetails");

pub static ETL_DELETE: Rule =
    Rule::new(Verb::Delete, &["/v1/etl/{name}"], "etl_delete", "Removes a transform")
        .who(Who::Operator);

pub static ETL_PART: Rule =
    Rule::new(Verb::Get, &["/v1/etl/{name}/{what}"], "etl_part", "Logs or health of a transform")
        .who(Who::Operator)
        .types("", "Json");

pub static ETL_ORDER: Rule =
    Rule::new(Verb::Post, &["/v1/etl/{name}/{what}"], "etl_order", "Starts or stops a transform")
        .who(Who::Operator);

pub static ETL_LOGS: Rule = Rule::new(
    Verb::Get,
    &["/v1/etl/{name}/logs/{target}"],
    "etl_part",
    "Logs of a transform on one target",
)
.who(Who::Operator)
.types("", "EtlLogs");
