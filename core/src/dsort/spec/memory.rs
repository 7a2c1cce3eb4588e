//! The memory limit of a dsort job.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::size::ByteSize;

/// A memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Percent of the node's memory.
    Percent(u8),
    Bytes(u64),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Percent(80)
    }
}

impl FromStr for Memory {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!("invalid amount of memory \"{text}\""))
                .hint("a percentage or bytes: 80%, 4GiB")
        };
        let text = text.trim();
        let parsed = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().map_err(|_| bad())?;
                (1..=100).contains(&percent).then_some(Self::Percent(percent))
            }
            None => ByteSize::parse(text).ok().filter(|s| s.0 > 0).map(|s| Self::Bytes(s.0)),
        };
        parsed.ok_or_else(bad)
    }
}

impl Memory {
    /// The limit in bytes for a node with `total` bytes.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => total / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes.min(total),
        }
    }
}
