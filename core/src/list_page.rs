//! Pages of listings from targets to gateways, with only the properties that the listing returns:
//! all of them in MessagePack without field names, or sizes alone in columns.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::list_columns::{self, Columns};
use crate::object::{ListEntry, ObjectMeta, RowKind};

/// Maximum entries of a page of a listing.
pub const MAX_PAGE_ENTRIES: usize = 10_000;

/// The properties that a listing returns for each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// All metadata.
    #[default]
    All,
    /// Its size, when it was modified, and whether it is in the cluster.
    Size,
}

impl Detail {
    /// The media type of a page with this detail.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::All => "application/msgpack",
            Self::Size => list_columns::MEDIA_TYPE,
        }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPage {
    pub entries: Vec<ListEntry>,
    /// Whether names after the last entry exist.
    pub more: bool,
}

type FullRow<'a, Meta> = (&'a str, RowKind, Meta);

impl ListPage {
    /// Encodes the page.
    pub fn encode(&self, detail: Detail) -> Result<Vec<u8>> {
        if detail == Detail::Size {
            return Ok(Columns::from(&self.entries[..]).encode(self.more));
        }
        let mut bytes = Vec::with_capacity(64 + self.entries.len() * 64);
        let mut out = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        let rows: Vec<FullRow<'_, &ObjectMeta>> =
            self.entries.iter().map(|e| (e.name.as_str(), e.kind, &e.meta)).collect();
        let done = (self.more, rows).serialize(&mut out);
        done.map_err(|e| Error::internal(format!("a page of a listing cannot be written: {e}")))?;
        Ok(bytes)
    }

    /// Decodes the output of [`Self::encode`] with the same detail.
    pub fn decode(bytes: &[u8], detail: Detail) -> Result<Self> {
        if detail == Detail::Size {
            let (columns, more) = Columns::decode(bytes)?;
            return Ok(Self { entries: columns.rows().map(ListEntry::from).collect(), more });
        }
        let broken = |e| Error::internal(format!("a page of a listing cannot be read: {e}"));
        let (more, rows): (bool, Vec<FullRow<'_, ObjectMeta>>) =
            rmp_serde::from_slice(bytes).map_err(broken)?;
        let entries = rows.into_iter().map(|(name, kind, meta)| ListEntry {
            name: name.to_owned(),
            meta,
            kind,
        });
        Ok(Self { entries: entries.collect(), more })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::checksum::{Checksum, ChecksumKind};

    use super::*;

    fn page() -> ListPage {
        let checksum = Checksum { kind: ChecksumKind::Xxhash2, value: "26c7827d889f6da3".into() };
        let meta = ObjectMeta {
            size: 5,
            version: "7".into(),
            checksum: Some(checksum),
            mtime_ns: 1_795_233_111_530_862_741,
            custom: [("k".to_owned(), "v".to_owned())].into(),
            present: true,
            ..ObjectMeta::default()
        };
        let shard = ListEntry { name: "a.tar".into(), meta, kind: RowKind::Shard };
        let member = ListEntry { name: "a.tar/é".into(), kind: RowKind::Member, ..shard.clone() };
        let bare = ListEntry { name: "b".into(), ..ListEntry::default() };
        ListPage { entries: vec![shard, member, bare], more: true }
    }

    #[test]
    fn a_page_with_all_details_comes_back_as_it_was() {
        let bytes = page().encode(Detail::All).unwrap();
        assert_eq!(ListPage::decode(&bytes, Detail::All).unwrap(), page());
    }

    #[test]
    fn a_page_of_sizes_comes_back_with_sizes_times_and_kinds() {
        let bytes = page().encode(Detail::Size).unwrap();
        let mut expected = page();
        for entry in &mut expected.entries {
            let ObjectMeta { size, mtime_ns, present, .. } = entry.meta;
            entry.meta = ObjectMeta { size, mtime_ns, present, ..ObjectMeta::default() };
        }
        assert_eq!(ListPage::decode(&bytes, Detail::Size).unwrap(), expected);
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        let bytes = page().encode(Detail::Size).unwrap();
        for cut in 0..bytes.len() {
            assert!(ListPage::decode(&bytes[..cut], Detail::Size).is_err());
        }
        assert!(ListPage::decode(&bytes, Detail::All).is_err());
        assert!(ListPage::decode(b"{}", Detail::All).is_err());
    }
}
