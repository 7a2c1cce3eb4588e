//! The answer of `/readyz`: the checks of a node, and whether all of them hold.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_v1::query::Query;
use serde::Serialize;
use serde_json::json;

use crate::reply;

/// One check of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// The finding, for people.
    pub detail: String,
    /// Whether the node is not ready without it.
    pub required: bool,
}

impl Check {
    /// A check without which the node is not ready.
    pub fn required(name: &'static str, ok: bool, detail: impl Into<String>) -> Self {
        Self { name, ok, detail: detail.into(), required: true }
    }

    /// A check for people: the node serves requests without it.
    pub fn shown(name: &'static str, ok: bool, detail: impl Into<String>) -> Self {
        Self { name, ok, detail: detail.into(), required: false }
    }
}

/// 200 if all required checks hold, else 503. With `?verbose` the body has a line for each check; with
/// `?verbose=json` it is JSON.
pub fn answer(checks: &[Check], query: Option<&str>) -> Response {
    let is_ready = checks.iter().all(|check| check.ok || !check.required);
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let query = Query::parse(query);
    let mut response = match query.get("verbose") {
        Some("json") => reply::json(&json!({ "ready": is_ready, "checks": checks })),
        _ if query.has("verbose") => reply::text(lines(checks, is_ready)),
        _ if is_ready => return "ok\n".into_response(),
        _ => return status.into_response(),
    };
    *response.status_mut() = status;
    response
}

fn lines(checks: &[Check], is_ready: bool) -> String {
    let mut text = String::new();
    for Check { name, ok, detail, required } in checks {
        let sign = if *ok { "+" } else { "-" };
        let note = if *required { "" } else { " (not required)" };
        text.push_str(&format!("[{sign}] {name}: {detail}{note}\n"));
    }
    text + if is_ready { "ready\n" } else { "not ready\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_not_required_is_shown_and_does_not_count() {
        let checks =
            [Check::required("joined", true, "since 1"), Check::shown("disks", false, "1 of 2")];
        assert_eq!(answer(&checks, None).status(), 200);
        let text = lines(&checks, true);
        assert_eq!(text, "[+] joined: since 1\n[-] disks: 1 of 2 (not required)\nready\n");
        let failed = [Check::required("joined", false, "not yet")];
        for query in [None, Some("verbose"), Some("verbose=json")] {
            assert_eq!(answer(&failed, query).status(), 503, "{query:?}");
        }
    }
}
