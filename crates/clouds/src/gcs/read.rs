//! Object reads by the JSON API: a stream of bytes. Whole objects are compared with their CRC-32C.
//! Google's crate would do the same, but it does not return Cache-Control, and collects error
//! responses without a bound (docs/decisions/0006-google-cloud-storage.md).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::bill::RequestClass;
use forebay_core::error::Result;
use forebay_core::size::ByteRange;
use futures::stream::{self, StreamExt};
use http::HeaderMap;
use reqwest::{Method, Response};

use super::{Facts, Failure, GcsBackend, object_path};
use crate::source::content_range;
use crate::{BodyStream, RemoteObject, content_headers};

/// Cache-Control of objects without one, as Google returns it: with public access, without it, and
/// in the JSON API.
const DEFAULT_CACHE_CONTROL: [&str; 3] = [
    "public, max-age=3600",
    "private, max-age=0",
    "no-cache, no-store, max-age=0, must-revalidate",
];

pub(super) async fn get(
    backend: &GcsBackend,
    name: &str,
    range: Option<ByteRange>,
    if_version: Option<&str>,
) -> Result<RemoteObject> {
    let mut query = vec![("alt", "media")];
    if let Some(version) = if_version {
        version.parse::<i64>().map_err(|_| backend.errors.place.changed(name))?;
        query.push(("ifGenerationMatch", version));
    }
    let path = object_path(&backend.remote, name);
    let mut request = backend.request(RequestClass::B, Method::GET, &path, &query);
    // Without this Google decompresses objects that were stored with the encoding gzip.
    request = request.header("accept-encoding", "gzip");
    if let Some(ByteRange { start, end }) = range {
        request = request.header("range", format!("bytes={start}-{}", end.saturating_sub(1)));
    }
    let limit = backend.client.settings.read_timeout;
    let answer = match tokio::time::timeout(limit, backend.client.send(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(failure)) => return Err(backend.explain(failure, name).await),
        Err(_) => return Err(backend.errors.of(&Failure::timeout(), Some(name))),
    };
    let Some(head) = Head::of(&answer) else { return Err(backend.nonsense(name)) };
    let meta = head.facts.meta();
    // The emulator ignores the condition and returns its current object.
    if if_version.is_some_and(|v| v != meta.version) {
        return Err(backend.errors.place.changed(name));
    }
    let wanted = range.unwrap_or(ByteRange::whole(meta.size));
    let got = ByteRange { start: wanted.start, end: wanted.end.min(meta.size) };
    if head.sent != got {
        return Err(backend.errors.place.nonsense("with other bytes than asked", name));
    }
    let body = Body {
        answer,
        left: got.len(),
        sum: head
            .crc32c
            .filter(|_| range.is_none())
            .map(|sum| (sum, Digest::new(CrcAlgorithm::Crc32Iscsi))),
    };
    Ok(RemoteObject { meta, range: got, stream: body.stream(backend, name) })
}

/// The fields of a response's headers.
struct Head {
    facts: Facts,
    /// The byte range that follows.
    sent: ByteRange,
    /// Of the whole object.
    crc32c: Option<u32>,
}

impl Head {
    /// `None` if size or version is missing or not valid.
    fn of(answer: &Response) -> Option<Self> {
        let headers = answer.headers();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let (sent, size) = match answer.status().as_u16() {
            206 => content_range(text("content-range")?)?,
            _ => {
                let length = number("content-length").or(number("x-goog-stored-content-length"))?;
                (ByteRange::whole(length), length)
            }
        };
        let stored = text("x-goog-stored-content-encoding");
        let facts = Facts {
            size,
            generation: text("x-goog-generation")?.parse().ok()?,
            md5: hash(headers, "md5").unwrap_or_default(),
            content_type: text("content-type").map(str::to_owned),
            headers: content_headers(|name| {
                let value = match name {
                    "content-encoding" => stored.or(text(name)),
                    "cache-control" => text(name).filter(|v| !DEFAULT_CACHE_CONTROL.contains(v)),
                    _ => text(name),
                };
                value.map(str::to_owned)
            }),
            custom: headers
                .iter()
                .filter_map(|(name, value)| {
                    let key = name.as_str().strip_prefix("x-goog-meta-")?;
                    Some((key.to_owned(), value.to_str().ok()?.to_owned()))
                })
                .collect(),
        };
        let crc32c = hash(headers, "crc32c").and_then(|bytes| bytes.try_into().ok());
        Some(Self { facts, sent, crc32c: crc32c.map(u32::from_be_bytes) })
    }
}

/// A checksum among those of `x-goog-hash: crc32c=…,md5=…`, which may be several headers.
fn hash(headers: &HeaderMap, kind: &str) -> Option<Vec<u8>> {
    let all = headers.get_all("x-goog-hash").iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(','));
    let value = pairs.find_map(|pair| pair.trim().strip_prefix(kind)?.strip_prefix('='))?;
    BASE64.decode(value).ok()
}

/// A body that is as long as announced, and has its checksum, or fails.
struct Body {
    answer: Response,
    left: u64,
    /// The expected checksum, and that of the bytes so far.
    sum: Option<(u32, Digest)>,
}

impl Body {
    fn stream(self, backend: &GcsBackend, name: &str) -> BodyStream {
        let (errors, name) = (backend.errors.clone(), name.to_owned());
        stream::unfold(Some(self), move |body| {
            let (errors, name) = (errors.clone(), name.clone());
            async move {
                let mut body = body?;
                match body.next().await {
                    Ok(None) => None,
                    Ok(Some(chunk)) => Some((Ok(chunk), Some(body))),
                    Err(failure) => Some((Err(errors.of(&failure, Some(&name))), None)),
                }
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<bytes::Bytes>, Failure> {
        let Some(chunk) = self.answer.chunk().await.map_err(|e| Failure::of_http(&e))? else {
            return match self.left {
                0 => self.check().map(|()| None),
                left => Err(Failure::Unreachable(format!("{left} bytes were missing"))),
            };
        };
        self.left = self
            .left
            .checked_sub(chunk.len() as u64)
            .ok_or_else(|| Failure::Nonsense("it sent more bytes than it announced".into()))?;
        if let Some((_, digest)) = &mut self.sum {
            digest.update(&chunk);
        }
        Ok(Some(chunk))
    }

    fn check(&self) -> Result<(), Failure> {
        match &self.sum {
            Some((right, digest)) if digest.finalize() as u32 != *right => {
                let found = digest.finalize() as u32;
                Err(Failure::Damaged(format!("its CRC-32C is {found:08x}, not {right:08x}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn checksums_stand_in_one_header_or_in_several() {
        let headers = |values: &[&'static str]| {
            let name = || http::HeaderName::from_static("x-goog-hash");
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(name(), value.parse().unwrap());
            }
            headers
        };
        let one = headers(&["crc32c=PBj01g==,md5=d63R1fQSI9VYL8pzalyzNQ=="]);
        let two = headers(&["crc32c=PBj01g==", "md5=d63R1fQSI9VYL8pzalyzNQ=="]);
        for headers in [one, two] {
            assert_eq!(hash(&headers, "crc32c").unwrap(), [0x3c, 0x18, 0xf4, 0xd6]);
            assert_eq!(hash(&headers, "md5").unwrap().len(), 16);
        }
        assert_eq!(hash(&HeaderMap::new(), "md5"), None);
    }
}
