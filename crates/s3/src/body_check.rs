//! Checks the bytes of a body against all announced hashes, in one pass.

use md5::Digest as _;

use super::auth::Payload;
use super::checksum::{ChecksumAlgorithm, ChecksumHasher, S3Checksum};
use super::chunked::Trailers;
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::put_headers::BodyChecks;

/// The computed properties of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyFacts {
    /// MD5, if announced or wanted; the ETag of an object that is put whole.
    pub md5: Option<[u8; 16]>,
    /// The announced checksum, or the wanted one.
    pub checksum: Option<S3Checksum>,
    /// Bytes.
    pub size: u64,
}

/// Computes the hashes that a body needs while it passes. Computes only required hashes, each once.
pub struct BodyVerifier {
    checks: BodyChecks,
    sha256: Option<[u8; 32]>,
    md5: Option<md5::Md5>,
    hasher: Option<ChecksumHasher>,
    payload_hasher: Option<sha2::Sha256>,
    size: u64,
}

impl BodyVerifier {
    /// A verifier for the announced `checks` and `payload`. `want_md5`: the caller needs the MD5,
    /// for example for an ETag. `want`: the algorithm whose value is stored if the client sends
    /// none.
    pub fn new(
        checks: BodyChecks,
        payload: &Payload,
        want_md5: bool,
        want: Option<ChecksumAlgorithm>,
    ) -> Self {
        let sha256 = match payload {
            Payload::Sha256(hash) => Some(*hash),
            Payload::Unsigned | Payload::Chunked(_) => None,
        };
        let algorithm = checks.algorithm().or(want);
        Self {
            md5: (want_md5 || checks.md5.is_some()).then(md5::Md5::new),
            hasher: algorithm.map(ChecksumAlgorithm::hasher),
            payload_hasher: sha256.map(|_| sha2::Sha256::new()),
            checks,
            sha256,
            size: 0,
        }
    }

    /// Adds the next bytes of the object.
    pub fn update(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        if let Some(hasher) = &mut self.payload_hasher {
            hasher.update(bytes);
        }
    }

    /// Compares the hashes after all bytes have passed. `trailers` are those of an `aws-chunked`
    /// body.
    pub fn finish(self, trailers: &Trailers) -> S3Result<BodyFacts> {
        if let (Some(hasher), Some(wanted)) = (self.payload_hasher, self.sha256) {
            let computed: [u8; 32] = hasher.finalize().into();
            if computed != wanted {
                return Err(S3Error::from(S3Code::XAmzContentSHA256Mismatch)
                    .detail("ClientComputedContentSHA256", hex::encode(wanted))
                    .detail("S3ComputedContentSHA256", hex::encode(computed)));
            }
        }
        let md5: Option<[u8; 16]> = self.md5.map(|m| m.finalize().into());
        if self.checks.md5.is_some() && self.checks.md5 != md5 {
            return Err(S3Code::BadDigest.into());
        }
        let checksum = self.hasher.map(ChecksumHasher::finish);
        let announced = match (self.checks.trailer, self.checks.checksum) {
            (Some(algorithm), _) => {
                let value = trailers.iter().find(|(name, _)| name == algorithm.header());
                let (_, value) = value.ok_or_else(|| {
                    S3Error::new(
                        S3Code::MalformedTrailerError,
                        format!("the trailer {} is missing", algorithm.header()),
                    )
                })?;
                Some(S3Checksum::full(algorithm, value)?)
            }
            (None, announced) => announced,
        };
        if let (Some(wanted), Some(computed)) = (announced, &checksum) {
            computed.expect(&wanted)?;
        }
        Ok(BodyFacts { md5, checksum, size: self.size })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderMap;
    use sha2::Sha256;

    use super::*;

    fn checks(pairs: &[(&'static str, &str)]) -> BodyChecks {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        BodyChecks::parse(&headers).unwrap()
    }

    fn verify(checks: BodyChecks, payload: &Payload, trailers: &Trailers) -> S3Result<BodyFacts> {
        let mut verifier = BodyVerifier::new(checks, payload, false, None);
        verifier.update(b"hel");
        verifier.update(b"lo");
        verifier.finish(trailers)
    }

    fn code(checks: BodyChecks, trailers: &Trailers) -> S3Code {
        verify(checks, &Payload::Unsigned, trailers).unwrap_err().code
    }

    #[test]
    fn bytes_that_are_what_was_said_of_them_pass() {
        let said = checks(&[
            ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
            ("x-amz-checksum-crc32", "NhCmhg=="),
        ]);
        let payload = Payload::Sha256(Sha256::digest(b"hello").into());
        let facts = verify(said, &payload, &Vec::new()).unwrap();
        assert_eq!(hex::encode(facts.md5.unwrap()), "5d41402abc4b2a76b9719d911017c592");
        assert_eq!((facts.checksum.unwrap().value.as_str(), facts.size), ("NhCmhg==", 5));
        let said = checks(&[("x-amz-trailer", "x-amz-checksum-crc32")]);
        let trailers = vec![("x-amz-checksum-crc32".to_owned(), "NhCmhg==".to_owned())];
        assert!(verify(said, &Payload::Unsigned, &trailers).is_ok());
        let nothing = verify(BodyChecks::default(), &Payload::Unsigned, &Vec::new()).unwrap();
        assert_eq!(nothing, BodyFacts { size: 5, ..BodyFacts::default() });
    }

    #[test]
    fn bytes_that_are_not_fail_by_what_does_not_match() {
        let none = Vec::new();
        let md5 = checks(&[("content-md5", "rL0Y20xC+Fzt72VPzMSk2A==")]);
        assert_eq!(code(md5, &none), S3Code::BadDigest);
        let crc = checks(&[("x-amz-checksum-crc32", "AAAAAA==")]);
        assert_eq!(code(crc, &none), S3Code::BadDigest);
        let trailer = || checks(&[("x-amz-trailer", "x-amz-checksum-crc32")]);
        assert_eq!(code(trailer(), &none), S3Code::MalformedTrailerError);
        let wrong = vec![("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned())];
        assert_eq!(code(trailer(), &wrong), S3Code::BadDigest);
        let e = verify(BodyChecks::default(), &Payload::Sha256([7; 32]), &none).unwrap_err();
        assert_eq!(e.code, S3Code::XAmzContentSHA256Mismatch);
    }
}
