//! Listing of objects and of buckets over v1: decodes the request, lists, and encodes the answer.

mod buckets;
mod entry;

use axum::http::{HeaderMap, header};
use axum::response::Response;
use forebay_core::inventory::home;
use forebay_core::list_columns;
use forebay_core::{Bucket, Error, ErrorCode, Result};
use forebay_node::reply::with_type;
use forebay_v1::inventory::NAME_HEADER;
use forebay_v1::list::{ListMsg, MSGPACK, Page, columns_to_msgpack, flags};
use serde_json::Value;

pub(super) use self::buckets::buckets;
pub(crate) use self::buckets::is_system;
use self::entry::{Columns, entry};
use super::list_stream;
use crate::ids;
use crate::inventory::Inventories;
use crate::list_merge::{Part, Rows};
use crate::listing::{self, Want};
use crate::route::{Found, Route};
use crate::targets::Targets;

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

/// Whether a media type is among the accepted ones; wildcards do not count (§1.4).
fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    accepted
        .flat_map(|v| v.split(','))
        .any(|media| media.split(';').next().is_some_and(|m| m.trim() == wanted))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
