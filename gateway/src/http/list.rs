//! Listing of objects and of buckets over v1: decodes the request, lists, and encodes the answer.

use axum::http::{HeaderMap, header};
use axum::response::Response;
use forebay_core::date::format_rfc822;
use forebay_core::inventory::home;
use forebay_core::list_columns;
use forebay_core::list_page::Detail;
use forebay_core::name::Namespace;
use forebay_core::state::ClusterState;
use forebay_core::v1::inventory::NAME_HEADER;
use forebay_core::v1::list::{
    Entry, ListMsg, MSGPACK, Page, columns_to_msgpack, entry_flags, flags, present_flags,
};
use forebay_core::v1::query::Query;
use forebay_core::v1::time_layout::format_layout;
use forebay_core::{Bucket, Error, ErrorCode, Provider, Result};
use forebay_node::reply::{json, with_type};
use serde_json::Value;

use super::list_stream;
use crate::ids;
use crate::inventory::Inventories;
use crate::list_merge::{Drift, Part, Row, Rows};
use crate::listing::{self, Want};
use crate::route::{Found, Route};
use crate::targets::Targets;

/// The columns that a client requests.
struct Columns {
    size: bool,
    checksum: bool,
    atime: bool,
    version: bool,
    custom: bool,
    location: bool,
    copies: bool,
}

impl Columns {
    fn of(msg: &ListMsg) -> Self {
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

    fn detail(&self) -> Detail {
        match self.checksum || self.atime || self.version || self.custom {
            true => Detail::All,
            false => Detail::Size,
        }
    }

    /// Whether the request needs only names, sizes and presence, of all objects that exist.
    fn fit_blocks(&self, msg: &ListMsg) -> bool {
        self.detail() == Detail::Size
            && !(self.location || self.copies)
            && msg.flags & (flags::NOT_CACHED | flags::DIFF | flags::NO_RECURSION) == 0
    }
}

/// Returns a page of objects in the format that the client accepts.
pub(crate) async fn objects(
    route: &Route,
    targets: &Targets,
    bucket: &Bucket,
    value: &Value,
    headers: &HeaderMap,
) -> Result<Response> {
    let msg = ListMsg::from_value(value)?;
    let found = if msg.has(flags::BUCKET_PRESENT) {
        route.known(bucket)?
    } else {
        route.bucket(bucket).await?
    };
    // A request may set the maximum age of a cached listing.
    let found = Found { info: found.info.clone().with_request_rules(headers)?, ..found };
    let named = headers.get(NAME_HEADER).and_then(|v| v.to_str().ok()).unwrap_or("");
    let inventory = if msg.has(flags::INVENTORY) || !named.is_empty() {
        check_inventory_list(&msg)?;
        let object = Inventories { route, targets }.choose(&found, named).await?;
        Some((route.known(&home()?)?, object))
    } else {
        None
    };
    let columns = Columns::of(&msg);
    let want = want(&found, &msg, &columns, inventory)?;
    if accepts(headers, list_columns::MEDIA_TYPE) && columns.fit_blocks(&msg) {
        return list_stream::answer(targets, &found, want).await;
    }
    if !accepts(headers, MSGPACK) {
        let page = page(targets, &found, &msg, &columns, &want).await?;
        return Ok(with_type("application/json; charset=utf-8", page.to_json()));
    }
    let bytes = if columns.fit_blocks(&msg) && want.is_held(&found) {
        let part = listing::sizes(targets, &found, &want).await?;
        let token = token(&msg, &part);
        columns_to_msgpack(&uuid(&msg), &token, &part.rows, columns.size)
    } else {
        page(targets, &found, &msg, &columns, &want).await?.to_msgpack()
    };
    Ok(with_type(MSGPACK, bytes))
}

/// The id of the listing: the client's or a new one.
fn uuid(msg: &ListMsg) -> String {
    if msg.uuid.is_empty() { ids::mint("") } else { msg.uuid.clone() }
}

/// The token of the next page. A full page has a token even if nothing follows (§6.6).
fn token<R: Rows>(msg: &ListMsg, part: &Part<R>) -> String {
    let last = part.rows.last_name().filter(|_| part.more || part.rows.count() >= msg.page_size);
    last.unwrap_or_default().to_owned()
}

/// Refuses flags that a listing from a snapshot cannot serve.
fn check_inventory_list(msg: &ListMsg) -> Result<()> {
    let refused = flags::NOT_CACHED | flags::ARCHIVE | flags::DIFF;
    if msg.flags & refused != 0 || !msg.start_after.is_empty() {
        return Err(Error::invalid(
            "invalid list via native bucket inventory: flags or start_after are not supported",
        ));
    }
    Ok(())
}

/// Builds the listing request; refuses a request that contradicts itself or the bucket.
fn want(
    found: &Found,
    msg: &ListMsg,
    columns: &Columns,
    inventory: Option<(Found, String)>,
) -> Result<Want> {
    let bucket = &found.info.bucket;
    let backed = found.info.has_backend();
    if msg.has(flags::NOT_CACHED) && !backed {
        return Err(Error::invalid(format!("\"{bucket}\" has no objects outside the cluster")));
    }
    if !msg.start_after.is_empty() && bucket.is_remote() {
        return Err(Error::invalid(format!("start_after is not possible for \"{bucket}\"")));
    }
    if !msg.target.is_empty() && !found.state.targets().any(|n| n.id.as_str() == msg.target) {
        return Err(Error::new(
            ErrorCode::NodeNotFound,
            format!("target \"{}\" does not exist in this cluster", msg.target),
        ));
    }
    if msg.has(flags::DIFF) && !backed {
        return Err(Error::invalid(format!("\"{bucket}\" has no backend to compare with")));
    }
    Ok(Want {
        diff: msg.has(flags::DIFF),
        whole: None,
        inventory,
        prefix: msg.prefix.clone(),
        after: msg.token.clone().max(msg.start_after.clone()),
        limit: msg.page_size,
        cached_only: msg.has(flags::CACHED),
        one_level: msg.has(flags::NO_RECURSION),
        enter: !msg.shows_folder,
        archive: msg.has(flags::ARCHIVE),
        detail: columns.detail(),
    })
}

async fn page(
    targets: &Targets,
    found: &Found,
    msg: &ListMsg,
    columns: &Columns,
    want: &Want,
) -> Result<Page> {
    let merged = listing::page(targets, found, want).await?;
    let token = token(msg, &merged);
    // Slices and their metadata are not copies.
    let mirrored = !found.info.has_backend() && found.info.erasure.is_none();
    let rows = merged.rows.into_iter();
    let wanted = rows.filter(|r| !(msg.has(flags::NOT_CACHED) && r.target.is_some()));
    Ok(Page {
        uuid: uuid(msg),
        token,
        entries: wanted.map(|row| entry(row, columns, msg, mirrored)).collect(),
        flags: 0,
    })
}

fn entry(row: Row, columns: &Columns, msg: &ListMsg, mirrored: bool) -> Entry {
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

/// Whether a media type is among the accepted ones; wildcards do not count (§1.4).
pub(crate) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    accepted
        .flat_map(|v| v.split(','))
        .any(|media| media.split(';').next().is_some_and(|m| m.trim() == wanted))
}

/// Whether a bucket is an internal bucket of the cluster, which listings hide.
pub(super) fn is_system(bucket: &Bucket) -> bool {
    bucket.namespace.name == "sys"
}

/// The namespaces that a bucket listing covers. Without one it covers all of them.
enum InNamespace {
    Any,
    /// The namespaces of attached clusters.
    AnyRemote,
    /// One cluster's namespace, of this name if it has one.
    One(Namespace),
}

impl InNamespace {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "" | "@#" => Self::Any,
            "@" | "@@#" => Self::AnyRemote,
            text => Self::One(Namespace::parse(text)?),
        })
    }

    fn has(&self, bucket: &Bucket) -> bool {
        let ns = &bucket.namespace;
        match self {
            Self::Any => true,
            Self::AnyRemote => !ns.uuid.is_empty(),
            Self::One(one) => one.uuid == ns.uuid && (one.name.is_empty() || one.name == ns.name),
        }
    }
}

