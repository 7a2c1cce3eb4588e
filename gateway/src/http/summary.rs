//! Bucket summary and info (§5.5): "accepted" first, numbers on the next request.
//!
//! The id that the client gets encodes the request, so any gateway can continue and keeps no state.
//! The numbers are computed on request.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_core::access as rights;
use forebay_core::list_page::{Detail, MAX_PAGE_ENTRIES};
use forebay_core::{Error, Provider, Result};
use forebay_node::reply::json;
use forebay_routes::{Grant, On};
use forebay_v1::action::lower_keys;
use forebay_v1::headers as v1;
use forebay_v1::query::Query;
use serde_json::{Value, json};

use super::list;
use crate::bucket_props;
use crate::ids;
use crate::listing::{self, Want};
use crate::route::{Found, Route};
use crate::targets::Targets;

/// The scope of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scope {
    prefix: String,
    /// Whether objects that only the backend has count too.
    remote: bool,
}

impl Scope {
    /// Encodes the scope as an id.
    fn to_id(&self) -> String {
        let prefix: String = self.prefix.bytes().map(|b| format!("{b:02x}")).collect();
        format!("{}-{}-{prefix}", ids::mint("sum-"), if self.remote { "r" } else { "c" })
    }

    fn from_id(id: &str) -> Result<Self> {
        let unknown = || forebay_v1::jobs::unknown_job(id);
        let mut parts = id.strip_prefix("sum-").ok_or_else(unknown)?.splitn(3, '-');
        let (Some(_), Some(kind), Some(hex)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(unknown());
        };
        let bytes: Option<Vec<u8>> = (0..hex.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok())
            .collect();
        let prefix = bytes.and_then(|b| String::from_utf8(b).ok()).ok_or_else(unknown)?;
        Ok(Self { prefix, remote: kind == "r" })
    }
}

/// `GET` with `summary-bck`.
pub(crate) async fn summary(targets: &Targets, found: &Found, value: &Value) -> Result<Response> {
    let (uuid, scope) = asked(value)?;
    if uuid.is_empty() {
        return Ok((StatusCode::ACCEPTED, scope.to_id()).into_response());
    }
    let numbers = count(targets, found, &Scope::from_id(&uuid)?).await?;
    Ok(json(&[numbers]))
}

/// `GET` with `summary-bck` and no bucket: all buckets that the cluster knows, or those of one
/// provider.
pub(crate) async fn all(
    route: &Route,
    targets: &Targets,
    query: &Query,
    value: &Value,
    grant: Grant<'_>,
) -> Result<Response> {
    let provider: Option<Provider> = query.get("provider").map(str::parse).transpose()?;
    let (uuid, scope) = asked(value)?;
    if uuid.is_empty() {
        return Ok((StatusCode::ACCEPTED, scope.to_id()).into_response());
    }
    let scope = Scope::from_id(&uuid)?;
    let state = route.state();
    let mut summaries = Vec::new();
    for info in state.buckets.values() {
        let bucket = &info.bucket;
        if list::is_system(bucket) || provider.is_some_and(|p| p != bucket.provider) {
            continue;
        }
        if !grant.has(On::Selected, rights::Scope::Prefix(bucket, &scope.prefix)) {
            continue;
        }
        let found = Found { state: state.clone(), info: info.clone() };
        summaries.push(count(targets, &found, &scope).await?);
    }
    Ok(json(&summaries))
}

/// The prefix of the objects that a summary counts.
pub(crate) fn prefix_of(value: &Value) -> Result<String> {
    let (uuid, scope) = asked(value)?;
    Ok(if uuid.is_empty() { scope.prefix } else { Scope::from_id(&uuid)?.prefix })
}

/// The same for [`info`].
pub(crate) fn prefix_of_info(prefix: &str, query: &Query) -> Result<String> {
    match query.get("uuid") {
        None => Ok(prefix.to_owned()),
        Some(id) => Ok(Scope::from_id(id)?.prefix),
    }
}

