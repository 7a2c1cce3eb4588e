//! Calls that the crate makes by gRPC only, which no emulator supports: stat, delete and list. They
//! use the JSON API.

use std::collections::BTreeMap;

use base64::Engine as _;
use forebay_core::bill::RequestClass;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_node::off_worker;
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Facts, Failure, GcsBackend, object_path};
use crate::bounded::{ReadFailure, read_listing};
use crate::composed::TEMPORARY;
use crate::{RemoteEntry, RemoteMeta, RemotePage, content_headers};

/// Most entries that Google returns per listing call.
const PAGE: usize = 1000;

/// The fields of objects that listings need.
const FIELDS: &str = "items(name,size,generation,md5Hash),nextPageToken";

/// The fields that are requested of one object.
const OBJECT_FIELDS: &str = "size,generation,md5Hash,contentType,contentEncoding,contentLanguage,\
    contentDisposition,cacheControl,metadata";

/// An object as the JSON API describes it; numbers are texts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) size: String,
    pub(super) generation: String,
    pub(super) md5_hash: String,
    pub(super) crc32c: String,
    pub(super) content_type: Option<String>,
    content_encoding: Option<String>,
    content_language: Option<String>,
    content_disposition: Option<String>,
    cache_control: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Listing {
    pub(super) items: Vec<Resource>,
    next_page_token: String,
}

impl Resource {
    /// CRC-32C of the content; `None` if the text is not valid.
    pub(super) fn checksum(&self) -> Option<u32> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(&self.crc32c).ok()?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// `None` if a number is not valid.
    pub(super) fn meta(self) -> Option<RemoteMeta> {
        let md5 = base64::engine::general_purpose::STANDARD.decode(&self.md5_hash).ok()?;
        let (size, generation) = (self.size.parse().ok()?, self.generation.parse().ok()?);
        let headers = content_headers(|name| match name {
            "content-encoding" => self.content_encoding.clone(),
            "content-language" => self.content_language.clone(),
            "content-disposition" => self.content_disposition.clone(),
            _ => self.cache_control.clone(),
        });
        let Self { content_type, metadata: custom, .. } = self;
        Some(Facts { size, generation, md5, content_type, headers, custom }.meta())
    }
}

impl GcsBackend {
    /// Sends a request and reads its JSON, with the usual timeout.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, Failure> {
        Ok(self.sized_json(request).await?.0)
    }

    /// Sends a request and reads its JSON. Also returns its length in bytes.
    async fn sized_json<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<(T, usize), Failure> {
        let whole = async {
            let answer = self.client.send(request).await?;
            let body = read_listing(answer).await.map_err(|error| match error {
                ReadFailure::Broken(e) => Failure::of_http(&e),
                ReadFailure::TooLong => Failure::Nonsense(error.why()),
            })?;
            let parsed = off_worker(body.len(), || serde_json::from_slice::<T>(&body));
            let parsed = parsed.map_err(|e| Failure::Nonsense(format!("unreadable: {e}")))?;
            Ok((parsed, body.len()))
        };
        let limit = self.client.settings.read_timeout;
        tokio::time::timeout(limit, whole).await.unwrap_or_else(|_| Err(Failure::timeout()))
    }

    pub(super) async fn stat_object(&self, name: &str) -> Result<RemoteMeta> {
        let fields = [("fields", OBJECT_FIELDS)];
        let path = object_path(&self.remote, name);
        let request = self.request(RequestClass::B, Method::GET, &path, &fields);
        match self.json::<Resource>(request).await {
            Ok(found) => found.meta().ok_or_else(|| self.nonsense(name)),
            Err(failure) => Err(self.explain(failure, name).await),
        }
    }

    pub(super) async fn delete_object(&self, name: &str) -> Result<()> {
        let path = object_path(&self.remote, name);
        let request = self.request(RequestClass::Free, Method::DELETE, &path, &[]);
        let limit = self.client.settings.read_timeout;
        match tokio::time::timeout(limit, self.client.send(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(self.explain(failure, name).await),
            Err(_) => Err(self.errors.of(&Failure::timeout(), Some(name))),
        }
    }

    /// Entries after `after`. `startOffset` includes its own name, so one more is requested.
    pub(super) async fn list_objects(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<RemotePage> {
        let limit = limit.clamp(1, PAGE);
        let asked = (limit + usize::from(!after.is_empty())).min(PAGE);
        let mut token = String::new();
        loop {
            let listing = self.listing(FIELDS, prefix, after, asked, &token).await?;
            let mut entries = Vec::with_capacity(listing.items.len());
            let shown = |item: &Resource| item.name != after && !item.name.starts_with(TEMPORARY);
            for item in listing.items.into_iter().filter(shown) {
                entries.push(self.entry(item)?);
            }
            let ascending = entries.is_sorted_by(|a, b| a.name < b.name);
            if !ascending || entries.first().is_some_and(|first| first.name.as_str() <= after) {
                return Err(self.errors.place.out_of_order());
            }
            let more = entries.len() > limit || !listing.next_page_token.is_empty();
            entries.truncate(limit);
            // Google may return an empty page that is not the last.
            if !entries.is_empty() || !more {
                return Ok(RemotePage { entries, more, ..RemotePage::default() });
            }
            token = listing.next_page_token;
        }
    }

    /// One listing call, with these fields of each object.
    pub(super) async fn listing(
        &self,
        fields: &str,
        prefix: &str,
        after: &str,
        asked: usize,
        token: &str,
    ) -> Result<Listing> {
        let asked = asked.to_string();
        let all = [
            ("maxResults", asked.as_str()),
            ("fields", fields),
            ("prefix", prefix),
            ("startOffset", after),
            ("pageToken", token),
        ];
        let query: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let path = format!("/storage/v1/b/{}/o", self.remote);
        let request = self.request(RequestClass::A, Method::GET, &path, &query);
        let page = self.sized_json(request).await;
        let (page, bytes) = page.map_err(|failure| self.errors.of(&failure, None))?;
        self.bill.listing_page(bytes);
        Ok(page)
    }

    fn entry(&self, item: Resource) -> Result<RemoteEntry> {
        let name = item.name.clone();
        let Some(meta) = item.meta() else { return Err(self.nonsense(&name)) };
        let RemoteMeta { size, version, etag, mtime_ns, .. } = meta;
        Ok(RemoteEntry { name, size, version, etag, mtime_ns })
    }

    /// Checks the bucket by a listing, which every use of a bucket needs: the right to read a
    /// bucket's properties is not part of the roles that may read and write its objects.
    pub(super) async fn look_at_bucket(&self) -> Result<()> {
        let path = format!("/storage/v1/b/{}/o", self.remote);
        let query = [("maxResults", "1"), ("fields", "nextPageToken")];
        let request = self.request(RequestClass::A, Method::GET, &path, &query);
        let found = self.json::<Listing>(request).await;
        found.map(drop).map_err(|failure| self.errors.of(&failure, None))
    }

    /// Explains the failure of a call for an object. Checks the bucket if the response leaves open
    /// what is missing.
    pub(super) async fn explain(&self, failure: Failure, name: &str) -> Error {
        let error = self.errors.of(&failure, Some(name));
        if error.code == ErrorCode::ObjectNotFound && failure.is_vague() {
            return match self.look_at_bucket().await {
                Err(e) if e.code == ErrorCode::RemoteBucketNotFound => e,
                _ => error,
            };
        }
        error
    }

    pub(super) fn nonsense(&self, name: &str) -> Error {
        let what = Failure::Nonsense("it describes the object unreadably".into());
        self.errors.of(&what, Some(name))
    }
}
