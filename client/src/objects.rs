//! Objects: GET, PUT, HEAD, DELETE, each sent directly to the owner.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, LAST_MODIFIED};
use http::{HeaderMap, Method};

use forebay_core::checksum::Checksum;
use forebay_core::date::parse_http_ns;
use forebay_core::object::ObjectMeta;
use forebay_core::size::RangeSpec;
use forebay_core::url::encode_query;
use forebay_core::{Bucket, ErrorCode};
use forebay_v1::headers;

use crate::body::Body;
use crate::client::{Client, ObjectCall, Route};
use crate::download::{GetReply, Identity, is_long};
use crate::error::{Error, Result};

pub(crate) const HEAD_PROPS: &str = "&props=checksum,atime,version,custom,last-modified,etag";

impl Client {
    /// Starts reading an object, or a range of it.
    ///
    /// The stream resumes by itself after a broken connection; if the object changed meanwhile, the
    /// stream ends with [`ErrorCode::ObjectChanged`].
    pub async fn get(
        &self,
        bucket: &Bucket,
        name: &str,
        range: Option<RangeSpec>,
    ) -> Result<GetReply> {
        self.get_part(bucket, name, (String::new(), is_long(range)), range).await
    }

    /// Reads an object, or a range of it, into memory.
    pub async fn get_bytes(
        &self,
        bucket: &Bucket,
        name: &str,
        range: Option<RangeSpec>,
    ) -> Result<Bytes> {
        self.get(bucket, name, range).await?.bytes().await
    }

    /// Like [`Self::get`], for a caller that receives the whole stream at once, by
    /// [`GetReply::read_over`] or [`crate::ObjectStream::read_into`]: no other task moves the
    /// bytes.
    pub async fn read(
        &self,
        bucket: &Bucket,
        name: &str,
        range: Option<RangeSpec>,
    ) -> Result<GetReply> {
        self.get_part(bucket, name, (String::new(), true), range).await
    }

    /// Writes an object: all of it or, on any failure, nothing.
    ///
    /// A checksum is verified by the target before the object becomes visible.
    pub async fn put(
        &self,
        bucket: &Bucket,
        name: &str,
        body: impl Into<Body>,
        checksum: Option<&Checksum>,
    ) -> Result<ObjectMeta> {
        let body = body.into();
        let mut wanted = HeaderMap::new();
        if let Some(checksum) = checksum {
            headers::set(&mut wanted, headers::CHECKSUM_TYPE, checksum.kind.as_str());
            headers::set(&mut wanted, headers::CHECKSUM_VALUE, &checksum.value);
        }
        let call = ObjectCall {
            method: Method::PUT,
            bucket,
            name,
            route: Route::Object,
            caller_driven: false,
            query: "",
            headers: wanted,
            body: Some(&body),
        };
        let (answer, sent) = self.ask_owner(&call, &mut self.attempts()).await?;
        let (parts, rest) = answer.into_parts();
        rest.collect().await?;
        let mut meta = headers::object_meta(&parts.headers, body.len().unwrap_or(sent));
        if meta.checksum.is_none() {
            // The same content was there already: such an answer carries no properties.
            meta.checksum = checksum.cloned();
        }
        Ok(meta)
    }

    /// Returns the properties of an object, without its bytes.
    pub async fn head(&self, bucket: &Bucket, name: &str) -> Result<ObjectMeta> {
        let call = ObjectCall {
            method: Method::HEAD,
            bucket,
            name,
            route: Route::Object,
            caller_driven: false,
            query: HEAD_PROPS,
            headers: HeaderMap::new(),
            body: None,
        };
        let (answer, _) = self.ask_owner(&call, &mut self.attempts()).await?;
        Ok(head_meta(answer.headers()))
    }

    /// Removes an object. If it does not exist, the error is [`ErrorCode::ObjectNotFound`].
    pub async fn delete(&self, bucket: &Bucket, name: &str) -> Result<()> {
        let call = ObjectCall {
            method: Method::DELETE,
            bucket,
            name,
            route: Route::Object,
            caller_driven: false,
            query: "",
            headers: HeaderMap::new(),
            body: None,
        };
        let mut tries = self.attempts();
        match self.ask_owner(&call, &mut tries).await {
            Ok((answer, _)) => answer.into_body().collect().await.map(drop),
            // A try whose answer was lost had removed it.
            Err(Error::Api(e)) if tries.ambiguous && e.code == ErrorCode::ObjectNotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Copies an object inside the cluster, also into a bucket of another cloud; an object of the
    /// new name is replaced as a whole.
    pub async fn copy(&self, from: (&Bucket, &str), to: (&Bucket, &str)) -> Result<()> {
        // This registers a cloud bucket that is not known yet.
        self.map_with(to.0).await?;
        let query = format!("&object_to={}", encode_query(&format!("{}{}", to.0.uname(), to.1)));
        let call = ObjectCall {
            method: Method::PUT,
            bucket: from.0,
            name: from.1,
            route: Route::Object,
            caller_driven: false,
            query: &query,
            headers: HeaderMap::new(),
            body: None,
        };
        let (answer, _) = self.ask_owner(&call, &mut self.attempts()).await?;
        answer.into_body().collect().await.map(drop)
    }

    /// A GET with additional query parameters, which are repeated on resume; see [`Self::open`].
    pub(crate) async fn get_part(
        &self,
        bucket: &Bucket,
        name: &str,
        (query, caller_driven): (String, bool),
        range: Option<RangeSpec>,
    ) -> Result<GetReply> {
        let opened =
            self.open(bucket, name, (&query, caller_driven), range, &mut self.attempts()).await?;
        Ok(opened.resumable(self.clone(), bucket.clone(), name.to_owned(), query))
    }

    /// Opens one answer to a GET with additional query parameters; `caller_driven`: the reader
    /// drives the connection itself.
    pub(crate) async fn open(
        &self,
        bucket: &Bucket,
        name: &str,
        (query, caller_driven): (&str, bool),
        range: Option<RangeSpec>,
        tries: &mut crate::retry::Attempts,
    ) -> Result<crate::download::Opened> {
        let call = ObjectCall {
            method: Method::GET,
            bucket,
            name,
            route: Route::Object,
            caller_driven,
            query,
            headers: range_header(range),
            body: None,
        };
        let (answer, _) = self.ask_owner(&call, tries).await?;
        Identity::open(answer, range)
    }
}

/// Parses an object's properties from the head of an answer to HEAD.
pub(crate) fn head_meta(answer: &HeaderMap) -> ObjectMeta {
    let text = |name| answer.get(name).and_then(|v: &http::HeaderValue| v.to_str().ok());
    let size = text(CONTENT_LENGTH).and_then(|v| v.parse().ok()).unwrap_or(0);
    let mut meta = headers::object_meta(answer, size);
    meta.mtime_ns = text(LAST_MODIFIED).and_then(parse_http_ns).unwrap_or(0);
    meta
}

/// The `Range` header for this range.
pub(crate) fn range_header(range: Option<RangeSpec>) -> HeaderMap {
    let mut map = HeaderMap::new();
    if let Some(range) = range {
        let value = match range {
            RangeSpec::From(first, Some(last)) => format!("bytes={first}-{last}"),
            RangeSpec::From(first, None) => format!("bytes={first}-"),
            RangeSpec::Suffix(n) => format!("bytes=-{n}"),
        };
        headers::set(&mut map, "range", &value);
    }
    map
}

#[cfg(test)]
mod tests;
