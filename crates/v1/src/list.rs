//! Listing of objects (§6): the request's value, and pages in MessagePack and JSON.

use forebay_core::error::{Error, Result};
use forebay_core::list_columns::{ColumnRow, Columns};
use forebay_core::list_page::MAX_PAGE_ENTRIES;
use forebay_core::name::{MAX_OBJECT_NAME, check_length};
use forebay_core::object::RowKind;
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::action::{lower_keys, number};

/// Maximum entries of a page, and the default.
pub const MAX_PAGE: usize = MAX_PAGE_ENTRIES;
/// The media type of a MessagePack page, which clients compare as a whole.
pub const MSGPACK: &str = "application/msgpack";

/// Supported request flags (§6.4).
pub mod flags {
    /// Only objects that are in the cluster.
    pub const CACHED: u64 = 1;
    /// Members of shards after each shard; only for objects in the cluster.
    pub const ARCHIVE: u64 = 8;
    pub const NAME_ONLY: u64 = 16;
    pub const NAME_SIZE: u64 = 32;
    /// Does not look up a bucket that is unknown to the cluster.
    pub const BUCKET_PRESENT: u64 = 64;
    pub const NOT_CACHED: u64 = 512;
    pub const NO_RECURSION: u64 = 2048;
    /// Compares objects in the cluster with the backend.
    pub const DIFF: u64 = 4096;
    /// From a stored inventory instead of the backend.
    pub const INVENTORY: u64 = 32768;
}

/// Entry flags (§6.5).
pub mod entry_flags {
    pub const PRESENT: u16 = 64;
    /// A member of a shard.
    pub const IN_ARCHIVE: u16 = 128;
    pub const DIRECTORY: u16 = 256;
    /// A shard whose members are listed too.
    pub const ARCHIVE: u16 = 512;
    /// The backend has another version.
    pub const CHANGED: u16 = 1024;
    /// The backend no longer has the object.
    pub const REMOVED: u16 = 2048;
}

/// The `value` of a list action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMsg {
    pub prefix: String,
    pub page_size: usize,
    pub uuid: String,
    pub token: String,
    pub props: String,
    pub flags: u64,
    pub start_after: String,
    /// Go layout of access times; the default layout if empty.
    pub time_format: String,
    /// The target that lists the backend; any if empty.
    pub target: String,
    /// In a one-level listing whose prefix is a folder's name without its slash: lists the folder
    /// and not its contents. Not a key of AIStore.
    pub shows_folder: bool,
}

