//! The provider of a bucket: this cluster, a cloud, or plain HTTP.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The provider that stores a bucket.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// This cluster itself (a native bucket, or one with a `backend` property).
    #[default]
    Ais,
    /// Amazon S3 or any server that speaks S3.
    Aws,
    Gcp,
    Azure,
    /// Plain HTTP(S) origins.
    Ht,
}

impl Provider {
    /// The canonical word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ais => "ais",
            Self::Aws => "aws",
            Self::Gcp => "gcp",
            Self::Azure => "azure",
            Self::Ht => "ht",
        }
    }

    /// The scheme of a printed bucket name: `s3` in `s3://bucket`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Ais => "ais",
            Self::Aws => "s3",
            Self::Gcp => "gs",
            Self::Azure => "az",
            Self::Ht => "ht",
        }
    }

    /// Whether the bucket's objects are stored in a cloud and only cached here.
    pub fn is_remote(self) -> bool {
        self != Self::Ais
    }
}

impl FromStr for Provider {
    type Err = Error;

    /// Accepts the canonical word, the scheme, and the aliases that clients send.
    fn from_str(s: &str) -> Result<Self> {
        Ok(match s {
            "" | "ais" | "fb" | "forebay" => Self::Ais,
            "aws" | "s3" => Self::Aws,
            "gcp" | "gs" | "gcs" => Self::Gcp,
            "azure" | "az" => Self::Azure,
            "ht" => Self::Ht,
            _ => {
                return Err(Error::invalid(format!("unknown provider \"{s}\""))
                    .hint("one of ais (fb, forebay), aws (s3), gcp (gs, gcs), azure (az), ht"));
            }
        })
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
