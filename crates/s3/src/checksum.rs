//! Checksums of S3: CRC-32, CRC-32C, CRC-64/NVME, SHA-1 and SHA-256 of objects and of their parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// An algorithm, as `x-amz-checksum-algorithm` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumAlgorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl ChecksumAlgorithm {
    pub const ALL: [Self; 5] =
        [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The word in headers and elements of XML: `CRC32C`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The element of XML that holds a value: `ChecksumCRC32C`.
    pub fn element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
        }
    }

    /// The header or trailer that holds a value: `x-amz-checksum-crc32c`.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The algorithm of a word, in any case.
    pub fn parse(word: &str) -> S3Result<Self> {
        Self::ALL.into_iter().find(|a| a.as_str().eq_ignore_ascii_case(word)).ok_or_else(|| {
            S3Error::new(
                S3Code::InvalidRequest,
                "Checksum algorithm provided is unsupported. Please try again with any of the \
                 valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
            )
        })
    }

    /// The algorithm whose value a header or trailer of this lower-case name holds.
    pub fn of_header(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.header() == name)
    }

    /// Bytes of a value before base64 encoding.
    pub fn length(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The default type for a multipart upload.
    pub fn default_type(self) -> ChecksumType {
        match self {
            Self::Crc64Nvme => ChecksumType::FullObject,
            _ => ChecksumType::Composite,
        }
    }

    /// Whether a multipart upload may have this type.
    pub fn allows(self, kind: ChecksumType) -> bool {
        match self {
            Self::Crc32 | Self::Crc32c => true,
            Self::Crc64Nvme => kind == ChecksumType::FullObject,
            Self::Sha1 | Self::Sha256 => kind == ChecksumType::Composite,
        }
    }

    /// Starts computing it.
    pub fn hasher(self) -> ChecksumHasher {
        use crc_fast::{CrcAlgorithm, Digest};
        ChecksumHasher {
            algorithm: self,
            state: match self {
                Self::Crc32 => State::Crc(Digest::new(CrcAlgorithm::Crc32IsoHdlc)),
                Self::Crc32c => State::Crc(Digest::new(CrcAlgorithm::Crc32Iscsi)),
                Self::Crc64Nvme => State::Crc(Digest::new(CrcAlgorithm::Crc64Nvme)),
                Self::Sha1 => State::Sha1(sha1::Digest::new()),
                Self::Sha256 => State::Sha256(sha2::Digest::new()),
            },
        }
    }
}

/// Whether a checksum is of an object's bytes or of the checksums of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChecksumType {
    FullObject,
    Composite,
}

impl ChecksumType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }

    pub fn parse(word: &str) -> S3Result<Self> {
        [Self::FullObject, Self::Composite]
            .into_iter()
            .find(|t| t.as_str().eq_ignore_ascii_case(word))
            .ok_or_else(|| {
                S3Error::new(
                    S3Code::InvalidRequest,
                    "Value for x-amz-checksum-type header is invalid.",
                )
            })
    }
}

/// A checksum with its wire value: base64, followed by `-PARTS` if composite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Checksum {
    pub algorithm: ChecksumAlgorithm,
    #[serde(rename = "type")]
    pub kind: ChecksumType,
    pub value: String,
}

impl S3Checksum {
    /// A checksum of whole content as announced by a client; checks its form.
    pub fn full(algorithm: ChecksumAlgorithm, value: &str) -> S3Result<Self> {
        decode(algorithm, value)?;
        Ok(Self { algorithm, kind: ChecksumType::FullObject, value: value.to_owned() })
    }

    /// Compares with the announced checksum; `BadDigest` if they differ.
    pub fn expect(&self, wanted: &Self) -> S3Result<()> {
        if self.algorithm == wanted.algorithm && self.value == wanted.value {
            return Ok(());
        }
        Err(mismatch(wanted.algorithm))
    }

    /// The checksum of a completed upload from those of its parts, each with its size in bytes, in
    /// order. `None` if a part has none of this algorithm.
    pub fn of_parts<'a>(
        algorithm: ChecksumAlgorithm,
        kind: ChecksumType,
        parts: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Option<Self> {
        let mut joined = algorithm.hasher();
        let mut whole: Option<u64> = None;
        let mut count = 0usize;
        for (value, size) in parts {
            let raw = decode(algorithm, value).ok()?;
            joined.update(&raw);
            count += 1;
            if kind == ChecksumType::FullObject {
                let crc = raw.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
                let polynomial = algorithm.crc()?;
                whole = Some(match whole {
                    None => crc,
                    Some(before) => crc_fast::checksum_combine(polynomial, before, crc, size),
                });
            }
        }
        let value = match kind {
            ChecksumType::Composite => format!("{}-{count}", joined.finish().value),
            ChecksumType::FullObject => {
                BASE64.encode(&whole?.to_be_bytes()[8 - algorithm.length()..])
            }
        };
        Some(Self { algorithm, kind, value })
    }
}

