//! Listings of names and sizes in columns: between targets and gateways, and from gateways to
//! Forebay's clients. A row needs a few additions to flat buffers, so that millions of names per
//! second are possible.
//!
//! ```text
//! block:  "FBL" 1, flags u8 (1: more follows), 3 zeros, rows u32, bytes of names u32, then in columns
//!         the end of each name u32, size u64, time of modification u64 (unix nanoseconds),
//!         kind u8 (object, shard, member; 64 added when it is in the cluster), then the names
//! ```
//! Numbers are little-endian. A listing is one block, or several, of which all but the last say that
//! more follows.

use bytes::{Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::object::{ListEntry, ObjectMeta, RowKind};

/// The media type of a listing in blocks.
pub const MEDIA_TYPE: &str = "application/vnd.forebay.listing";
/// Maximum rows of a block.
pub const MAX_ROWS: usize = 1 << 14;

const MAGIC: [u8; 4] = *b"FBL\x01";
const HEAD: usize = 16;
/// Bytes of a row besides its name.
const ROW: usize = 4 + 8 + 8 + 1;
const MORE: u8 = 1;
const PRESENT: u8 = 64;
/// A block that claims more is invalid.
const MAX_NAMES: usize = MAX_ROWS * crate::name::MAX_OBJECT_NAME * 2;

/// Rows of a listing: names with sizes, times and kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    names: String,
    /// End of each name in `names`.
    ends: Vec<u32>,
    sizes: Vec<u64>,
    mtimes: Vec<u64>,
    kinds: Vec<u8>,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnRow<'a> {
    pub name: &'a str,
    pub size: u64,
    /// Modification time, unix nanoseconds.
    pub mtime_ns: u64,
    pub kind: RowKind,
    /// Whether it is in the cluster.
    pub present: bool,
}

impl Columns {
    /// Allocates space for this many rows.
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            names: String::with_capacity(rows * 24),
            ends: Vec::with_capacity(rows),
            sizes: Vec::with_capacity(rows),
            mtimes: Vec::with_capacity(rows),
            kinds: Vec::with_capacity(rows),
        }
    }

    /// Adds a row. Names of one listing together take less than 4 GiB.
    pub fn push(&mut self, row: ColumnRow<'_>) {
        self.names.push_str(row.name);
        self.ends.push(self.names.len() as u32);
        self.sizes.push(row.size);
        self.mtimes.push(row.mtime_ns);
        let kind = match row.kind {
            RowKind::Object => 0,
            RowKind::Shard => 1,
            RowKind::Member => 2,
        };
        self.kinds.push(kind | if row.present { PRESENT } else { 0 });
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name in row `row`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn name(&self, row: usize) -> &str {
        &self.names[self.start(row)..self.ends[row] as usize]
    }

    /// When the object in row `row` was modified, in unix nanoseconds.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn mtime_ns(&self, row: usize) -> u64 {
        self.mtimes[row]
    }

    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> ColumnRow<'_> {
        let kind = self.kinds[row];
        ColumnRow {
            name: self.name(row),
            size: self.sizes[row],
            mtime_ns: self.mtimes[row],
            kind: match kind & !PRESENT {
                0 => RowKind::Object,
                1 => RowKind::Shard,
                _ => RowKind::Member,
            },
            present: kind & PRESENT != 0,
        }
    }

    pub fn last_name(&self) -> Option<&str> {
        self.len().checked_sub(1).map(|last| self.name(last))
    }

    pub fn rows(&self) -> impl ExactSizeIterator<Item = ColumnRow<'_>> {
        (0..self.len()).map(|row| self.row(row))
    }

    /// All names, concatenated.
    pub fn names(&self) -> &str {
        &self.names
    }

    /// End of each name in [`Self::names`].
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Bytes of each object.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Keeps the first `rows` rows.
    pub fn truncate(&mut self, rows: usize) {
        if rows < self.len() {
            self.names.truncate(self.start(rows));
            self.ends.truncate(rows);
            self.sizes.truncate(rows);
            self.mtimes.truncate(rows);
            self.kinds.truncate(rows);
        }
    }

    /// Appends the first `at_most` rows of `others`.
    pub fn append(&mut self, mut others: Self, at_most: usize) {
        others.truncate(at_most);
        if self.is_empty() {
            *self = others;
            return;
        }
        let base = self.names.len() as u32;
        self.names.push_str(&others.names);
        self.ends.extend(others.ends.iter().map(|end| base + end));
        self.sizes.append(&mut others.sizes);
        self.mtimes.append(&mut others.mtimes);
        self.kinds.append(&mut others.kinds);
    }

    fn start(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// Encodes the rows as one block; `more` says whether another block follows.
    pub fn encode(&self, more: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.len() * ROW + self.names.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[if more { MORE } else { 0 }, 0, 0, 0]);
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.names.len() as u32).to_le_bytes());
        out.extend(self.ends.iter().flat_map(|v| v.to_le_bytes()));
        out.extend(self.sizes.iter().flat_map(|v| v.to_le_bytes()));
        out.extend(self.mtimes.iter().flat_map(|v| v.to_le_bytes()));
        out.extend_from_slice(&self.kinds);
        out.extend_from_slice(self.names.as_bytes());
        out
    }

    /// Decodes one block; returns the rows, and whether another block follows.
    pub fn decode(block: &[u8]) -> Result<(Self, bool)> {
        let (rows, names, more) = head(block)?.ok_or_else(|| broken("is cut off"))?;
        if block.len() != HEAD + rows * ROW + names {
            return Err(broken("has another length than it says"));
        }
        let (ends, rest) = block[HEAD..].split_at(rows * 4);
        let (sizes, rest) = rest.split_at(rows * 8);
        let (mtimes, rest) = rest.split_at(rows * 8);
        let (kinds, names) = rest.split_at(rows);
        let columns = Self {
            names: str::from_utf8(names).map_err(|_| broken("has names not in UTF-8"))?.to_owned(),
            ends: ends.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect(),
            sizes: sizes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect(),
            mtimes: mtimes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect(),
            kinds: kinds.to_vec(),
        };
        let fit = columns.ends.is_sorted()
            && columns.ends.iter().all(|end| columns.names.is_char_boundary(*end as usize))
            && columns.ends.last().map_or(0, |end| *end as usize) == columns.names.len();
        if !fit || columns.kinds.iter().any(|kind| kind & !PRESENT > 2) {
            return Err(broken("contradicts itself"));
        }
        Ok((columns, more))
    }
}

