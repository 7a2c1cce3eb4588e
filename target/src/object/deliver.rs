//! Remote puts: writes an object at its owner, by a request to that target or, if that is this one,
//! here.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::{Error, ErrorCode, Result, placement};
use forebay_v1::query::object_uri;
use futures::StreamExt;
use http::HeaderMap;

use super::{ObjectService, PutRequest};

/// Timeout from the last byte to the owner's response: the owner may have to write to a backend.
const WRITTEN_WITHIN: Duration = Duration::from_secs(300);
/// Path of the target-to-target API for objects.
pub(crate) const PATH: &str = "/internal/v1/objects";
/// Custom metadata of the object: JSON in base64, because keys may be any text.
const CUSTOM: &str = "forebay-custom";
/// Present if an existing object is to stay.
const KEEP: &str = "forebay-keep-existing";
/// On the response: an object existed and stayed.
pub(crate) const KEPT: &str = "forebay-kept";

/// An object to write at its owner.
pub(crate) struct Delivery {
    pub(crate) body: BodyStream,
    /// Size in bytes, if known: more or fewer bytes are an error.
    pub(crate) len: Option<u64>,
    /// Replaces the object's custom metadata.
    pub(crate) custom: BTreeMap<String, String>,
    /// An existing object of that name stays.
    pub(crate) keep_existing: bool,
}

/// The head of a remote put.
pub(crate) struct Label {
    pub(crate) custom: BTreeMap<String, String>,
    pub(crate) keep_existing: bool,
}

impl Label {
    pub(crate) fn headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        if !self.custom.is_empty() {
            let json = serde_json::to_vec(&self.custom)
                .map_err(|e| Error::internal(format!("metadata cannot be sent: {e}")))?;
            let value = BASE64_STANDARD.encode(json).parse();
            let value = value.map_err(|_| Error::internal("metadata cannot stand in a header"))?;
            headers.insert(CUSTOM, value);
        }
        if self.keep_existing {
            headers.insert(KEEP, 1.into());
        }
        Ok(headers)
    }

    pub(crate) fn read(headers: &HeaderMap) -> Result<Self> {
        let custom = match headers.get(CUSTOM) {
            None => BTreeMap::new(),
            Some(value) => {
                let bad = || Error::invalid(format!("{CUSTOM} cannot be read"));
                let json = BASE64_STANDARD.decode(value).map_err(|_| bad())?;
                serde_json::from_slice(&json).map_err(|_| bad())?
            }
        };
        Ok(Self { custom, keep_existing: headers.contains_key(KEEP) })
    }
}

impl ObjectService {
    /// Writes an object at its owner. Returns the written bytes; `None` if one existed and stayed.
    pub(crate) async fn deliver(
        &self,
        info: &BucketInfo,
        name: &str,
        delivery: Delivery,
    ) -> Result<Option<u64>> {
        let state = self.state();
        let owner = placement::owner(&state, info, name)?;
        if owner.id == *self.me() {
            return self.accept(info, name, delivery).await;
        }
        let Delivery { body, len, custom, keep_existing } = delivery;
        let peer = self.0.peer.with_idle_timeout(WRITTEN_WITHIN);
        if keep_existing && peer.head_object(&owner.url, &info.bucket, name).await.is_ok() {
            return Ok(None);
        }
        let headers = Label { custom, keep_existing }.headers()?;
        let path = object_uri(&info.bucket, name).replacen("/v1/objects", PATH, 1);
        let sent = peer.put_stream(&owner.url, &path, headers, body, len).await;
        let (sent, answer) = sent.map_err(|e| elsewhere(info, name, e.into()))?;
        Ok((!answer.contains_key(KEPT)).then_some(sent))
    }

    /// Writes an object that another target sent.
    pub(crate) async fn accept(
        &self,
        info: &BucketInfo,
        name: &str,
        mut delivery: Delivery,
    ) -> Result<Option<u64>> {
        if delivery.keep_existing && self.exists(info, name).await? {
            // A sender that is cut off would not receive the response.
            while delivery.body.next().await.transpose()?.is_some() {}
            return Ok(None);
        }
        let put = PutRequest {
            len: delivery.len,
            custom: Some(delivery.custom),
            ..PutRequest::new(delivery.body)
        };
        Ok(self.writes().put(info, name, put).await?.map(|meta| meta.size))
    }

    async fn exists(&self, info: &BucketInfo, name: &str) -> Result<bool> {
        match self.reads().head(info, name).await {
            Ok(_) => Ok(true),
            Err(e) if e.code == ErrorCode::ObjectNotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes an object at its owner, and at its backend.
    pub(crate) async fn remove_at_owner(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let state = self.state();
        let owner = placement::owner(&state, info, name)?;
        if owner.id == *self.me() {
            return self.writes().delete(info, name).await;
        }
        let path = object_uri(&info.bucket, name).replacen("/v1/objects", PATH, 1);
        let removed = self.0.peer.delete(&owner.url, &path).await;
        removed.map_err(|e| elsewhere(info, name, e.into()))
    }
}

/// Another target's error, for a client that cannot route by the map: it may retry.
fn elsewhere(info: &BucketInfo, name: &str, error: Error) -> Error {
    if error.code != ErrorCode::WrongOwner {
        return error;
    }
    let uri = info.bucket.object_uri(name);
    Error::unavailable(format!("{uri} changes its owner: {}", error.message)).retry_after(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn any_metadata_survives_the_way() {
        let custom = [("k", "v, w=1"), ("\u{1}content-type", "text/plain"), ("ü", "\n")];
        let custom: BTreeMap<_, _> =
            custom.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let label = Label { custom: custom.clone(), keep_existing: true };
        let read = Label::read(&label.headers().unwrap()).unwrap();
        assert_eq!(read.custom, custom);
        assert!(read.keep_existing);
        let none = Label { custom: BTreeMap::new(), keep_existing: false };
        assert!(none.headers().unwrap().is_empty());
        let bad = HeaderMap::from_iter([(CUSTOM.parse().unwrap(), "no json".parse().unwrap())]);
        assert!(Label::read(&bad).is_err());
    }
}
