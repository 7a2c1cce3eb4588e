//! Health, metrics, the description of the API, and the web console.

use forebay_core::access::Right;

use super::{On, Rule, ServedBy, Verb, Who, need};

pub static TABLE: &[&Rule] = &[&HEALTHZ, &READYZ, &CLUSTERZ, &HEALTH, &METRICS, &OPENAPI, &CONSOLE];

pub static HEALTHZ: Rule =
    Rule::new(Verb::Get, &["/healthz"], "healthz", "Whether the process answers")
        .on(ServedBy::Both)
        .who(Who::Anyone)
        .types("", "Text");

pub static READYZ: Rule =
    Rule::new(Verb::Get, &["/readyz"], "readyz", "Whether the node serves requests")
        .on(ServedBy::Both)
        .who(Who::Anyone)
        .query(&["verbose"])
        .types("", "Text");

pub static CLUSTERZ: Rule =
    Rule::new(Verb::Get, &["/clusterz"], "clusterz", "Whether a node may be stopped")
        .needs(&[need(&[Right::ShowCluster], On::Cluster)])
        .query(&["stopping", "report"])
        .types("", "ClusterReadiness");

pub static HEALTH: Rule =
    Rule::new(Verb::Get, &["/v1/health"], "health", "Readiness and uptime of the node")
        .on(ServedBy::Both)
        .who(Who::Anyone);

pub static METRICS: Rule =
    Rule::new(Verb::Get, &["/metrics"], "metrics", "Metrics in the text format of Prometheus")
        .on(ServedBy::Both)
        .needs(&[need(&[Right::ShowCluster], On::Cluster)])
        .types("", "Metrics");

pub static OPENAPI: Rule =
    Rule::new(Verb::Get, &["/api/openapi.json"], "openapi", "This description of the API")
        .types("", "OpenApi");

/// The files of the console have no data: they request it with the user's token.
pub static CONSOLE: Rule =
    Rule::new(Verb::Get, &["/ui/", "/ui", "/ui/{*file}"], "console", "The web console")
        .who(Who::Anyone)
        .types("", "Html");