impl From<&[ListEntry]> for Columns {
    fn from(entries: &[ListEntry]) -> Self {
        let mut columns = Self::with_capacity(entries.len());
        for ListEntry { name, meta, kind } in entries {
            let ObjectMeta { size, mtime_ns, present, .. } = *meta;
            columns.push(ColumnRow { name, size, mtime_ns, kind: *kind, present });
        }
        columns
    }
}

impl From<ColumnRow<'_>> for ListEntry {
    fn from(row: ColumnRow<'_>) -> Self {
        let ColumnRow { name, size, mtime_ns, kind, present } = row;
        let meta = ObjectMeta { size, mtime_ns, present, ..ObjectMeta::default() };
        Self { name: name.to_owned(), meta, kind }
    }
}

/// Number of rows, length of the names, and whether more follows. `None`: the head is incomplete.
fn head(bytes: &[u8]) -> Result<Option<(usize, usize, bool)>> {
    let Some((head, _)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [m0, m1, m2, m3, flags, z0, z1, z2, r0, r1, r2, r3, n0, n1, n2, n3] = *head;
    if [m0, m1, m2, m3] != MAGIC || flags & !MORE != 0 || [z0, z1, z2] != [0; 3] {
        return Err(broken("is none of this version"));
    }
    let rows = u32::from_le_bytes([r0, r1, r2, r3]) as usize;
    let names = u32::from_le_bytes([n0, n1, n2, n3]) as usize;
    if rows > MAX_ROWS || names > MAX_NAMES {
        return Err(broken("claims to be too long"));
    }
    Ok(Some((rows, names, flags & MORE != 0)))
}

fn broken(what: &str) -> Error {
    Error::internal(format!("a block of a listing {what}"))
}

/// Cuts a stream of bytes into blocks.
#[derive(Debug, Default)]
pub struct BlockReader {
    here: BytesMut,
    over: bool,
}

impl BlockReader {
    /// Appends the next bytes.
    pub fn feed(&mut self, bytes: &Bytes) {
        self.here.extend_from_slice(bytes);
    }

    /// Returns the next block, once it is complete.
    pub fn next_block(&mut self) -> Result<Option<Columns>> {
        let Some((rows, names, more)) = head(&self.here)? else { return Ok(None) };
        let len = HEAD + rows * ROW + names;
        if self.here.len() < len {
            self.here.reserve(len - self.here.len());
            return Ok(None);
        }
        let (columns, _) = Columns::decode(&self.here.split_to(len))?;
        self.over = !more;
        Ok(Some(columns))
    }

    /// Whether the last block was read and nothing follows it.
    pub fn is_complete(&self) -> bool {
        self.over && self.here.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Columns {
        let mut columns = Columns::default();
        let row =
            ColumnRow { name: "a.tar", size: 5, mtime_ns: 9, kind: RowKind::Shard, present: true };
        columns.push(row);
        columns.push(ColumnRow { name: "a.tar/é", kind: RowKind::Member, ..row });
        columns.push(ColumnRow {
            name: "b",
            size: 1 << 40,
            mtime_ns: 0,
            kind: RowKind::Object,
            present: false,
        });
        columns
    }

    #[test]
    fn a_block_has_the_bytes_that_are_written_down() {
        let mut columns = Columns::default();
        columns.push(ColumnRow {
            name: "xy",
            size: 5,
            mtime_ns: 258,
            kind: RowKind::Object,
            present: true,
        });
        let wanted = b"FBL\x01\x01\0\0\0\x01\0\0\0\x02\0\0\0\x02\0\0\0\x05\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0\x40xy";
        assert_eq!(columns.encode(true), wanted);
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let (again, more) = Columns::decode(&some().encode(true)).unwrap();
        assert_eq!((again, more), (some(), true));
        let (none, more) = Columns::decode(&Columns::default().encode(false)).unwrap();
        assert!(none.is_empty() && !more);
        assert_eq!(some().row(1).name, "a.tar/é");
        assert_eq!(some().last_name(), Some("b"));
    }

    #[test]
    fn fewer_rows_are_the_first_ones() {
        let mut two = some();
        two.truncate(2);
        two.truncate(7);
        assert_eq!(two.rows().map(|r| r.name).collect::<Vec<_>>(), ["a.tar", "a.tar/é"]);
        assert_eq!(Columns::decode(&two.encode(false)).unwrap().0, two);
    }

    #[test]
    fn rows_are_added_behind_others() {
        let mut rows = Columns::default();
        rows.append(some(), 1);
        rows.append(some(), 2);
        assert_eq!(rows.rows().map(|r| r.name).collect::<Vec<_>>(), ["a.tar", "a.tar", "a.tar/é"]);
        assert_eq!(rows.row(2), some().row(1));
    }

    #[test]
    fn what_is_no_block_is_an_error() {
        let block = some().encode(false);
        for cut in 0..block.len() {
            assert!(Columns::decode(&block[..cut]).is_err());
        }
        for at in 0..HEAD {
            for bit in 0..8 {
                let mut flipped = block.clone();
                flipped[at] ^= 1 << bit;
                // Only the flag for further blocks may change without an error.
                let changed = Columns::decode(&flipped);
                assert!(changed.is_err() || (at, bit) == (4, 0), "{at} {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_stream_is_cut_into_its_blocks_wherever_it_breaks(
            names in prop::collection::vec(prop::collection::vec("\\PC{0,9}", 0..5), 1..5),
            step in 1usize..40,
        ) {
            let blocks: Vec<Columns> = names.iter().map(|names| {
                let mut columns = Columns::default();
                for (size, name) in (1..).zip(names) {
                    columns.push(ColumnRow { name, size, mtime_ns: size, kind: RowKind::Object, present: true });
                }
                columns
            }).collect();
            let last = blocks.len() - 1;
            let stream: Vec<u8> =
                blocks.iter().enumerate().flat_map(|(n, b)| b.encode(n < last)).collect();
            let (mut reader, mut got) = (BlockReader::default(), Vec::new());
            for bytes in stream.chunks(step) {
                prop_assert!(!reader.is_complete());
                reader.feed(&Bytes::copy_from_slice(bytes));
                while let Some(block) = reader.next_block().unwrap() {
                    got.push(block);
                }
            }
            prop_assert!(reader.is_complete());
            prop_assert_eq!(got, blocks);
        }
    }
}
