//! Form uploads of browsers: the fields identify the sender and the object; the file streams
//! through to the owner of the key, which checks the permission.

use std::sync::{Arc, Mutex};

use axum::body::{Body, BodyDataStream};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use forebay_core::bucket::Tag;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ObjectName};
use forebay_node::clock::unix_s;
use forebay_node::edge::{CrossSiteForm, unsigned_form};
use forebay_node::relay::Relay;
use forebay_node::s3;
use forebay_s3::auth::{Identity, PostPolicy, authenticate_form};
use forebay_s3::form::{FormDecoder, PostForm};
use forebay_s3::{S3Code, S3Error, S3Result, answers, encode, etag};
use futures::{StreamExt, TryStreamExt};

use super::S3;

/// A form being read; returns the bytes of the file.
struct File {
    source: BodyDataStream,
    decoder: Option<FormDecoder>,
    ready: Vec<Bytes>,
    policy: PostPolicy,
    size: u64,
}

impl S3 {
    pub(super) async fn post_object(
        &self,
        parts: &Parts,
        body: Body,
        bucket: &str,
    ) -> S3Result<Response> {
        let found = self.found(bucket)?;
        let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let mut decoder = FormDecoder::new(kind.unwrap_or_default())?;
        let mut source = body.into_data_stream();
        let mut ready = Vec::new();
        while !decoder.file_has_started() {
            match source.next().await {
                Some(Ok(piece)) => decoder.push(piece, &mut ready)?,
                Some(Err(_)) => return Err(S3Code::IncompleteBody.into()),
                None => return decoder.finish().and(Err(S3Code::MalformedPOSTRequest.into())),
            }
        }
        let mut fields = decoder.fields().clone();
        let form = PostForm::read(&mut fields, decoder.file_name())?;
        let (identity, policy) = if self.door.is_open() {
            (Identity::Key("anyone".into()), PostPolicy::default())
        } else {
            authenticate_form(bucket, &fields, &self.door, unix_s())?
        };
        if identity == Identity::Anonymous && parts.extensions.get::<CrossSiteForm>().is_some() {
            return Err(unsigned_form().into());
        }
        let who = self.door.user_of(identity);
        ObjectName::new(&form.key)?;

        let mut headers = form.headers.clone();
        headers.extend(s3::judged_by(&parts.headers));
        if !form.tags.is_empty() {
            s3::set(&mut headers, "x-amz-tagging", &tagging(&form.tags));
        }
        let file = File { source, decoder: Some(decoder), ready, policy, size: 0 };
        let failure = Arc::new(Mutex::new(None));
        let body = Body::from_stream(file.stream(failure.clone()));
        let path = format!("/{bucket}/{}", encode::encode_key(&form.key));
        let put = Relay::request(Method::PUT, &path, headers, body)?;
        let answer = self.ask_owner(&found, &form.key, &who, put).await;
        // The error of the form is more specific than the broken request.
        if let Some(e) = failure.locked().take() {
            return Err(e);
        }
        let answer = answer?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let tag = answer.headers().get(header::ETAG).and_then(|v| v.to_str().ok());
        let bucket_url = encode::object_url(&parts.headers, parts.uri.path());
        let mut response =
            posted(&form, bucket, &bucket_url, etag::unquote(tag.unwrap_or_default()));
        let passed_on = answer.headers().iter().filter(|(name, _)| {
            *name == "x-amz-version-id" || name.as_str().starts_with("x-amz-checksum-")
        });
        response.headers_mut().extend(passed_on.map(|(name, value)| (name.clone(), value.clone())));
        Ok(response)
    }
}

fn tagging(tags: &[Tag]) -> String {
    let value = |text: &str| encode::encode_query(text.as_bytes()).into_owned();
    let pairs: Vec<_> =
        tags.iter().map(|tag| format!("{}={}", value(&tag.key), value(&tag.value))).collect();
    pairs.join("&")
}

/// `bucket_url`: where the form was posted to.
fn posted(form: &PostForm, bucket: &str, bucket_url: &str, tag: &str) -> Response {
    let bucket_url = bucket_url.trim_end_matches('/');
    let location = format!("{bucket_url}/{}", encode::encode_key(&form.key));
    let mut response = match (form.redirect_url(bucket, tag), form.status) {
        (Some(url), _) => {
            let mut response = s3::empty(StatusCode::SEE_OTHER);
            s3::set(response.headers_mut(), "location", &url);
            return response;
        }
        (None, 201) => {
            s3::xml(StatusCode::CREATED, answers::form_posted(&location, bucket, &form.key, tag))
        }
        (None, 200) => s3::empty(StatusCode::OK),
        (None, _) => s3::empty(StatusCode::NO_CONTENT),
    };
    s3::set(response.headers_mut(), "etag", &etag::quote(tag));
    s3::set(response.headers_mut(), "location", &location);
    response
}

impl File {
    /// Streams the file's bytes. An error aborts the request to the owner, so that nothing is
    /// stored.
    fn stream(
        self,
        failure: Arc<Mutex<Option<S3Error>>>,
    ) -> impl futures::Stream<Item = Result<Bytes, Error>> + Send {
        futures::stream::try_unfold(self, |mut me| async move {
            Ok::<_, S3Error>(me.next().await?.map(|pieces| (pieces, me)))
        })
        .map_ok(|pieces| futures::stream::iter(pieces.into_iter().map(Ok::<_, S3Error>)))
        .try_flatten()
        .map_err(move |e: S3Error| {
            let stop = Error::invalid(e.to_string());
            *failure.locked() = Some(e);
            stop
        })
    }

    async fn next(&mut self) -> S3Result<Option<Vec<Bytes>>> {
        loop {
            if !self.ready.is_empty() {
                let pieces = std::mem::take(&mut self.ready);
                self.size += pieces.iter().map(|p| p.len() as u64).sum::<u64>();
                if self.size > self.policy.most() {
                    return Err(S3Code::EntityTooLarge.into());
                }
                return Ok(Some(pieces));
            }
            let Some(decoder) = &mut self.decoder else { return Ok(None) };
            match self.source.next().await {
                Some(Ok(piece)) => decoder.push(piece, &mut self.ready)?,
                Some(Err(_)) => return Err(S3Code::IncompleteBody.into()),
                None => {
                    if let Some(decoder) = self.decoder.take() {
                        decoder.finish()?;
                    }
                    self.policy.check_length(self.size)?;
                }
            }
        }
    }
}