/// The buckets that the cluster knows: of one provider, or of all, and of one namespace if one is
/// given; `name` limits the result to one bucket.
pub(crate) fn buckets(state: &ClusterState, query: &Query, name: &str) -> Result<Response> {
    let provider: Option<Provider> = query.get("provider").map(str::parse).transpose()?;
    let namespace = InNamespace::parse(query.get("namespace").unwrap_or(""))?;
    let mut list: Vec<&Bucket> = state
        .buckets
        .values()
        .map(|info| &info.bucket)
        .filter(|b| provider.is_none_or(|p| p == b.provider))
        .filter(|b| name.is_empty() || *b.name == *name)
        .filter(|b| namespace.has(b))
        .filter(|b| !is_system(b) || query.flag("sys"))
        .collect();
    list.sort();
    Ok(json(&list))
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
    fn a_question_about_buckets_may_be_about_a_namespace() {
        let local = Bucket::from_parts("b", "ais", "").unwrap();
        let named = Bucket::from_parts("b", "ais", "#mine").unwrap();
        let remote = Bucket::from_parts("b", "ais", "@other#").unwrap();
        for (asked, has) in [
            ("", [true, true, true]),
            ("@#", [true, true, true]),
            ("@@#", [false, false, true]),
            ("@other#", [false, false, true]),
            ("@another#", [false, false, false]),
            ("#mine", [false, true, false]),
        ] {
            let namespace = InNamespace::parse(asked).unwrap();
            assert_eq!([&local, &named, &remote].map(|b| namespace.has(b)), has, "{asked}");
        }
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

    #[test]
    fn msgpack_goes_only_to_those_who_name_it() {
        let named = |v: &'static str| {
            let mut h = HeaderMap::new();
            h.insert(header::ACCEPT, v.parse().unwrap());
            accepts(&h, MSGPACK)
        };
        assert!(named("application/msgpack") && named("text/html, application/msgpack;q=1"));
        assert!(!named("*/*") && !named("application/json"));
        assert!(!accepts(&HeaderMap::new(), MSGPACK));
    }
}
