//! The order of the records.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Order of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// By their names.
    #[default]
    Alphanumeric,
    /// In input order: shard by shard, member by member.
    None,
    /// By the MD5 of their names.
    Md5,
    /// By a hash of the seed, the shard and the name: the same order on any cluster.
    Shuffle { seed: u64 },
    /// By the content of the member with this extension (with its dot).
    Content { ext: String, kind: ContentType },
}

/// The type of a key member's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    Int,
    Float,
    String,
}

impl FromStr for ContentType {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "int" => Self::Int,
            "float" => Self::Float,
            "string" => Self::String,
            other => {
                return Err(Error::invalid(format!("invalid content_key_type \"{other}\""))
                    .hint("one of int, float, string"));
            }
        })
    }
}
