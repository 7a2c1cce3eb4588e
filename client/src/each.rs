//! Reads that batches do not serve: the output of a transform, and an object only if it is still
//! the one that was listed.

use bytes::Bytes;
use http::{HeaderMap, Method};

use forebay_core::etl::EtlCall;
use forebay_core::object::ObjectMeta;
use forebay_core::url::{encode_path, encode_query};
use forebay_core::{Bucket, Error as CoreError, ErrorCode};
use forebay_v1::list::ListMsg;

use crate::client::{Client, ControlCall, ObjectCall, Route};
use crate::error::{Error, Result};

/// Identifies one content of an object. An empty property is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Its bytes.
    pub size: u64,
    /// Its version, as v1 reports it.
    pub version: String,
    /// The value of its checksum.
    pub checksum: String,
}

/// A row of a listing with the identity of the listed content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedEntry {
    /// The object's name.
    pub name: String,
    /// Its content at the time of the listing.
    pub pin: Pin,
}

impl Pin {
    /// Whether `meta` may describe the same content; unknown properties are ignored.
    fn fits(&self, meta: &ObjectMeta) -> bool {
        let fits = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        let checksum = meta.checksum.as_ref().map_or("", |c| c.value.as_str());
        self.size == meta.size
            // A cloud with versioning lists ETags and returns version ids on reads.
            && (fits(&self.version, &meta.version) || self.version == meta.etag)
            && fits(&self.checksum, checksum)
    }
}

impl Pin {
    /// Fails if an answer describes another content.
    pub(crate) fn check(&self, meta: &ObjectMeta, bucket: &Bucket, name: &str) -> Result<()> {
        if self.fits(meta) {
            return Ok(());
        }
        let text = format!("{} changed since it was listed or opened", bucket.object_uri(name));
        let changed = CoreError::new(ErrorCode::ObjectChanged, text);
        Err(Error::Api(changed.hint("list it, or open it, anew")))
    }
}

impl Client {
    /// Reads the output of a transform for an object into memory.
    pub async fn get_transformed(
        &self,
        bucket: &Bucket,
        name: &str,
        transform: &EtlCall,
    ) -> Result<Bytes> {
        let mut query = format!("&etl_name={}", encode_query(&transform.name));
        if !transform.args.is_empty() {
            query.push_str(&format!("&etl_args={}", encode_query(&transform.args)));
        }
        let mut tries = self.attempts();
        loop {
            let call = ObjectCall {
                method: Method::GET,
                bucket,
                name,
                route: Route::Object,
                caller_driven: false,
                query: &query,
                headers: HeaderMap::new(),
                body: None,
            };
            let (answer, _) = self.ask_owner(&call, &mut tries).await?;
            // The output of a transform has no identity, so a broken answer starts again from its
            // first byte.
            match answer.into_body().collect().await {
                Ok(bytes) => return Ok(bytes),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    /// Reads an object into memory if it still is the pinned content; otherwise the error is
    /// [`ErrorCode::ObjectChanged`].
    pub async fn get_pinned(&self, bucket: &Bucket, name: &str, pin: &Pin) -> Result<Bytes> {
        let reply = self.get(bucket, name, None).await?;
        pin.check(&reply.meta, bucket, name)?;
        reply.bytes().await
    }

    /// Lists all objects that start with `prefix`, in name order, each with the identity of its
    /// content.
    pub async fn list_pinned(&self, bucket: &Bucket, prefix: &str) -> Result<Vec<PinnedEntry>> {
        let mut all = Vec::new();
        let mut wanted = ListMsg {
            prefix: prefix.to_owned(),
            props: "name,size,version,checksum".to_owned(),
            ..ListMsg::default()
        };
        loop {
            let page = self.list_page(bucket, &wanted).await?;
            all.extend(page.entries.into_iter().map(|e| PinnedEntry {
                name: e.name,
                pin: Pin { size: e.size, version: e.version, checksum: e.checksum },
            }));
            if page.token.is_empty() {
                return Ok(all);
            }
            wanted.token = page.token;
        }
    }

    /// Fails where the cluster knows no transform of this name.
    pub async fn check_etl(&self, name: &str) -> Result<()> {
        let path = format!("/v1/etl/{}", encode_path(name).replace('/', "%2F"));
        let call =
            ControlCall { method: Method::GET, path: &path, body: None, accept: None, node: None };
        self.ask_gateway(call).await.map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::checksum::{Checksum, ChecksumKind};

    use super::*;

    #[test]
    fn a_pin_fits_what_has_its_size_and_all_that_both_tell() {
        let pin = Pin { size: 3, version: "2".into(), checksum: "abc".into() };
        let checksum = |value: &str| Checksum { kind: ChecksumKind::Md5, value: value.into() };
        let meta = ObjectMeta { size: 3, version: "2".into(), ..ObjectMeta::default() };
        assert!(pin.fits(&meta), "a cold object has no checksum yet");
        assert!(pin.fits(&ObjectMeta { checksum: Some(checksum("abc")), ..meta.clone() }));
        assert!(!pin.fits(&ObjectMeta { checksum: Some(checksum("abd")), ..meta.clone() }));
        assert!(!pin.fits(&ObjectMeta { version: "3".into(), ..meta.clone() }));
        assert!(!pin.fits(&ObjectMeta { size: 4, ..meta }));
    }
}
