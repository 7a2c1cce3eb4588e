//! Object reads, by Google's crate: it streams, and compares whole objects with their CRC-32C.

use forebay_core::bill::RequestClass;
use forebay_core::error::Result;
use forebay_core::size::ByteRange;
use futures::stream::{self, StreamExt};
use google_cloud_storage::model_ext::ReadRange;

use super::{Facts, Failure, GcsBackend};
use crate::backend::{RemoteObject, content_headers};

pub(super) async fn get(
    backend: &GcsBackend,
    name: &str,
    range: Option<ByteRange>,
    if_version: Option<&str>,
) -> Result<RemoteObject> {
    let mut request = backend.storage(RequestClass::B).read_object(backend.resource(), name);
    if let Some(range) = range {
        request = request.set_read_range(ReadRange::segment(range.start, range.len()));
    }
    if let Some(version) = if_version {
        let generation = version.parse::<i64>().map_err(|_| backend.errors.place.changed(name))?;
        request = request.set_if_generation_match(generation);
    }
    let sent = tokio::time::timeout(backend.client.settings.read_timeout, request.send()).await;
    let body = match sent {
        Ok(Ok(body)) => body,
        Ok(Err(e)) => return Err(backend.explain(Failure::of_crate(&e), name).await),
        Err(_) => return Err(backend.errors.of(&Failure::timeout(), Some(name))),
    };
    let object = body.object();
    let size = u64::try_from(object.size).unwrap_or(0);
    let meta = Facts {
        size,
        generation: object.generation,
        md5: object.checksums.unwrap_or_default().md5_hash.to_vec(),
        content_type: Some(object.content_type),
        headers: content_headers(|name| {
            Some(match name {
                "content-encoding" => object.content_encoding.clone(),
                "content-language" => object.content_language.clone(),
                "content-disposition" => object.content_disposition.clone(),
                // The crate does not tell Cache-Control of an object that it reads.
                _ => return None,
            })
        }),
        custom: object.metadata.into_iter().collect(),
    }
    .meta();
    // The emulator does not know the condition and answers with what it has.
    if if_version.is_some_and(|v| v != meta.version) {
        return Err(backend.errors.place.changed(name));
    }
    let wanted = range.unwrap_or(ByteRange::whole(size));
    let got = ByteRange { start: wanted.start, end: wanted.end.min(size) };
    let (errors, name) = (backend.errors.clone(), name.to_owned());
    let stream = stream::unfold(Some(body), move |body| {
        let (errors, name) = (errors.clone(), name.clone());
        async move {
            let mut body = body?;
            match body.next().await? {
                Ok(chunk) => Some((Ok(chunk), Some(body))),
                Err(e) => Some((Err(errors.of(&Failure::of_crate(&e), Some(&name))), None)),
            }
        }
    });
    Ok(RemoteObject { meta, range: got, stream: stream.boxed() })
}
