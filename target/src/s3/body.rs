//! Request bodies: decoded, and compared with the checksums of their senders.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};
use forebay_s3::auth::Payload;
use forebay_s3::body_check::BodyVerifier;
use forebay_s3::checksum::{ChecksumAlgorithm, S3Checksum};
use forebay_s3::chunked::Decoder;
use forebay_s3::put_headers::{BodyChecks, decoded_length};
use forebay_s3::{S3Code, S3Error, S3Result};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

/// The result of a body, available while and after it is read. The services below do not know
/// errors of S3: an S3 error of their stream is kept here.
#[derive(Clone, Default)]
pub(super) struct Report(Arc<Mutex<ReportState>>);

#[derive(Default)]
struct ReportState {
    failure: Option<S3Error>,
    checksum: Option<S3Checksum>,
}

impl Report {
    fn state(&self) -> MutexGuard<'_, ReportState> {
        self.0.locked()
    }

    /// Keeps the failure. The returned error stops the service that reads the body.
    pub(super) fn failed(&self, e: S3Error) -> Error {
        let stop = Error::invalid(e.to_string());
        self.state().failure.get_or_insert(e);
        stop
    }

    /// The checksum of the bytes, if all of them arrived.
    pub(super) fn checksum(&self) -> Option<S3Checksum> {
        self.state().checksum.clone()
    }

    /// The result of a service that read the body. A failure kept here has precedence.
    pub(super) fn judge<T>(&self, done: Result<T>) -> S3Result<T> {
        done.map_err(|e| self.state().failure.take().unwrap_or_else(|| e.into()))
    }
}

/// A body, ready to be stored.
pub(super) struct Incoming {
    pub(super) stream: BoxStream<'static, Result<Bytes>>,
    /// Length of the body, if it is known.
    pub(super) len: Option<u64>,
    /// The MD5 that the sender sent.
    pub(super) announced: Option<Checksum>,
    pub(super) report: Report,
}

impl Incoming {
    /// The body of a request, with the checks of its signature and its headers.
    pub(super) fn of_request(
        body: Body,
        payload: Payload,
        headers: &HeaderMap,
        checks: &BodyChecks,
    ) -> S3Result<Self> {
        let exact = axum::body::HttpBody::size_hint(&body).exact();
        // The store computes the MD5, because it becomes the ETag.
        let others = BodyChecks { md5: None, ..checks.clone() };
        let verifier = BodyVerifier::new(others, &payload, false, None);
        let (decoder, len) = match payload {
            Payload::Unsigned | Payload::Sha256(_) => (None, exact),
            Payload::Chunked(framing) => {
                let len = decoded_length(headers)?;
                (Some(Decoder::new(framing, len)), len)
            }
        };
        let source = body.into_data_stream().map_err(|_| S3Error::from(S3Code::IncompleteBody));
        let report = Report::default();
        let reader = Reader {
            source: source.boxed(),
            decoder,
            verifier: Some(verifier),
            ready: VecDeque::new(),
            report: report.clone(),
        };
        let announced =
            checks.md5.map(|md5| Checksum { kind: ChecksumKind::Md5, value: hex::encode(md5) });
        Ok(Self { stream: reader.stream(), len, announced, report })
    }

    /// Bytes of this cluster, whose checksum is to be computed.
    pub(super) fn of_stream(
        stream: BoxStream<'static, Result<Bytes>>,
        len: u64,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Self {
        let report = Report::default();
        let none = BodyChecks::default();
        let reader = Reader {
            source: stream.map_err(S3Error::from).boxed(),
            decoder: None,
            verifier: Some(BodyVerifier::new(none, &Payload::Unsigned, false, algorithm)),
            ready: VecDeque::new(),
            report: report.clone(),
        };
        Self { stream: reader.stream(), len: Some(len), announced: None, report }
    }
}

struct Reader {
    source: BoxStream<'static, S3Result<Bytes>>,
    decoder: Option<Decoder>,
    verifier: Option<BodyVerifier>,
    ready: VecDeque<Bytes>,
    report: Report,
}

impl Reader {
    fn stream(self) -> BoxStream<'static, Result<Bytes>> {
        let report = self.report.clone();
        futures::stream::try_unfold(self, |mut me| async move {
            Ok(me.next().await?.map(|piece| (piece, me)))
        })
        .map_err(move |e| report.failed(e))
        .boxed()
    }

    async fn next(&mut self) -> S3Result<Option<Bytes>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                if let Some(verifier) = &mut self.verifier {
                    verifier.update(&piece);
                }
                return Ok(Some(piece));
            }
            match self.source.next().await {
                Some(input) => self.take(input?)?,
                None => return self.end().map(|()| None),
            }
        }
    }

    fn take(&mut self, input: Bytes) -> S3Result<()> {
        match &mut self.decoder {
            Some(decoder) => {
                let mut pieces = Vec::new();
                decoder.push(input, &mut pieces)?;
                self.ready.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
            }
            None if input.is_empty() => {}
            None => self.ready.push_back(input),
        }
        Ok(())
    }

    fn end(&mut self) -> S3Result<()> {
        let trailers = match self.decoder.take() {
            Some(decoder) => decoder.finish()?,
            None => Vec::new(),
        };
        if let Some(verifier) = self.verifier.take() {
            self.report.state().checksum = verifier.finish(&trailers)?.checksum;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn read(body: &'static str, payload: Payload, checks: BodyChecks) -> S3Result<String> {
        let body = Body::from(body);
        let incoming = Incoming::of_request(body, payload, &HeaderMap::new(), &checks)?;
        let done = incoming.stream.try_fold(Vec::new(), |mut all, piece| async move {
            all.extend_from_slice(&piece);
            Ok(all)
        });
        let all = incoming.report.judge(done.await)?;
        Ok(String::from_utf8(all).unwrap())
    }

    #[tokio::test]
    async fn bytes_that_are_not_what_was_signed_are_refused() {
        let mut sum = [0; 32];
        let wanted = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        hex::decode_to_slice(wanted, &mut sum).unwrap();
        let read = |body| read(body, Payload::Sha256(sum), BodyChecks::default());
        assert_eq!(read("hello").await.unwrap(), "hello");
        assert_eq!(read("hullo").await.unwrap_err().code, S3Code::XAmzContentSHA256Mismatch);
    }

    #[tokio::test]
    async fn a_checksum_of_other_bytes_is_a_bad_digest() {
        let checksum = S3Checksum::full(ChecksumAlgorithm::Crc32, "NhCmhg==").unwrap();
        let checks = BodyChecks { checksum: Some(checksum), ..BodyChecks::default() };
        assert_eq!(read("hello", Payload::Unsigned, checks.clone()).await.unwrap(), "hello");
        let e = read("hullo", Payload::Unsigned, checks).await.unwrap_err();
        assert_eq!(e.code, S3Code::BadDigest);
    }
}
