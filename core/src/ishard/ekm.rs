//! External key maps: the template of the shards that each sample goes into.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// One rule of an external key map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EkmRule {
    /// Names the shards of this rule.
    pub template: String,
    /// A sample matches if one of these patterns occurs in the name of one of its objects.
    pub patterns: Vec<String>,
}

/// An external key map: `{"template": ["pattern", …], …}`. The first rule that matches wins, so
/// the order of the document is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ekm(pub Vec<EkmRule>);

impl Ekm {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn parse(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|e| {
            Error::invalid(format!("the external key map cannot be read: {e}"))
                .hint("for example {\"cats-%04d\": [\"/cat/\"], \"dogs-%04d\": [\"/dog/\"]}")
        })
    }
}

impl Serialize for Ekm {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for rule in &self.0 {
            map.serialize_entry(&rule.template, &rule.patterns)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Ekm {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Patterns {
            One(String),
            Many(Vec<String>),
        }
        struct Rules;
        impl<'de> Visitor<'de> for Rules {
            type Value = Ekm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of templates and their patterns")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ekm, A::Error> {
                let mut rules: Vec<EkmRule> = Vec::new();
                while let Some((template, patterns)) = map.next_entry::<String, Patterns>()? {
                    if rules.iter().any(|r| r.template == template) {
                        return Err(A::Error::custom(format!("\"{template}\" stands there twice")));
                    }
                    let patterns = match patterns {
                        Patterns::One(pattern) => vec![pattern],
                        Patterns::Many(patterns) => patterns,
                    };
                    rules.push(EkmRule { template, patterns });
                }
                Ok(Ekm(rules))
            }
        }
        d.deserialize_map(Rules)
    }
}
