//! Two results side by side.

use std::path::Path;

use forebay_core::Error;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Column, Row, Rows};
use crate::session::Session;

/// Fields that are compared, as paths, and whether more is better.
const FIELDS: [(&str, bool); 8] = [
    ("/requests_per_s", true),
    ("/objects_per_s", true),
    ("/bytes_per_s", true),
    ("/latency_ms/p50", false),
    ("/latency_ms/p99", false),
    ("/latency_ms/max", false),
    ("/first_byte_ms/p50", false),
    ("/first_byte_ms/p99", false),
];

pub(super) fn run(session: &Session, first: &Path, second: &Path) -> Result<(), Failure> {
    let (one, other) = (read(first)?, read(second)?);
    for key in ["kind", "jobs"] {
        if one[key] != other[key] {
            session
                .warn(format!("the results have different {key}: {} and {}", one[key], other[key]));
        }
    }
    let columns = [
        Column("FIGURE", false),
        Column("FIRST", true),
        Column("SECOND", true),
        Column("RATIO", true),
        Column("", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for row in rows_of(&one, &other) {
        rows.push(row)?;
    }
    rows.finish()
}

fn rows_of(one: &Value, other: &Value) -> Vec<Row> {
    let figure = |result: &Value, path: &str| result.pointer(path).and_then(Value::as_f64);
    let both = FIELDS.iter().filter_map(|(path, more_is_better)| {
        Some((*path, *more_is_better, figure(one, path)?, figure(other, path)?))
    });
    both.map(|(path, more_is_better, one, other)| {
        let name = path.trim_start_matches('/').replace('/', ".");
        let ratio = (one != 0.0).then(|| other / one);
        let note = match ratio {
            Some(ratio) if ratio != 1.0 && (ratio > 1.0) == more_is_better => "better",
            Some(ratio) if ratio != 1.0 => "worse",
            _ => "",
        };
        let cells = vec![
            name.clone(),
            format!("{one:.2}"),
            format!("{other:.2}"),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            note.to_owned(),
        ];
        let json = json!({ "figure": name, "first": one, "second": other, "ratio": ratio });
        Row { name, cells, json }
    })
    .collect()
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::local(path.display(), &e))?;
    let result: Value = serde_json::from_str(&text).unwrap_or_default();
    match result["schema"].as_u64() {
        Some(1) => Ok(result),
        Some(other) => Err(Error::invalid(format!(
            "{}: results of schema {other} are not known to this version",
            path.display()
        ))
        .into()),
        None => Err(Error::invalid(format!("{}: not a result of `forebay bench`", path.display()))
            .hint("write one with `forebay bench get URI -o json > FILE`")
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_requests_and_shorter_latencies_are_better() {
        let result =
            |rate: f64, p50: f64| json!({ "requests_per_s": rate, "latency_ms": {"p50": p50} });
        let rows = rows_of(&result(100.0, 2.0), &result(150.0, 3.0));
        let shown: Vec<_> =
            rows.iter().map(|row| (row.name.as_str(), row.cells[4].as_str())).collect();
        assert_eq!(shown, [("requests_per_s", "better"), ("latency_ms.p50", "worse")]);
        assert_eq!(rows[0].json["ratio"], 1.5);
    }
}
