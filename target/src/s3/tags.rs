//! Tags of objects.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use forebay_node::s3::{self, ObjectRights};
use forebay_s3::operation::ObjectVersion;
use forebay_s3::{S3Result, answers, bodies};

use super::call::{Call, S3Api};
use super::{meta, read};

pub(super) async fn get(api: &S3Api, call: &Call, version: &ObjectVersion) -> S3Result<Response> {
    let object = read::stat(api, call, &version.version_id).await?;
    Ok(s3::xml(StatusCode::OK, answers::tagging(&meta::tags_of(&object.custom))))
}

pub(super) async fn put(
    api: &S3Api,
    call: &Call,
    body: Body,
    version: &ObjectVersion,
) -> S3Result<Response> {
    let (info, name) =
        read::locate(api, &call.info, call.name.as_str(), &version.version_id).await?;
    let object = api.objects.reads().head(&info, &name).await?;
    let body = s3::read_body(body, s3::MAX_BODY).await?;
    let tags = bodies::tagging(&body, bodies::MAX_OBJECT_TAGS)?;
    let rights = ObjectRights { new_tags: tags.clone(), ..meta::rights(&object.custom) };
    call.check(api, &rights)?;
    read::check_marker(&object)?;
    let pairs = [meta::tags_pair(&tags)].into();
    api.objects.writes().set_custom(&info, &name, pairs, false).await?;
    Ok(s3::empty(StatusCode::OK))
}

pub(super) async fn delete(
    api: &S3Api,
    call: &Call,
    version: &ObjectVersion,
) -> S3Result<Response> {
    read::stat(api, call, &version.version_id).await?;
    let (info, name) =
        read::locate(api, &call.info, call.name.as_str(), &version.version_id).await?;
    let pairs = [meta::tags_pair(&[])].into();
    api.objects.writes().set_custom(&info, &name, pairs, false).await?;
    Ok(s3::empty(StatusCode::NO_CONTENT))
}