impl ListMsg {
    pub fn from_value(value: &Value) -> Result<Self> {
        let value = lower_keys(value.clone());
        if !matches!(value, Value::Object(_) | Value::Null) {
            return Err(Error::invalid("the value of a list request must be a JSON object"));
        }
        let text = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(Error::invalid(format!("list: \"{key}\" is not a string: {other}"))),
        };
        let count = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Ok(0),
            Some(Value::String(text)) if text.is_empty() => Ok(0),
            Some(other) => number(&value, key).ok_or_else(|| {
                Error::invalid(format!("list: \"{key}\" is not a whole number: {other}"))
            }),
        };
        let prefix = text("prefix")?.trim_end_matches('*').to_owned();
        if prefix.split('/').any(|part| part == "." || part == "..") {
            return Err(Error::invalid(format!("invalid prefix \"{prefix}\"")));
        }
        let token = text("continuation_token")?;
        let flags = count("flags")?;
        // A member of a shard is listed as the shard's name followed by its own.
        let longest = match flags & flags::ARCHIVE {
            0 => MAX_OBJECT_NAME,
            _ => 2 * MAX_OBJECT_NAME + 1,
        };
        let start_after = text("start_after")?;
        for (field, text) in
            [("prefix", &prefix), ("continuation_token", &token), ("start_after", &start_after)]
        {
            check_length(field, text, longest)?;
        }
        if token.contains('\0') {
            return Err(Error::invalid(
                "invalid continuation token: it is not one of this cluster",
            ));
        }
        let page_size = match count("pagesize")? {
            0 => MAX_PAGE,
            n => usize::try_from(n).unwrap_or(MAX_PAGE).min(MAX_PAGE),
        };
        Ok(Self {
            prefix,
            page_size,
            uuid: text("uuid")?,
            token,
            props: text("props")?,
            flags,
            start_after,
            time_format: text("time_format")?,
            target: text("target")?,
            shows_folder: value.get("shows_folder").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// The JSON value that Forebay's client sends.
    pub fn to_value(&self) -> Value {
        serde_json::json!({
            "prefix": self.prefix, "pagesize": self.page_size, "uuid": self.uuid,
            "continuation_token": self.token, "props": self.props,
            "flags": self.flags.to_string(), "start_after": self.start_after,
            "shows_folder": self.shows_folder,
        })
    }

    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// A page, with the field names of the MessagePack form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    #[serde(rename = "UUID")]
    pub uuid: String,
    #[serde(rename = "ContinuationToken")]
    pub token: String,
    #[serde(rename = "Entries")]
    pub entries: Vec<Entry>,
    #[serde(rename = "Flags", default)]
    pub flags: u32,
}

/// A row, with the field names of the MessagePack form; zero values are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    #[serde(rename = "n")]
    pub name: String,
    #[serde(rename = "cs", default, skip_serializing_if = "String::is_empty")]
    pub checksum: String,
    #[serde(rename = "a", default, skip_serializing_if = "String::is_empty")]
    pub atime: String,
    #[serde(rename = "v", default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(rename = "t", default, skip_serializing_if = "String::is_empty")]
    pub location: String,
    #[serde(rename = "m", default, skip_serializing_if = "String::is_empty")]
    pub custom: String,
    #[serde(rename = "s", default, skip_serializing_if = "is_zero")]
    pub size: u64,
    #[serde(rename = "c", default, skip_serializing_if = "is_zero")]
    pub copies: i16,
    #[serde(rename = "f", default, skip_serializing_if = "is_zero")]
    pub flags: u16,
}

fn is_zero<T: PartialEq + Default>(n: &T) -> bool {
    *n == T::default()
}

impl Page {
    pub fn to_msgpack(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("strings and numbers serialize")
    }

    pub fn from_msgpack(bytes: &[u8]) -> Result<Self> {
        rmp_serde::from_slice(bytes)
            .map_err(|e| Error::internal(format!("unreadable page of a listing: {e}")))
    }

    /// The JSON form: other field names, sizes as strings, `null` for no entries.
    pub fn to_json(&self) -> String {
        let entries: Vec<Value> = self.entries.iter().map(Entry::to_json).collect();
        let entries = if entries.is_empty() { Value::Null } else { Value::Array(entries) };
        let mut text = serde_json::json!({
            "uuid": self.uuid, "continuation_token": self.token,
            "entries": entries, "flags": self.flags,
        })
        .to_string();
        text.push('\n');
        text
    }
}

/// The flags of a row that is in the cluster.
pub fn present_flags(kind: RowKind) -> u16 {
    entry_flags::PRESENT
        | match kind {
            RowKind::Object => 0,
            RowKind::Shard => entry_flags::ARCHIVE,
            RowKind::Member => entry_flags::IN_ARCHIVE,
        }
}

/// A page of objects in the cluster with names and optionally sizes: the same bytes as
/// [`Page::to_msgpack`] without building its entries.
pub fn columns_to_msgpack(uuid: &str, token: &str, rows: &Columns, sizes: bool) -> Vec<u8> {
    let page = ColumnPage { uuid, token, entries: ColumnEntries { rows, sizes }, flags: 0 };
    let mut bytes = Vec::with_capacity(128 + rows.names().len() + rows.len() * 16);
    let mut out = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    page.serialize(&mut out).expect("strings and numbers serialize");
    bytes
}

#[derive(Serialize)]
struct ColumnPage<'a> {
    #[serde(rename = "UUID")]
    uuid: &'a str,
    #[serde(rename = "ContinuationToken")]
    token: &'a str,
    #[serde(rename = "Entries")]
    entries: ColumnEntries<'a>,
    #[serde(rename = "Flags")]
    flags: u32,
}

struct ColumnEntries<'a> {
    rows: &'a Columns,
    sizes: bool,
}

#[derive(Serialize)]
struct ColumnEntry<'a> {
    n: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    s: u64,
    f: u16,
}

