//! Settings of a bucket that only S3 has: each is read, written and removed as a whole.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use forebay_core::bucket::{BucketInfo, S3Settings};
use forebay_core::state::Command;
use forebay_node::s3;
use forebay_s3::bucket_policy::BucketPolicy;
use forebay_s3::put_headers::BodyChecks;
use forebay_s3::{Operation, S3Code, S3Error, S3Result, answers, bodies};

use super::delete::check;
use super::{Call, S3, no_content};

/// Whether an operation concerns such a setting and is served.
pub(super) fn serves(operation: &Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::GetBucketVersioning
            | O::PutBucketVersioning
            | O::GetBucketTagging
            | O::PutBucketTagging
            | O::DeleteBucketTagging
            | O::GetBucketCors
            | O::PutBucketCors
            | O::DeleteBucketCors
            | O::GetBucketPolicy
            | O::PutBucketPolicy
            | O::DeleteBucketPolicy
            | O::GetBucketPolicyStatus
            | O::GetBucketAcl
            | O::PutBucketAcl
    )
}

impl S3 {
    pub(super) async fn setting(&self, call: &Call, body: Body) -> S3Result<Response> {
        use Operation as O;
        let found = self.found(&call.request.bucket)?;
        let mut info = BucketInfo::clone(&found.info);
        let xml = |text| Ok(s3::xml(StatusCode::OK, text));
        let now: &S3Settings = &info.s3;
        match &call.request.operation {
            O::GetBucketVersioning => return xml(answers::versioning(now.versioning)),
            O::GetBucketTagging if now.tags.is_empty() => return Err(S3Code::NoSuchTagSet.into()),
            O::GetBucketTagging => return xml(answers::tagging(&now.tags)),
            O::GetBucketCors if now.cors.is_empty() => {
                return Err(S3Code::NoSuchCORSConfiguration.into());
            }
            O::GetBucketCors => return xml(answers::cors(&now.cors)),
            O::GetBucketPolicy => return policy(now),
            O::GetBucketPolicyStatus => return policy_status(now),
            O::GetBucketAcl => return xml(answers::acl(&s3::owner_of(&info), &now.acl)),
            _ => {}
        }
        let checks = BodyChecks::parse(&call.parts.headers)?;
        let body = s3::read_body(body, s3::MAX_BODY).await?;
        check(&checks, &body)?;
        let answer = match &call.request.operation {
            O::PutBucketTagging | O::PutBucketPolicy | O::DeleteBucketPolicy => no_content(),
            O::DeleteBucketTagging | O::DeleteBucketCors => no_content(),
            _ => s3::empty(StatusCode::OK),
        };
        let settings = &mut info.s3;
        match &call.request.operation {
            O::PutBucketVersioning if info.backend.is_some() => {
                return Err(S3Error::not_implemented("versioning of a bucket with a backend"));
            }
            O::PutBucketVersioning => settings.versioning = bodies::versioning(&body)?,
            O::PutBucketTagging => settings.tags = bodies::tagging(&body, bodies::MAX_BUCKET_TAGS)?,
            O::DeleteBucketTagging => settings.tags.clear(),
            O::PutBucketCors => settings.cors = bodies::cors(&body)?,
            O::DeleteBucketCors => settings.cors.clear(),
            O::PutBucketPolicy => settings.policy = Some(read_policy(&body)?),
            O::DeleteBucketPolicy => settings.policy = None,
            O::PutBucketAcl => {
                let owner = s3::owner_of(&found.info).id;
                settings.acl = self.door.acl_of_request(&call.parts.headers, &body, &owner)?;
            }
            other => return Err(S3Error::not_implemented(other.name())),
        }
        info.validate()?;
        self.changes.commit(Command::SetBucket { info: Box::new(info) }).await?;
        Ok(answer)
    }
}

fn policy(settings: &S3Settings) -> S3Result<Response> {
    let Some(policy) = &settings.policy else { return Err(S3Code::NoSuchBucketPolicy.into()) };
    let mut response = Response::new(Body::from(policy.clone()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

fn policy_status(settings: &S3Settings) -> S3Result<Response> {
    let Some(policy) = &settings.policy else { return Err(S3Code::NoSuchBucketPolicy.into()) };
    let public = BucketPolicy::parse(policy)?.is_public();
    Ok(s3::xml(StatusCode::OK, answers::policy_status(public)))
}

/// Parses a policy; a policy that is not fully understood is not stored.
fn read_policy(body: &[u8]) -> S3Result<String> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    BucketPolicy::parse(text)?;
    Ok(text.to_owned())
}
