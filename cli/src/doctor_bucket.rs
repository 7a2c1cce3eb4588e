//! `forebay doctor BUCKET`: the identity of the targets at a bucket's cloud, and their permissions
//! there.

use forebay_core::backend_access::{Access, BackendAccess, BucketAccess};
use serde_json::json;

use crate::failure::{Failure, exit};
use crate::output::{Column, Format, Row, Rows};
use crate::session::Session;
use crate::uri;

/// The result of one check.
struct Line {
    check: &'static str,
    /// `ok`, `warn` or `fail`; empty for information.
    result: &'static str,
    found: String,
    hint: Option<String>,
}

impl Line {
    fn fact(check: &'static str, found: &str) -> Self {
        Self { check, result: "", found: found.to_owned(), hint: None }
    }

    /// `failure` is the result if access is denied.
    fn of(check: &'static str, access: &Access, failure: &'static str) -> Self {
        let (result, found, hint) = match access {
            Access::Ok { found } => ("ok", found.clone(), None),
            Access::Unknown { why } => ("", format!("not known: {why}"), None),
            Access::Fail { error } => (failure, error.message.clone(), error.hint.clone()),
        };
        Self { check, result, found, hint }
    }
}

pub(crate) async fn run(session: &Session, bucket: &str) -> Result<(), Failure> {
    let (bucket, prefix) = uri::remote(bucket)?;
    let access = session.client.bucket_access(&bucket, &prefix).await?;
    let columns = [
        Column("", false),
        Column("CHECK", false),
        Column("TARGETS", false),
        Column("FOUND", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for (targets, line) in all_lines(&access) {
        if session.format == Format::Table && session.quiet && matches!(line.result, "" | "ok") {
            continue;
        }
        rows.push(row(&targets, line))?;
    }
    rows.finish()?;
    match access.is_good() {
        true => Ok(()),
        false => Err(Failure::silent(exit::FAILED)),
    }
}

/// The lines of all targets; equal results of several targets become one line.
fn all_lines(access: &BucketAccess) -> Vec<(Vec<String>, Line)> {
    let mut groups: Vec<(Vec<String>, &BackendAccess)> = Vec::new();
    for target in &access.targets {
        match groups.iter_mut().find(|(_, found)| **found == target.access) {
            Some((targets, _)) => targets.push(target.target.clone()),
            None => groups.push((vec![target.target.clone()], &target.access)),
        }
    }
    let found = groups.into_iter().flat_map(|(targets, found)| {
        lines(found).into_iter().map(move |line| (targets.clone(), line))
    });
    let mut all: Vec<_> = found.collect();
    if !access.away.is_empty() {
        let line = Line {
            check: "target",
            result: "fail",
            found: "no answer".to_owned(),
            hint: Some("look at it with forebay doctor, without a bucket".to_owned()),
        };
        all.push((access.away.clone(), line));
    }
    all
}

fn lines(access: &BackendAccess) -> Vec<Line> {
    let identity = &access.identity;
    let mut lines = vec![Line::fact("credential", &identity.credential)];
    let facts = [
        ("cloud account", identity.cloud.as_deref()),
        ("project", identity.project.as_deref()),
        ("account", identity.account.as_deref()),
        ("region", identity.region.as_deref()),
        ("endpoint", Some(identity.endpoint.as_str()).filter(|url| !url.is_empty())),
    ];
    lines.extend(facts.into_iter().filter_map(|(check, found)| Some(Line::fact(check, found?))));
    lines.push(Line::of("list", &access.list, "fail"));
    lines.push(Line::of("get", &access.get, "fail"));
    // Only a warning: a cache needs no more than reads.
    lines.push(Line::of("put", &access.put, "warn"));
    lines
}

fn row(targets: &[String], line: Line) -> Row {
    let Line { check, result, found, hint } = line;
    let targets: Vec<&String> = targets.iter().filter(|id| !id.is_empty()).collect();
    let shown = targets.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" ");
    let text = match &hint {
        None => found.clone(),
        Some(hint) => format!("{found}; fix: {hint}"),
    };
    let mark = if result == "fail" { "FAIL" } else { result };
    let cells = vec![mark.into(), check.into(), shown, text];
    let result = Some(result).filter(|result| !result.is_empty());
    let json = json!({ "check": check, "result": result, "targets": targets, "found": found,
        "hint": hint });
    Row { name: check.to_owned(), cells, json }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::Error;
    use forebay_core::backend_access::{CloudIdentity, TargetAccess};

    use super::*;

    fn target(id: &str, get: Access) -> TargetAccess {
        let identity = CloudIdentity { credential: "a key".into(), ..CloudIdentity::default() };
        let (list, put) = (Access::ok("a"), Access::Fail { error: Error::invalid("read-only") });
        let access = BackendAccess { identity, list, get, put, example: "a".into() };
        TargetAccess { target: id.into(), access }
    }

    #[test]
    fn targets_that_found_the_same_share_a_line() {
        let denied = Access::Fail { error: Error::invalid("denied").hint("use another key") };
        let access = BucketAccess {
            native: false,
            targets: vec![
                target("t1", Access::ok("a byte")),
                target("t2", denied),
                target("t3", Access::ok("a byte")),
            ],
            away: vec!["t4".into()],
        };
        let rows: Vec<_> = all_lines(&access).into_iter().map(|(t, line)| row(&t, line)).collect();
        let texts: Vec<_> = rows.iter().map(|row| row.cells.join("|")).collect();
        assert_eq!(texts.len(), 4 + 4 + 1, "{texts:?}");
        assert_eq!(texts[0], "|credential|t1 t3|a key");
        assert_eq!(texts[2], "ok|get|t1 t3|a byte");
        assert_eq!(texts[3], "warn|put|t1 t3|read-only");
        assert_eq!(texts[6], "FAIL|get|t2|denied; fix: use another key");
        assert!(texts[8].starts_with("FAIL|target|t4|"), "{texts:?}");
        assert_eq!(rows[0].json["result"], serde_json::Value::Null);
        assert_eq!(rows[6].json["result"], "fail");
    }
}
