//! Access control lists of objects.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use forebay_node::s3::{self, ObjectRights};
use forebay_s3::S3Result;
use forebay_s3::answers::{self, Owner};
use forebay_s3::operation::ObjectVersion;

use super::call::{Call, S3Api};
use super::{meta, read};

pub(super) async fn get(api: &S3Api, call: &Call, version: &ObjectVersion) -> S3Result<Response> {
    let object = read::stat(api, call, &version.version_id).await?;
    let rights = meta::rights(&object.custom);
    let text = answers::acl(&owner(call, &rights), &rights.acl);
    Ok(s3::xml(StatusCode::OK, text))
}

pub(super) async fn put(
    api: &S3Api,
    call: &Call,
    body: Body,
    version: &ObjectVersion,
) -> S3Result<Response> {
    let object = read::stat(api, call, &version.version_id).await?;
    let (info, name) =
        read::locate(api, &call.info, call.name.as_str(), &version.version_id).await?;
    let body = s3::read_body(body, s3::MAX_BODY).await?;
    let owner = owner(call, &meta::rights(&object.custom)).id;
    let acl = api.door.acl_of_request(&call.parts.headers, &body, &owner)?;
    api.objects.writes().set_custom(&info, &name, [meta::acl_pair(&acl)].into(), false).await?;
    Ok(s3::empty(StatusCode::OK))
}

/// The owner of the object.
fn owner(call: &Call, rights: &ObjectRights) -> Owner {
    rights.owner.as_deref().map_or_else(|| s3::owner_of(&call.info), Owner::user)
}
