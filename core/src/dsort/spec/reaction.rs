//! The reaction of a dsort job to problems of its input.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The reaction to a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    Ignore,
    /// Continue, with a warning.
    Warn,
    Abort,
}

impl FromStr for Reaction {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "ignore" => Self::Ignore,
            "warn" => Self::Warn,
            "abort" => Self::Abort,
            other => {
                return Err(Error::invalid(format!("unknown reaction \"{other}\""))
                    .hint("one of ignore, warn, abort"));
            }
        })
    }
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignore => "ignore",
            Self::Warn => "warn",
            Self::Abort => "abort",
        })
    }
}

impl Reaction {
    /// Records a problem, or ends the job with it.
    pub fn to(self, warnings: &mut Vec<String>, problem: impl FnOnce() -> Error) -> Result<()> {
        /// Maximum number of warnings that are kept.
        const WARNINGS: usize = 32;
        match self {
            Self::Abort => return Err(problem()),
            Self::Warn if warnings.len() < WARNINGS => warnings.push(problem().message),
            Self::Warn | Self::Ignore => {}
        }
        Ok(())
    }
}

/// The reactions of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reactions {
    /// Two members of one name in one input shard; the first counts.
    pub duplicated_records: Reaction,
    /// A name of the input without an object.
    pub missing_shards: Reaction,
    /// A line of a key map that is not a key and a template.
    pub ekm_malformed_line: Reaction,
    /// A record that the key map does not contain; it is left out.
    pub ekm_missing_key: Reaction,
}

impl Default for Reactions {
    /// By default only missing input is skipped without a warning.
    fn default() -> Self {
        Self {
            duplicated_records: Reaction::Abort,
            missing_shards: Reaction::Ignore,
            ekm_malformed_line: Reaction::Abort,
            ekm_missing_key: Reaction::Abort,
        }
    }
}
