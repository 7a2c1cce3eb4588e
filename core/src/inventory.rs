//! Inventories: listings of a bucket, taken from its backend once and stored as one object.
//!
//! The object contains the rows as lines of JSON in name order, a footer with the inventory's
//! properties and the offset of every block of rows, and a trailer with the footer's length. So it
//! is written in one pass of any length, and a page needs the footer and a few blocks.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::list_page::MAX_PAGE_ENTRIES;
use crate::name::{Bucket, ObjectName};
use crate::object::ListEntry;

/// Rows per block, which has one entry in the footer.
pub const BLOCK_ROWS: u64 = 1_000;
/// Bytes at the end of the object: the mark and the footer's length.
pub const TRAILER: u64 = 16;
/// Maximum bytes of a footer.
pub const MAX_FOOTER: u64 = 64 << 20;
const MARK: &[u8; 8] = b"FBINV001";
/// Minimum, maximum and default of names per chunk (§16).
const CHUNK: (u64, u64, u64) = (2, 640_000, 20_000);

/// The bucket of inventories: an internal bucket of the cluster, hidden from users.
pub fn home() -> Result<Bucket> {
    Bucket::from_parts("inventory", "ais", "@#sys")
}

/// The object of an inventory: the bucket's uname, then the inventory's name.
pub fn object_of(bucket: &Bucket, name: &str) -> Result<ObjectName> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(Error::invalid(format!("invalid inventory name \"{name}\""))
            .hint("use 1 to 64 letters, digits, '-', '_' or '.'"));
    }
    ObjectName::new(bucket.uname() + name)
}

/// `POST /internal/v1/inventory/create` on the target that owns the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryRequest {
    /// Id of the job.
    pub id: String,
    pub bucket: Bucket,
    pub name: String,
    /// Only names that start with this.
    #[serde(default)]
    pub prefix: String,
    pub names_per_chunk: u64,
}

impl InventoryRequest {
    /// Validates the client's values; a chunk of 0 names means the default.
    pub fn check(&mut self) -> Result<()> {
        let (least, most, default) = CHUNK;
        object_of(&self.bucket, &self.name)?;
        match self.names_per_chunk {
            0 => self.names_per_chunk = default,
            n if (least..=most).contains(&n) => {}
            n => {
                return Err(Error::invalid(format!(
                    "invalid names_per_chunk {n}: expecting {least} to {most}"
                )));
            }
        }
        Ok(())
    }
}

/// `POST /internal/v1/inventory/{info,page,destroy}` on the target that owns the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryQuery {
    /// Name of the object in [`home`].
    pub object: String,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    #[serde(default)]
    pub limit: usize,
}

/// The properties of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryInfo {
    pub name: String,
    pub prefix: String,
    /// Unix nanoseconds.
    pub started_ns: u64,
    pub finished_ns: u64,
    /// Total number of rows.
    pub rows: u64,
    pub names_per_chunk: u64,
    /// Version of the cluster's state, and number of live targets, when it was taken.
    pub map_version: u64,
    pub targets: u64,
    /// Bytes of the object; not part of the footer.
    #[serde(default)]
    pub size: u64,
}

/// The end of an inventory's object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    pub info: InventoryInfo,
    /// The first name of each block and where it begins.
    blocks: Vec<(String, u64)>,
    /// End of the rows.
    end: u64,
}

/// Encodes an inventory as its rows arrive.
#[derive(Debug, Default)]
pub struct InventoryWriter {
    footer: Footer,
}

impl InventoryWriter {
    pub fn new(info: InventoryInfo) -> Self {
        Self { footer: Footer { info, ..Footer::default() } }
    }

    /// Encodes the next rows, which come in name order.
    pub fn rows(&mut self, rows: &[ListEntry]) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(rows.len() * 96);
        for row in rows {
            if self.footer.info.rows.is_multiple_of(BLOCK_ROWS) {
                let at = self.footer.end + bytes.len() as u64;
                self.footer.blocks.push((row.name.clone(), at));
            }
            serde_json::to_writer(&mut bytes, row)
                .map_err(|e| Error::internal(format!("a row does not serialize: {e}")))?;
            bytes.push(b'\n');
            self.footer.info.rows += 1;
        }
        self.footer.end += bytes.len() as u64;
        Ok(bytes)
    }

    /// Encodes the footer and the trailer.
    pub fn finish(mut self, finished_ns: u64) -> Result<Vec<u8>> {
        self.footer.info.finished_ns = finished_ns;
        let mut bytes = serde_json::to_vec(&self.footer)
            .map_err(|e| Error::internal(format!("a footer does not serialize: {e}")))?;
        let len = bytes.len() as u64;
        bytes.extend_from_slice(MARK);
        bytes.extend_from_slice(&len.to_le_bytes());
        Ok(bytes)
    }
}

fn damaged() -> Error {
    Error::internal("the inventory is damaged").hint("make it again with force")
}

/// Length of the footer, from the last [`TRAILER`] bytes of an object of `size` bytes.
pub fn footer_len(trailer: &[u8], size: u64) -> Result<u64> {
    let (mark, len) = trailer.split_at_checked(MARK.len()).ok_or_else(damaged)?;
    let len = u64::from_le_bytes(len.try_into().map_err(|_| damaged())?);
    let fits = mark == MARK && len <= MAX_FOOTER && len + TRAILER <= size;
    fits.then_some(len).ok_or_else(damaged)
}

