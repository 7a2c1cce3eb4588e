//! Checksums of whole objects as AIStore v1 and S3 name them, computed while bytes stream by.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorCode, Result};

/// Kinds of whole-object checksum. `xxhash` and `xxhash2` are both XXH64 with seed 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumKind {
    None,
    Xxhash,
    #[default]
    Xxhash2,
    Md5,
    Crc32c,
    Sha256,
    Sha512,
}

impl ChecksumKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Xxhash => "xxhash",
            Self::Xxhash2 => "xxhash2",
            Self::Md5 => "md5",
            Self::Crc32c => "crc32c",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Starts computing this kind.
    pub fn hasher(self) -> Hasher {
        let state = match self {
            Self::None => State::None,
            Self::Xxhash | Self::Xxhash2 => State::Xx(Box::new(xxhash_rust::xxh64::Xxh64::new(0))),
            Self::Md5 => State::Md5(md5::Digest::new()),
            Self::Crc32c => {
                State::Crc32c(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
            }
            Self::Sha256 => State::Sha256(sha2::Digest::new()),
            Self::Sha512 => State::Sha512(Box::new(sha2::Digest::new())),
        };
        Hasher { kind: self, state }
    }
}

impl FromStr for ChecksumKind {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Ok(match s {
            "" | "none" => Self::None,
            "xxhash" => Self::Xxhash,
            "xxhash2" => Self::Xxhash2,
            "md5" => Self::Md5,
            "crc32c" => Self::Crc32c,
            "sha256" => Self::Sha256,
            "sha512" => Self::Sha512,
            _ => {
                return Err(Error::invalid(format!("unknown checksum type \"{s}\""))
                    .hint("none, xxhash, xxhash2, md5, crc32c, sha256 or sha512"));
            }
        })
    }
}

/// A computed or announced checksum: its kind and lower-case hexadecimal value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    pub kind: ChecksumKind,
    pub value: String,
}

impl Checksum {
    /// Compares a computed checksum with the announced one; the error names the object.
    pub fn expect(&self, wanted: &Checksum, context: &str) -> Result<()> {
        if self.value.eq_ignore_ascii_case(&wanted.value) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::ChecksumMismatch,
            format!(
                "BAD DATA CHECKSUM: {}({} != {}) (context: {context})",
                self.kind.as_str(),
                self.value,
                wanted.value
            ),
        ))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.kind.as_str(), self.value)
    }
}

#[derive(Clone)]
enum State {
    None,
    Xx(Box<xxhash_rust::xxh64::Xxh64>),
    Md5(md5::Md5),
    Crc32c(crc_fast::Digest),
    Sha256(sha2::Sha256),
    Sha512(Box<sha2::Sha512>),
}

/// A checksum being computed.
#[derive(Clone)]
pub struct Hasher {
    kind: ChecksumKind,
    state: State,
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::None => {}
            State::Xx(h) => h.update(bytes),
            State::Md5(h) => md5::Digest::update(h, bytes),
            State::Crc32c(h) => h.update(bytes),
            State::Sha256(h) => sha2::Digest::update(h, bytes),
            State::Sha512(h) => sha2::Digest::update(h.as_mut(), bytes),
        }
    }

    /// The checksum of all bytes seen; `None` for kind `none`.
    pub fn finish(self) -> Option<Checksum> {
        let value = match self.state {
            State::None => return None,
            State::Xx(h) => format!("{:016x}", h.digest()),
            State::Md5(h) => hex::encode(md5::Digest::finalize(h)),
            State::Crc32c(h) => format!("{:08x}", h.finalize()),
            State::Sha256(h) => hex::encode(sha2::Digest::finalize(h)),
            State::Sha512(h) => hex::encode(sha2::Digest::finalize(*h)),
        };
        Some(Checksum { kind: self.kind, value })
    }
}

/// CRC-32C (Castagnoli) of one buffer: block checksums on disk and entries of batch streams.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(kind: ChecksumKind, bytes: &[u8]) -> String {
        let mut h = kind.hasher();
        bytes.chunks(2).for_each(|c| h.update(c));
        h.finish().unwrap().value
    }

    #[test]
    fn known_values() {
        assert_eq!(of(ChecksumKind::Xxhash2, b"hello"), "26c7827d889f6da3");
        assert_eq!(of(ChecksumKind::Xxhash2, b""), "ef46db3751d8e999");
        assert_eq!(of(ChecksumKind::Md5, b"hello"), "5d41402abc4b2a76b9719d911017c592");
        assert_eq!(of(ChecksumKind::Crc32c, b"123456789"), "e3069283");
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert!(of(ChecksumKind::Sha256, b"").starts_with("e3b0c44298fc1c14"));
    }

    #[test]
    fn mismatch_names_both_values_and_the_object() {
        let got = Checksum { kind: ChecksumKind::Md5, value: "aa".into() };
        let want = Checksum { kind: ChecksumKind::Md5, value: "bb".into() };
        let e = got.expect(&want, "ais://b/o").unwrap_err();
        assert_eq!(e.message, "BAD DATA CHECKSUM: md5(aa != bb) (context: ais://b/o)");
        assert_eq!(e.code.status(), 400);
    }
}
