//! The name of an object.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorCode, Result};

/// Maximum bytes of an object name, on every front.
pub const MAX_OBJECT_NAME: usize = 1024;

/// Name of an object: any UTF-8 of 1 to 1,024 bytes without NUL. It is a key, never a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Arc<str>);

// Written by hand, since a batch has up to a million: it copies nothing.
impl Serialize for ObjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ObjectName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = ObjectName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an object")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ObjectName, E> {
                ObjectName::new(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl ObjectName {
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        let problem = if name.is_empty() {
            "it is empty".to_owned()
        } else if name.len() > MAX_OBJECT_NAME {
            format!("it has {} bytes, the limit is {MAX_OBJECT_NAME}", name.len())
        } else if name.contains('\0') {
            "it has a NUL".to_owned()
        } else {
            return Ok(Self(name.into()));
        };
        let shown: String = name.chars().take(64).collect();
        Err(Error::new(
            ErrorCode::InvalidName,
            format!("invalid object name \"{}\": {problem}", shown.escape_debug()),
        ))
    }

    /// Checks the stricter rules of AIStore v1 for native buckets: no `.` or `..` elements, no
    /// leading, doubled or trailing slash.
    pub fn check_v1_native(&self) -> Result<()> {
        let bad_element = self.0.split('/').any(|part| matches!(part, "" | "." | ".."));
        if bad_element {
            return Err(Error::new(
                ErrorCode::InvalidName,
                format!("invalid object name \"{}\"", self.0.escape_debug()),
            )
            .hint("no '.', '..' or empty path elements"));
        }
        Ok(())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ObjectName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ObjectName {
    type Error = Error;
    fn try_from(s: String) -> Result<Self> {
        Self::new(s)
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> Self {
        name.0.as_ref().to_owned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn object_names_are_opaque_but_bounded() {
        for good in ["a", "a//b", "x/", "../up", "ünï", &"y".repeat(1024)] {
            assert!(ObjectName::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", "nul\0", &"y".repeat(1025)] {
            assert!(ObjectName::new(bad).is_err(), "{bad:?}");
        }
        for refused in ["a/../b", "trail/", "/lead", "a//b", "."] {
            assert!(ObjectName::new(refused).unwrap().check_v1_native().is_err(), "{refused:?}");
        }
    }
}
