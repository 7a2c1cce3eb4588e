//! Whether a registered URL was checked against the rule for destinations.

use serde::{Deserialize, Serialize};

/// Whether a registered URL was checked against the rule for destinations when it was registered. A
/// version without the rule writes nothing, so its URLs are read as accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointTrust {
    /// Registered before there was a rule: it keeps working, except at link-local addresses.
    #[default]
    Accepted,
    /// The rule applies to it.
    Judged,
}

impl EndpointTrust {
    pub fn is_accepted(&self) -> bool {
        *self == Self::Accepted
    }
}