impl Footer {
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|_| damaged())
    }

    /// Offset of the block where names after `after` that start with `prefix` begin.
    pub fn start(&self, after: &str, prefix: &str) -> u64 {
        let from = after.max(prefix);
        let behind = self.blocks.partition_point(|(first, _)| first.as_str() <= from);
        behind.checked_sub(1).map_or(0, |at| self.blocks[at].1)
    }

    /// The end of the block that begins at `start`, and whether it is the last.
    pub fn block_end(&self, start: u64) -> (u64, bool) {
        let behind = self.blocks.partition_point(|(_, at)| *at <= start);
        self.blocks.get(behind).map_or((self.end, true), |(_, at)| (*at, false))
    }
}

/// The requested rows of one or more blocks. The second value is true if no later row can match.
pub fn select(bytes: &[u8], query: &InventoryQuery) -> Result<(Vec<ListEntry>, bool)> {
    let mut rows = Vec::new();
    let after = query.after.as_str();
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let row: ListEntry = serde_json::from_slice(line).map_err(|_| damaged())?;
        if row.name.starts_with(&query.prefix) {
            if row.name.as_str() > after || after.is_empty() {
                rows.push(row);
            }
        } else if row.name > query.prefix {
            return Ok((rows, true));
        }
    }
    Ok((rows, false))
}

/// Limits a page like other listings.
pub fn page_limit(asked: usize) -> usize {
    asked.clamp(1, MAX_PAGE_ENTRIES)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn row(name: String) -> ListEntry {
        ListEntry { name, ..ListEntry::default() }
    }

    fn written(names: usize) -> Vec<u8> {
        let mut writer = InventoryWriter::new(InventoryInfo::default());
        let rows: Vec<_> = (0..names).map(|i| row(format!("d{}/{i:06}", i / 1500))).collect();
        let mut bytes = Vec::new();
        for page in rows.chunks(700) {
            bytes.extend(writer.rows(page).unwrap());
        }
        bytes.extend(writer.finish(9).unwrap());
        bytes
    }

    fn list(bytes: &[u8], prefix: &str, mut after: String, limit: usize) -> Vec<String> {
        let size = bytes.len() as u64;
        let trailer = &bytes[bytes.len() - TRAILER as usize..];
        let len = footer_len(trailer, size).unwrap() as usize;
        let footer = &bytes[bytes.len() - TRAILER as usize - len..bytes.len() - TRAILER as usize];
        let footer = Footer::parse(footer).unwrap();
        let mut names = Vec::new();
        'pages: loop {
            let query = InventoryQuery {
                object: String::new(),
                prefix: prefix.into(),
                after: after.clone(),
                limit,
            };
            let mut at = footer.start(&query.after, prefix);
            let mut page = Vec::new();
            loop {
                let (end, last) = footer.block_end(at);
                let (rows, over) = select(&bytes[at as usize..end as usize], &query).unwrap();
                page.extend(rows);
                if page.len() > limit {
                    break;
                }
                if over || last {
                    names.extend(page.into_iter().map(|r| r.name));
                    break 'pages;
                }
                at = end;
            }
            page.truncate(limit);
            after = page.last().unwrap().name.clone();
            names.extend(page.into_iter().map(|r| r.name));
        }
        names
    }

    #[test]
    fn pages_of_any_size_join_to_what_was_written() {
        for count in [0, 1, 999, 1_000, 1_001, 4_321] {
            let bytes = written(count);
            for limit in [1_000, 1_700, 9_999] {
                assert_eq!(list(&bytes, "", String::new(), limit).len(), count);
            }
        }
        let bytes = written(4_321);
        let part = list(&bytes, "d1/", String::new(), 70);
        assert_eq!((part.len(), part[0].as_str()), (1_500, "d1/001500"));
        assert_eq!(list(&bytes, "d1/", "d1/002990".into(), 70).len(), 9);
        assert!(list(&bytes, "e", String::new(), 70).is_empty());
        assert!(list(&bytes, "a", String::new(), 70).is_empty());
    }

    #[test]
    fn what_is_no_inventory_is_refused() {
        assert!(footer_len(b"short", 100).is_err());
        let mut bytes = written(3);
        let at = bytes.len() - 1;
        bytes[at] = 255;
        assert!(footer_len(&bytes[at - 15..], bytes.len() as u64).is_err());
        assert!(Footer::parse(b"{}x").is_err());
        assert!(
            select(
                b"{\"nome\":1}\n",
                &InventoryQuery {
                    object: String::new(),
                    prefix: String::new(),
                    after: String::new(),
                    limit: 1
                }
            )
            .is_err()
        );
    }

    #[test]
    fn names_and_chunks_are_checked() {
        let bucket = Bucket::parse_uri("s3://b").unwrap().0;
        assert_eq!(object_of(&bucket, "inv-1").unwrap().as_str(), "aws/@#/b/inv-1");
        for bad in ["", "a/b", "..", "é"] {
            assert!(object_of(&bucket, bad).is_err(), "{bad}");
        }
        let request = |names_per_chunk| InventoryRequest {
            id: "i".into(),
            bucket: bucket.clone(),
            name: "n".into(),
            prefix: String::new(),
            names_per_chunk,
        };
        let mut default = request(0);
        default.check().unwrap();
        assert_eq!(default.names_per_chunk, 20_000);
        assert!(request(1).check().is_err() && request(640_001).check().is_err());
    }
}
