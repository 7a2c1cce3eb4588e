//! Rows of a cached listing: names, sizes and times in columns, and separately the versions, which
//! few readers need.

use forebay_core::list_columns::{ColumnRow, Columns};
use forebay_core::object::{ListEntry, ObjectMeta};
use forebay_core::{Error, Result};

/// Version and ETag of a row; `None`: the ETag is the version.
type Tag = (String, Option<String>);

/// One block of rows.
pub(super) struct Rows {
    columns: Columns,
    /// Empty if not requested.
    tags: Vec<Tag>,
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) columns: ColumnRow<'a>,
    pub(super) version: &'a str,
    pub(super) etag: &'a str,
}

/// A builder of a page in one of its forms.
pub(super) trait RowsBuilder: Default {
    /// Whether versions are needed.
    const TAGS: bool;
    fn push(&mut self, row: Row<'_>);
    fn count(&self) -> usize;

    /// Adds a row from a backend's response.
    fn push_entry(&mut self, entry: &ListEntry) {
        let ObjectMeta { size, mtime_ns, version, etag, .. } = &entry.meta;
        let (size, mtime_ns) = (*size, *mtime_ns);
        let columns =
            ColumnRow { name: &entry.name, size, mtime_ns, kind: entry.kind, present: false };
        self.push(Row { columns, version, etag });
    }
}

impl Rows {
    pub(super) fn encode(rows: &[ListEntry]) -> Result<Vec<u8>> {
        let columns = Columns::from(rows).encode(true);
        let tag = |ListEntry { meta, .. }: &ListEntry| -> Tag {
            let etag = (meta.etag != meta.version).then(|| meta.etag.clone());
            (meta.version.clone(), etag)
        };
        let tags: Vec<Tag> = rows.iter().map(tag).collect();
        let tags = rmp_serde::to_vec(&tags).map_err(|e| broken(&e))?;
        let mut bytes = Vec::with_capacity(4 + columns.len() + tags.len());
        bytes.extend_from_slice(&(columns.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&columns);
        bytes.extend_from_slice(&tags);
        Ok(bytes)
    }

    /// Decodes the output of [`Self::encode`].
    pub(super) fn decode(bytes: &[u8], tags: bool) -> Result<Self> {
        let parts = bytes
            .split_first_chunk::<4>()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
        let (columns, rest) = parts.ok_or_else(|| broken(&"a block is cut off"))?;
        let (columns, _) = Columns::decode(columns)?;
        let tags: Vec<Tag> = match tags {
            true => rmp_serde::from_slice(rest).map_err(|e| broken(&e))?,
            false => Vec::new(),
        };
        Ok(Self { columns, tags })
    }

    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn name(&self, n: usize) -> &str {
        self.columns.name(n)
    }

    pub(super) fn row(&self, n: usize) -> Row<'_> {
        let (version, etag) = match self.tags.get(n) {
            Some((version, etag)) => (version.as_str(), etag.as_deref().unwrap_or(version)),
            None => ("", ""),
        };
        Row { columns: self.columns.row(n), version, etag }
    }

    /// Index of the first row after `after` that is not before all names with `prefix`.
    pub(super) fn first_behind(&self, after: &str, prefix: &str) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let name = self.name(middle);
            if name <= after || name < prefix { low = middle + 1 } else { high = middle }
        }
        low
    }
}

fn broken(e: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("rows of a kept listing: {e}"))
}

impl RowsBuilder for Columns {
    const TAGS: bool = false;

    fn push(&mut self, row: Row<'_>) {
        Self::push(self, row.columns);
    }

    fn count(&self) -> usize {
        self.len()
    }
}

impl RowsBuilder for Vec<ListEntry> {
    const TAGS: bool = true;

    fn push(&mut self, row: Row<'_>) {
        let ColumnRow { name, size, mtime_ns, kind, .. } = row.columns;
        let (version, etag) = (row.version.to_owned(), row.etag.to_owned());
        let meta = ObjectMeta { size, mtime_ns, version, etag, ..ObjectMeta::default() };
        self.push(ListEntry { name: name.to_owned(), kind, meta });
    }

    fn count(&self) -> usize {
        self.len()
    }
}
