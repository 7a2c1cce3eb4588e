//! Pages of listings on their way from targets to gateways: MessagePack without names of fields,
//! and of each object no more than the listing tells. A listing of a million names is bound by this.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::intra::ListPage;
use crate::object::{ListEntry, ObjectMeta, RowKind};

/// The media type of a page.
pub const MEDIA_TYPE: &str = "application/msgpack";

/// What a listing tells of each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// All metadata.
    #[default]
    All,
    /// Its size, when it was modified, and whether it is in the cluster.
    Size,
}

/// Size, time of modification (unix nanoseconds), whether it is present.
type SizeRow<'a> = (&'a str, RowKind, u64, u64, bool);
type FullRow<'a, Meta> = (&'a str, RowKind, Meta);

impl ListPage {
    /// The page as bytes.
    pub fn encode(&self, detail: Detail) -> Result<Vec<u8>> {
        let entries = self.entries.iter();
        let mut bytes = Vec::with_capacity(64 + self.entries.len() * 64);
        let mut out = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        let done = match detail {
            Detail::All => {
                let rows: Vec<FullRow<'_, &ObjectMeta>> =
                    entries.map(|e| (e.name.as_str(), e.kind, &e.meta)).collect();
                (self.more, rows).serialize(&mut out)
            }
            Detail::Size => {
                let rows: Vec<SizeRow<'_>> = entries
                    .map(|e| {
                        let meta = &e.meta;
                        (e.name.as_str(), e.kind, meta.size, meta.mtime_ns, meta.present)
                    })
                    .collect();
                (self.more, rows).serialize(&mut out)
            }
        };
        done.map_err(|e| Error::internal(format!("a page of a listing cannot be written: {e}")))?;
        Ok(bytes)
    }
    /// Reads what [`Self::encode`] wrote with the same detail.
    pub fn decode(bytes: &[u8], detail: Detail) -> Result<Self> {
        let broken = |e| Error::internal(format!("a page of a listing cannot be read: {e}"));
        let entry = |name: &str, kind, meta| ListEntry { name: name.to_owned(), meta, kind };
        let (entries, more) = match detail {
            Detail::All => {
                let (more, rows): (bool, Vec<FullRow<'_, ObjectMeta>>) =
                    rmp_serde::from_slice(bytes).map_err(broken)?;
                let entries = rows.into_iter().map(|(name, kind, meta)| entry(name, kind, meta));
                (entries.collect(), more)
            }
            Detail::Size => {
                let (more, rows): (bool, Vec<SizeRow<'_>>) =
                    rmp_serde::from_slice(bytes).map_err(broken)?;
                let entries = rows.into_iter().map(|(name, kind, size, mtime_ns, present)| {
                    let meta = ObjectMeta { size, mtime_ns, present, ..ObjectMeta::default() };
                    entry(name, kind, meta)
                });
                (entries.collect(), more)
            }
        };
        Ok(Self { entries, more })
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
        assert!(bytes.len() < 80, "{} bytes", bytes.len());
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
