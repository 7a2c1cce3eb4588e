//! `forebay du`: bytes and objects by prefix, and how much of them is cached.

use std::collections::BTreeMap;

use clap::Args;
use forebay_core::list_columns::ColumnRow;
use forebay_core::size::ByteSize;
use serde_json::json;

use super::each;
use crate::failure::Failure;
use crate::output::{Column, Row, Rows};
use crate::session::Session;
use crate::uri;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay du s3://data                     each top folder, and the total
  forebay du s3://data/train/ --depth 2    two levels below train/
  forebay du ais://images --depth 0        the total alone

A folder is what names have in common up to a /. The row of a folder counts all
objects below it; the last row counts all. CACHED is the share of the bytes that
are in the cluster. The prefix is a text: ais://b/a counts a1 and ab/c, too. If
no object has the prefix, the exit code is 4.")]
pub(crate) struct UsageArgs {
    /// A bucket, optionally with a prefix
    #[arg(value_name = "URI")]
    what: String,
    /// Number of levels of folders to show
    #[arg(short, long, default_value_t = 1, value_name = "N")]
    depth: usize,
}

/// Sums over objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    objects: u64,
    bytes: u64,
    cached_objects: u64,
    cached_bytes: u64,
}

impl Sums {
    fn add(&mut self, row: &ColumnRow<'_>) {
        self.objects += 1;
        self.bytes += row.size;
        if row.present {
            self.cached_objects += 1;
            self.cached_bytes += row.size;
        }
    }

    /// The cached share of the bytes in percent, rounded down; `-` without bytes.
    fn share(&self) -> String {
        match self.bytes {
            0 => "-".to_owned(),
            bytes => format!("{}%", u128::from(self.cached_bytes) * 100 / u128::from(bytes)),
        }
    }
}

/// The folders of an object, at most `depth` levels below `start` bytes of its name.
fn folders(name: &str, start: usize, depth: usize) -> impl Iterator<Item = &str> {
    let below = name.get(start..).unwrap_or_default();
    below.match_indices('/').take(depth).map(move |(slash, _)| &name[..start + slash + 1])
}

/// Prints the sums of a bucket or prefix.
pub(crate) async fn usage(session: &Session, args: &UsageArgs) -> Result<(), Failure> {
    let (bucket, prefix) = uri::remote(&args.what)?;
    let start = prefix.rfind('/').map_or(0, |slash| slash + 1);
    let mut total = Sums::default();
    let mut by_folder: BTreeMap<String, Sums> = BTreeMap::new();
    each(session, &bucket, &prefix, |row| {
        total.add(&row);
        for folder in folders(row.name, start, args.depth) {
            match by_folder.get_mut(folder) {
                Some(sums) => sums.add(&row),
                None => by_folder.entry(folder.to_owned()).or_default().add(&row),
            }
        }
        Ok(())
    })
    .await?;
    if total.objects == 0 && !prefix.is_empty() {
        return Err(bucket.object_not_found(&format!("{prefix}*")).into());
    }
    let columns = [
        Column("SIZE", true),
        Column("OBJECTS", true),
        Column("CACHED", true),
        Column("URI", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for (folder, sums) in &by_folder {
        rows.push(row(bucket.object_uri(folder), sums, false))?;
    }
    let whole = if prefix.is_empty() { bucket.to_string() } else { bucket.object_uri(&prefix) };
    rows.push(row(whole, &total, true))?;
    rows.finish()
}

fn row(uri: String, sums: &Sums, is_total: bool) -> Row {
    let cells = vec![
        ByteSize(sums.bytes).to_string(),
        sums.objects.to_string(),
        sums.share(),
        uri.escape_debug().to_string(),
    ];
    let json = json!({ "uri": uri, "bytes": sums.bytes, "objects": sums.objects,
        "cached_bytes": sums.cached_bytes, "cached_objects": sums.cached_objects,
        "total": is_total });
    Row { name: uri, cells, json }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_object_counts_in_each_of_its_folders_up_to_the_depth() {
        let of = |name, start, depth| folders(name, start, depth).collect::<Vec<_>>().join(" ");
        assert_eq!(of("a/b/c", 0, 1), "a/");
        assert_eq!(of("a/b/c", 0, 5), "a/ a/b/");
        assert_eq!(of("a/b/c", 2, 1), "a/b/");
        assert_eq!((of("x", 0, 3), of("a/b", 0, 0)), (String::new(), String::new()));
    }

    #[test]
    fn the_cached_share_is_of_bytes() {
        let sums = Sums { objects: 3, bytes: 300, cached_objects: 1, cached_bytes: 199 };
        assert_eq!(sums.share(), "66%");
        assert_eq!(Sums::default().share(), "-");
    }
}
