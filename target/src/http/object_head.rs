//! HEAD of an object: its properties as headers.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use forebay_core::date::format_http;
use forebay_core::object::ObjectMeta;
use forebay_core::request::Caller;
use forebay_core::{Error, Result};
use forebay_node::identity::Identity;
use forebay_v1::headers as v1;
use forebay_v1::object::Presence;

use super::object_request::ObjectRequest;
use crate::object::ObjectService;

/// Names that a selective HEAD may ask for.
const HEAD_PROPS: [&str; 12] = [
    "name",
    "size",
    "version",
    "checksum",
    "atime",
    "copies",
    "ec",
    "custom",
    "location",
    "chunked",
    "last-modified",
    "etag",
];

pub(super) async fn head(
    objects: &ObjectService,
    identity: &Identity,
    request: ObjectRequest,
) -> Result<Response> {
    let props: Option<Vec<&str>> =
        request.query.get("props").map(|p| p.split(',').map(str::trim).collect());
    if let Some(unknown) =
        props.iter().flatten().find(|p| !p.is_empty() && !HEAD_PROPS.contains(*p))
    {
        return Err(Error::invalid(format!("invalid property \"{unknown}\" of an object"))
            .hint(HEAD_PROPS.join(", ")));
    }
    let (meta, tells_props) = look(objects, &request).await?;
    let mut response = Response::new(Body::empty());
    if !tells_props {
        return Ok(response);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(meta.size));
    v1::set(headers, v1::PRESENT, if meta.present { "true" } else { "false" });
    write_props(headers, identity, &request, &meta, props.as_deref());
    Ok(response)
}

/// The metadata of the object, and whether its properties are requested.
async fn look(objects: &ObjectService, request: &ObjectRequest) -> Result<(ObjectMeta, bool)> {
    let (info, name) = (&request.info, request.name.as_str());
    let presence = Presence::parse(&request.query)?;
    let meta = if request.caller() == Caller::Node || presence.here && info.has_backend() {
        objects.reads().head_local(info, name).await?
    } else if presence.outside {
        objects.reads().head_outside(info, name).await?
    } else if request.query.flag("latest-ver") && info.has_backend() {
        objects.reads().head_latest(info, name).await?
    } else {
        objects.reads().head(info, name).await?
    };
    Ok((meta, presence.props))
}

/// The requested headers; all of them for a legacy HEAD (no `props`).
fn write_props(
    headers: &mut HeaderMap,
    identity: &Identity,
    request: &ObjectRequest,
    meta: &ObjectMeta,
    props: Option<&[&str]>,
) {
    let wants = |prop: &str| props.is_none_or(|list| list.contains(&prop));
    let mut all = HeaderMap::new();
    v1::put_object_meta(&mut all, meta);
    let groups: [(&str, &[&str]); 3] = [
        ("checksum", &[v1::CHECKSUM_TYPE, v1::CHECKSUM_VALUE]),
        ("version", &[v1::VERSION]),
        ("atime", &[v1::ATIME]),
    ];
    for (prop, names) in groups {
        for name in names.iter().filter(|_| wants(prop)) {
            if let Some(value) = all.get(*name).and_then(|v| v.to_str().ok()) {
                v1::set(headers, name, value);
            }
        }
    }
    if wants("custom") {
        v1::put_custom(headers, meta);
    }
    if wants("location") {
        v1::set(headers, v1::LOCATION, &format!("{}:mp[]", identity.label()));
    }
    if wants("copies") {
        v1::set(headers, v1::MIRROR_COPIES, "1");
    }
    if let Some(erasure) = request.info.erasure.filter(|_| wants("ec")) {
        v1::set(headers, v1::EC_GENERATION, &meta.mtime_ns.to_string());
        v1::set(headers, v1::EC_DATA, &erasure.data.to_string());
        v1::set(headers, v1::EC_PARITY, &erasure.parity.to_string());
        v1::set(headers, v1::EC_REPLICATED, &erasure.copies(meta.size).to_string());
    }
    if wants("chunked") && !meta.parts.is_empty() {
        v1::set(headers, v1::CHUNKS_COUNT, &meta.parts.count().to_string());
        v1::set(headers, v1::CHUNKS_MAX_SIZE, &meta.parts.largest().to_string());
    }
    if wants("last-modified") {
        v1::set(headers, "last-modified", &format_http(meta.mtime_ns));
    }
    if wants("etag")
        && let Some(etag) = v1::etag(meta)
    {
        v1::set(headers, "etag", &format!("\"{etag}\""));
    }
    if props.is_none() {
        v1::set(headers, v1::NAME, request.name.as_str());
        v1::set(headers, v1::BUCKET_NAME, &request.info.bucket.name);
        v1::set(headers, v1::BUCKET_PROVIDER, request.info.bucket.provider.as_str());
    }
}