/// The id of a continued request, or the scope of a new one.
fn asked(value: &Value) -> Result<(String, Scope)> {
    let value = lower_keys(value.clone());
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(Error::invalid(format!("summary: \"{key}\" is not a string: {other}"))),
    };
    let cached = value.get("cached").and_then(Value::as_bool).unwrap_or(false);
    Ok((text("uuid")?, Scope { prefix: text("prefix")?, remote: !cached }))
}

/// `HEAD` with `bsumm_remote`.
pub(crate) async fn info(
    targets: &Targets,
    found: &Found,
    prefix: &str,
    query: &Query,
) -> Result<Response> {
    let mut response = Response::default();
    let props = bucket_props::shown(&found.info).to_string();
    match query.get("uuid") {
        None => {
            let scope = Scope { prefix: prefix.to_owned(), remote: query.flag("bsumm_remote") };
            *response.status_mut() = StatusCode::ACCEPTED;
            v1::set(response.headers_mut(), v1::XACTION_ID, &scope.to_id());
        }
        Some(id) => {
            let numbers = count(targets, found, &Scope::from_id(id)?).await?;
            v1::set(response.headers_mut(), v1::BUCKET_SUMM, &numbers.to_string());
        }
    }
    v1::set(response.headers_mut(), v1::BUCKET_PROPS, &props);
    Ok(response)
}

#[derive(Default)]
struct Count {
    objects: u64,
    bytes: u64,
}

async fn count(targets: &Targets, found: &Found, scope: &Scope) -> Result<Value> {
    let (mut present, mut remote) = (Count::default(), Count::default());
    let (mut smallest, mut largest) = (u64::MAX, 0);
    let mut want = Want {
        prefix: scope.prefix.clone(),
        limit: MAX_PAGE_ENTRIES,
        cached_only: !scope.remote,
        detail: Detail::Size,
        ..Want::default()
    };
    loop {
        let page = listing::page(targets, found, &want).await?;
        for row in &page.rows {
            // An object of which only some ranges are cached does not count as present.
            if row.target.is_some() && listing::is_in_part(&row.entry) {
                continue;
            }
            let size = row.entry.meta.size;
            let count = if row.target.is_some() { &mut present } else { &mut remote };
            count.objects += 1;
            count.bytes += size;
            (smallest, largest) = (smallest.min(size), largest.max(size));
        }
        match page.rows.last() {
            Some(last) if page.more => want.after.clone_from(&last.entry.name),
            None if page.more => return Err(Error::internal("the listing does not move on")),
            _ => break,
        }
    }
    let objects = present.objects + remote.objects;
    let average = (present.bytes + remote.bytes).checked_div(objects).unwrap_or(0);
    let bucket = &found.info.bucket;
    Ok(json!({
        "name": bucket.name, "provider": bucket.provider, "namespace": bucket.namespace,
        "ObjCount": {"obj_count_present": present.objects.to_string(),
            "obj_count_remote": remote.objects.to_string()},
        "ObjSize": {"obj_min_size": if objects == 0 { 0 } else { smallest },
            "obj_avg_size": average, "obj_max_size": largest},
        "TotalSize": {"size_on_disk": present.bytes.to_string(),
            "size_all_present_objs": present.bytes.to_string(),
            "size_all_remote_objs": remote.bytes.to_string(), "total_disks_size": "0"},
        "used_pct": 0, "is_present": true,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_id_holds_what_was_asked_for_and_is_a_valid_job_id() {
        for prefix in ["", "a/b", "ünï"] {
            let scope = Scope { prefix: prefix.into(), remote: true };
            let id = scope.to_id();
            assert_eq!(Scope::from_id(&id).unwrap(), scope);
            assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{id}");
        }
        for bad in ["", "x", "sum-abc", "sum-a-r-zz", "sum-a-r-a", "sum-a-r-é"] {
            assert_eq!(Scope::from_id(bad).unwrap_err().code.status(), 404, "{bad}");
        }
    }
}
