//! `forebay find`: objects by name, size and age.

use std::time::Duration;

use clap::Args;
use forebay_core::Error;
use forebay_core::list_columns::ColumnRow;
use forebay_core::size::{ByteSize, parse_duration};
use forebay_node::clock::unix_ns;
use serde_json::json;

use super::each;
use crate::failure::Failure;
use crate::output::{Column, Row, Rows, time, time_json};
use crate::session::Session;
use crate::transfer::Pattern;
use crate::uri;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay find ais://images --name '*.jpg'
  forebay find s3://data/train/ --larger 1GiB
  forebay find ais://ckpt --name 'step-*' --older 7d -o name | xargs forebay rm
  forebay find ais://logs --newer 1h --smaller 1KiB -o json

A pattern matches the last part of the name, or, if it has a /, all of it: * is
any text, ? one character, [a-z] one of a set. All conditions must hold. If no
object is found, nothing is printed, and the exit code is 0.")]
pub(crate) struct FindArgs {
    /// A bucket, optionally with a prefix
    #[arg(value_name = "URI")]
    what: String,
    /// Names that match this pattern, or one of several
    #[arg(long, value_name = "PATTERN")]
    name: Vec<Pattern>,
    /// Objects of more than this size, for example 8MiB
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    larger: Option<ByteSize>,
    /// Objects of less than this size
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    smaller: Option<ByteSize>,
    /// Objects that were modified longer ago than this, for example 7d or 12h
    #[arg(long, value_name = "TIME", value_parser = age)]
    older: Option<Duration>,
    /// Objects that were modified within this time
    #[arg(long, value_name = "TIME", value_parser = age)]
    newer: Option<Duration>,
}

fn age(text: &str) -> Result<Duration, Error> {
    parse_duration(text)
}

impl FindArgs {
    /// Whether an object is looked for, at this time; `None` if its age decides and is not known.
    fn takes(&self, row: &ColumnRow<'_>, now_ns: u64) -> Option<bool> {
        let own = row.name.rsplit('/').next().unwrap_or(row.name);
        let named = |p: &Pattern| p.matches(if p.has_slash() { row.name } else { own });
        let fits = (self.name.is_empty() || self.name.iter().any(named))
            && self.larger.is_none_or(|size| row.size > size.0)
            && self.smaller.is_none_or(|size| row.size < size.0);
        if !fits || (self.older.is_none() && self.newer.is_none()) {
            return Some(fits);
        }
        if row.mtime_ns == 0 {
            return None;
        }
        let age = Duration::from_nanos(now_ns.saturating_sub(row.mtime_ns));
        Some(self.older.is_none_or(|old| age > old) && self.newer.is_none_or(|new| age < new))
    }
}

/// Lists the objects that fit.
pub(crate) async fn find(session: &Session, args: &FindArgs) -> Result<(), Failure> {
    let (bucket, prefix) = uri::remote(&args.what)?;
    let columns = [Column("SIZE", true), Column("MODIFIED", false), Column("URI", false)];
    let mut rows = Rows::new(session.format, &columns);
    let (mut seen, mut found, mut unknown) = (0u64, 0u64, 0u64);
    let now_ns = unix_ns();
    each(session, &bucket, &prefix, |row| {
        seen += 1;
        match args.takes(&row, now_ns) {
            None => unknown += 1,
            Some(false) => {}
            Some(true) => {
                found += 1;
                let uri = bucket.object_uri(row.name);
                let cells = vec![
                    ByteSize(row.size).to_string(),
                    time(row.mtime_ns),
                    uri.escape_debug().to_string(),
                ];
                let json = json!({ "uri": uri, "name": row.name, "size": row.size,
                    "modified": time_json(row.mtime_ns), "cached": row.present });
                rows.push(Row { name: uri, cells, json })?;
            }
        }
        Ok(())
    })
    .await?;
    rows.finish()?;
    if found == 0 {
        session.note(format!("none of {seen} objects fits"));
    }
    if unknown > 0 {
        session.warn(format!("warning: {unknown} objects have no known time and are left out"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::object::RowKind;

    use super::*;

    const DAY_NS: u64 = 86_400_000_000_000;

    fn args(line: &str) -> FindArgs {
        use clap::FromArgMatches as _;
        let grammar = FindArgs::augment_args(clap::Command::new("find"));
        let words = ["find", "ais://b"].into_iter().chain(line.split_whitespace());
        FindArgs::from_arg_matches(&grammar.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn takes(line: &str, name: &str, size: u64, days_old: u64) -> Option<bool> {
        let mtime_ns = 100 * DAY_NS - days_old * DAY_NS;
        let row = ColumnRow { name, size, mtime_ns, kind: RowKind::Object, present: true };
        args(line).takes(&row, 100 * DAY_NS)
    }

    #[test]
    fn all_conditions_must_hold() {
        assert_eq!(takes("--name *.jpg", "a/b.jpg", 1, 1), Some(true));
        assert_eq!(takes("--name b*", "a/b.jpg", 1, 1), Some(true));
        assert_eq!(takes("--name a/*.jpg --name *.png", "a/b.jpg", 1, 1), Some(true));
        assert_eq!(takes("--name a*", "a/b.jpg", 1, 1), Some(false));
        assert_eq!(takes("--larger 1KiB", "x", 1024, 1), Some(false));
        assert_eq!(takes("--larger 1KiB --smaller 2KiB", "x", 1025, 1), Some(true));
        assert_eq!(takes("--older 7d", "x", 1, 8), Some(true));
        assert_eq!(takes("--newer 7d --larger 5", "x", 6, 8), Some(false));
    }

    #[test]
    fn an_age_that_is_not_known_is_reported() {
        assert_eq!(takes("--older 1d", "x", 1, 100), None);
        assert_eq!(takes("--older 1d --name y", "x", 1, 100), Some(false));
        assert_eq!(takes("", "x", 1, 100), Some(true));
    }
}