impl ChecksumAlgorithm {
    fn crc(self) -> Option<crc_fast::CrcAlgorithm> {
        Some(match self {
            Self::Crc32 => crc_fast::CrcAlgorithm::Crc32IsoHdlc,
            Self::Crc32c => crc_fast::CrcAlgorithm::Crc32Iscsi,
            Self::Crc64Nvme => crc_fast::CrcAlgorithm::Crc64Nvme,
            Self::Sha1 | Self::Sha256 => return None,
        })
    }
}

/// The error for bytes that do not match their checksum.
pub fn mismatch(algorithm: ChecksumAlgorithm) -> S3Error {
    S3Error::new(
        S3Code::BadDigest,
        format!("The {} you specified did not match the calculated checksum.", algorithm.as_str()),
    )
}

fn decode(algorithm: ChecksumAlgorithm, value: &str) -> S3Result<Vec<u8>> {
    match BASE64.decode(value) {
        Ok(raw) if raw.len() == algorithm.length() => Ok(raw),
        // An impossible value is treated like a wrong one.
        _ => Err(S3Error::new(
            S3Code::BadDigest,
            format!("Value for {} header is invalid.", algorithm.header()),
        )),
    }
}

enum State {
    Crc(crc_fast::Digest),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

/// A checksum being computed.
pub struct ChecksumHasher {
    algorithm: ChecksumAlgorithm,
    state: State,
}

impl ChecksumHasher {
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Crc(d) => d.update(bytes),
            State::Sha1(d) => sha1::Digest::update(d, bytes),
            State::Sha256(d) => sha2::Digest::update(d, bytes),
        }
    }

    /// The checksum of all bytes so far.
    pub fn finish(self) -> S3Checksum {
        let value = match self.state {
            State::Crc(d) => {
                BASE64.encode(&d.finalize().to_be_bytes()[8 - self.algorithm.length()..])
            }
            State::Sha1(d) => BASE64.encode(sha1::Digest::finalize(d)),
            State::Sha256(d) => BASE64.encode(sha2::Digest::finalize(d)),
        };
        S3Checksum { algorithm: self.algorithm, kind: ChecksumType::FullObject, value }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
        let mut h = algorithm.hasher();
        h.update(bytes);
        h.finish().value
    }

    #[test]
    fn values_are_those_of_the_published_check_strings() {
        for (algorithm, wanted) in [
            (ChecksumAlgorithm::Crc32, "cbf43926"),
            (ChecksumAlgorithm::Crc32c, "e3069283"),
            (ChecksumAlgorithm::Crc64Nvme, "ae8b14860a799888"),
            (ChecksumAlgorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        ] {
            let raw = BASE64.decode(of(algorithm, b"123456789")).unwrap();
            assert_eq!(hex::encode(raw), wanted, "{algorithm:?}");
        }
        let empty = of(ChecksumAlgorithm::Sha256, b"");
        assert_eq!(empty, "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn values_of_a_wrong_form_are_refused() {
        for bad in ["", "AAAA", "!", "AAAAAAAA", "AAAAAA"] {
            assert!(S3Checksum::full(ChecksumAlgorithm::Crc32, bad).is_err(), "{bad}");
        }
        assert!(S3Checksum::full(ChecksumAlgorithm::Crc32, "AAAAAA==").is_ok());
        assert_eq!(ChecksumAlgorithm::parse("crc32c").unwrap(), ChecksumAlgorithm::Crc32c);
        assert!(ChecksumAlgorithm::parse("MD4").is_err());
    }

    proptest! {
        #[test]
        fn a_full_checksum_of_parts_is_that_of_the_bytes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..5),
        ) {
            for algorithm in
                [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Crc64Nvme]
            {
                let each: Vec<_> =
                    parts.iter().map(|p| (of(algorithm, p), p.len() as u64)).collect();
                let whole = S3Checksum::of_parts(
                    algorithm,
                    ChecksumType::FullObject,
                    each.iter().map(|(v, n)| (v.as_str(), *n)),
                );
                prop_assert_eq!(whole.unwrap().value, of(algorithm, &parts.concat()));
            }
        }

        #[test]
        fn a_composite_checksum_is_of_the_parts_checksums(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..4),
        ) {
            let algorithm = ChecksumAlgorithm::Sha256;
            let each: Vec<_> = parts.iter().map(|p| of(algorithm, p)).collect();
            let raw: Vec<u8> = each.iter().flat_map(|v| BASE64.decode(v).unwrap()).collect();
            let whole = S3Checksum::of_parts(
                algorithm,
                ChecksumType::Composite,
                each.iter().map(|v| (v.as_str(), 1)),
            ).unwrap();
            prop_assert_eq!(whole.value, format!("{}-{}", of(algorithm, &raw), parts.len()));
        }
    }
}
