//! The entry of a listed object: the requested columns, presence, and drift from the backend.

use forebay_core::date::format_rfc822;
use forebay_core::list_page::Detail;
use forebay_v1::list::{Entry, ListMsg, entry_flags, flags, present_flags};
use forebay_v1::time_layout::format_layout;

use crate::list_merge::{Drift, Row};
use crate::listing;

/// The columns that a client requests.
pub(super) struct Columns {
    pub(super) size: bool,
    checksum: bool,
    atime: bool,
    version: bool,
    custom: bool,
    location: bool,
    copies: bool,
}

impl Columns {
    pub(super) fn of(msg: &ListMsg) -> Self {
        let props = if msg.has(flags::NAME_ONLY) {
            "name"
        } else if msg.has(flags::NAME_SIZE) {
            "name,size"
        } else if !msg.props.is_empty() {
            &msg.props
        } else if msg.has(flags::CACHED) {
            "name,size,checksum,atime"
        } else {
            "name,size,cached"
        };
        // By substring of the whole value, as the protocol defines it (§6.3).
        let has = |column: &str| props.contains(column);
        Self {
            size: has("size"),
            checksum: has("checksum"),
            atime: has("atime"),
            version: has("version"),
            custom: has("custom"),
            location: has("location"),
            copies: has("copies"),
        }
    }

    pub(super) fn detail(&self) -> Detail {
        match self.checksum || self.atime || self.version || self.custom {
            true => Detail::All,
            false => Detail::Size,
        }
    }

    /// Whether the request needs only names, sizes and presence, of all objects that exist.
    pub(super) fn fit_blocks(&self, msg: &ListMsg) -> bool {
        self.detail() == Detail::Size
            && !(self.location || self.copies)
            && msg.flags & (flags::NOT_CACHED | flags::DIFF | flags::NO_RECURSION) == 0
    }
}

/// Returns a row in the requested columns. `mirrored`: whether several targets may have copies.
pub(super) fn entry(row: Row, columns: &Columns, msg: &ListMsg, mirrored: bool) -> Entry {
    let time_format = &msg.time_format;
    let meta = &row.entry.meta;
    let in_part = listing::is_in_part(&row.entry);
    let mut entry = Entry { name: row.entry.name, ..Entry::default() };
    if columns.size {
        entry.size = meta.size;
    }
    if columns.checksum {
        entry.checksum = meta.checksum.as_ref().map(|c| c.value.clone()).unwrap_or_default();
    }
    if columns.atime && meta.atime_ns > 0 {
        entry.atime = if time_format.is_empty() {
            format_rfc822(meta.atime_ns)
        } else {
            format_layout(time_format, meta.atime_ns)
        };
    }
    if columns.version {
        entry.version.clone_from(&meta.version);
    }
    if columns.custom {
        let pairs: Vec<String> = meta.user_custom().map(|(k, v)| format!("{k}:{v}")).collect();
        if !pairs.is_empty() {
            entry.custom = format!("[{}]", pairs.join(" "));
        }
    }
    match &row.target {
        Some(target) => {
            if !in_part {
                entry.flags = present_flags(row.entry.kind);
            }
            entry.flags |= match row.drift {
                Drift::None => 0,
                Drift::Changed => entry_flags::CHANGED,
                Drift::Removed => entry_flags::REMOVED,
            };
            if columns.location {
                entry.location = format!("t[{target}]:mp[]");
            }
            if columns.copies {
                entry.copies = match mirrored {
                    true => i16::try_from(row.copies.max(1)).unwrap_or(i16::MAX),
                    false => 1,
                };
            }
        }
        // An object may have the name of a directory too. In a one-level listing it is the prefix
        // itself.
        None if msg.has(flags::NO_RECURSION)
            && entry.name.ends_with('/')
            && entry.name.len() > msg.prefix.len() =>
        {
            entry.flags = entry_flags::DIRECTORY;
        }
        None => {}
    }
    entry
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::NodeId;
    use forebay_core::checksum::{Checksum, ChecksumKind};
    use forebay_core::object::{ListEntry, ObjectMeta, RowKind};

    use super::*;

    fn row() -> Row {
        let meta = ObjectMeta {
            present: true,
            size: 9,
            version: "2".into(),
            checksum: Some(Checksum { kind: ChecksumKind::Md5, value: "ab".into() }),
            atime_ns: 1_795_233_111_530_862_741,
            custom: [("k".to_owned(), "v".to_owned())].into(),
            ..ObjectMeta::default()
        };
        let target = Some(NodeId::new("target-01").unwrap());
        Row {
            entry: ListEntry { name: "x".into(), meta, ..ListEntry::default() },
            target,
            copies: 2,
            drift: Drift::None,
        }
    }

    fn shown(props: &str, flags: u64) -> Entry {
        let msg = ListMsg { props: props.into(), flags, ..ListMsg::default() };
        entry(row(), &Columns::of(&msg), &msg, true)
    }

    #[test]
    fn only_the_columns_asked_for_are_shown_and_presence_always() {
        let base = Entry { name: "x".into(), size: 9, flags: 64, ..Entry::default() };
        assert_eq!(shown("", 0), base);
        assert_eq!(shown("name,size", 0), base);
        assert_eq!(shown("name,size,version", flags::NAME_ONLY), Entry { size: 0, ..base.clone() });
        let cached = shown("", flags::CACHED);
        assert_eq!(
            (cached.checksum.as_str(), cached.atime.as_str()),
            ("ab", "21 Nov 26 03:51 UTC")
        );
        let all = shown("name,size,checksum,atime,version,custom,location", 0);
        assert_eq!((all.version.as_str(), all.custom.as_str()), ("2", "[k:v]"));
        assert_eq!((all.location.as_str(), all.copies), ("t[target-01]:mp[]", 0));
        assert_eq!(shown("name,copies", 0).copies, 2);
        let msg = ListMsg { props: "name,copies".into(), ..ListMsg::default() };
        assert_eq!(entry(row(), &Columns::of(&msg), &msg, false).copies, 1);
    }

    #[test]
    fn a_marker_that_is_not_cached_is_an_object_and_no_directory() {
        let flags_of = |name: &str, prefix: &str, flags| {
            let msg = ListMsg { prefix: prefix.into(), flags, ..ListMsg::default() };
            let entry = ListEntry { name: name.into(), ..ListEntry::default() };
            let row = Row { entry, target: None, ..row() };
            super::entry(row, &Columns::of(&msg), &msg, true).flags
        };
        assert_eq!(flags_of("a/b/", "", 0), 0);
        assert_eq!(flags_of("a/b/", "a/b/", flags::NO_RECURSION), 0);
        assert_eq!(flags_of("a/b/", "a/", flags::NO_RECURSION), entry_flags::DIRECTORY);
        assert_eq!(flags_of("a/b/", "a/b", flags::NO_RECURSION), entry_flags::DIRECTORY);
    }

    #[test]
    fn a_shard_and_its_members_are_marked() {
        let msg = ListMsg { props: "name,size".into(), ..ListMsg::default() };
        let flags_of = |kind| {
            let mut row = row();
            row.entry.kind = kind;
            entry(row, &Columns::of(&msg), &msg, true).flags
        };
        assert_eq!(flags_of(RowKind::Object), 64);
        assert_eq!(flags_of(RowKind::Shard), 576);
        assert_eq!(flags_of(RowKind::Member), 192);
    }
}