impl Serialize for ColumnEntries<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        let mut seq = out.serialize_seq(Some(self.rows.len()))?;
        for ColumnRow { name, size, kind, present, .. } in self.rows.rows() {
            let s = if self.sizes { size } else { 0 };
            // Of a partly cached object, the cluster has only ranges.
            let in_part = kind == RowKind::Object && !present;
            let f = if in_part { 0 } else { present_flags(kind) };
            seq.serialize_element(&ColumnEntry { n: name, s, f })?;
        }
        seq.end()
    }
}

impl Entry {
    fn to_json(&self) -> Value {
        let mut map = serde_json::Map::new();
        map.insert("name".into(), self.name.clone().into());
        let texts = [
            ("checksum", &self.checksum),
            ("atime", &self.atime),
            ("version", &self.version),
            ("location", &self.location),
            ("custom-md", &self.custom),
        ];
        for (key, text) in texts {
            if !text.is_empty() {
                map.insert(key.into(), text.clone().into());
            }
        }
        if self.size != 0 {
            map.insert("size".into(), self.size.to_string().into());
        }
        if self.copies != 0 {
            map.insert("copies".into(), self.copies.into());
        }
        if self.flags != 0 {
            map.insert("flags".into(), self.flags.into());
        }
        Value::Object(map)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_page_has_the_captured_bytes() {
        let page = Page { uuid: "AdXOTXX3n".into(), ..Page::default() };
        let mut want = vec![0x84, 0xa4];
        want.extend_from_slice(
            b"UUID\xa9AdXOTXX3n\xb1ContinuationToken\xa0\xa7Entries\x90\xa5Flags\x00",
        );
        assert_eq!(page.to_msgpack(), want);
    }

    #[test]
    fn an_entry_leaves_zeroes_out() {
        let entry = Entry { name: "x".into(), size: 5, flags: 64, ..Entry::default() };
        let bytes = rmp_serde::to_vec_named(&entry).unwrap();
        assert_eq!(bytes, b"\x83\xa1n\xa1x\xa1s\x05\xa1f\x40");
        let page = Page { entries: vec![entry], ..Page::default() };
        assert_eq!(Page::from_msgpack(&page.to_msgpack()).unwrap(), page);
    }

    #[test]
    fn a_page_from_columns_has_the_bytes_of_one_of_entries() {
        let mut rows = Columns::default();
        let rows_of = [("a", 5, RowKind::Object), ("b.tar", 0, RowKind::Shard)];
        for (name, size, kind) in rows_of {
            rows.push(ColumnRow { name, size, mtime_ns: 7, kind, present: true });
        }
        for sizes in [true, false] {
            let entries = rows_of.map(|(name, size, kind)| Entry {
                name: name.to_owned(),
                size: if sizes { size } else { 0 },
                flags: present_flags(kind),
                ..Entry::default()
            });
            let (uuid, token) = ("AdXOTXX3n".to_owned(), "b.tar".to_owned());
            let page = Page { uuid, token, entries: entries.to_vec(), flags: 0 };
            let bytes = columns_to_msgpack(&page.uuid, &page.token, &rows, sizes);
            assert_eq!(bytes, page.to_msgpack());
        }
    }

    #[test]
    fn numbers_may_come_as_strings() {
        let v = serde_json::json!({"flags": "8", "PageSize": 7, "prefix": "a*"});
        let m = ListMsg::from_value(&v).unwrap();
        assert_eq!((m.flags, m.page_size, m.prefix.as_str()), (8, 7, "a"));
        assert_eq!(ListMsg::from_value(&serde_json::json!({})).unwrap().page_size, MAX_PAGE);
        let long = "x".repeat(MAX_OBJECT_NAME + 1);
        for bad in [
            serde_json::json!({"prefix": "a/../b"}),
            serde_json::json!({"prefix": 5}),
            serde_json::json!({"flags": "many"}),
            serde_json::json!({"pagesize": -1}),
            serde_json::json!({"uuid": []}),
            serde_json::json!({"continuation_token": long}),
            serde_json::json!(["a"]),
        ] {
            assert_eq!(ListMsg::from_value(&bad).unwrap_err().code.status(), 400, "{bad}");
        }
    }
}
