//! The control envelope `{action, name, value}` (§1.3) and the values of the actions served.

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::job::Selection;
use crate::template::Template;

/// A control request.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ActionMsg {
    #[serde(default)]
    pub action: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub value: Value,
}

impl ActionMsg {
    /// Parses a request's body; keys match in any case.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let value = parse_json(body)?;
        Ok(Self {
            action: text(&value, "action"),
            name: text(&value, "name"),
            value: value.get("value").cloned().unwrap_or(Value::Null),
        })
    }
}

/// Parses a JSON object and lower-cases its top-level keys, as the reference matches them.
pub fn parse_json(body: &[u8]) -> Result<Value> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("the request's body is not valid JSON: {e}")))?;
    Ok(lower_keys(value))
}

/// Lower-cases the keys of one object; other values pass unchanged.
pub fn lower_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(k, v)| (k.to_ascii_lowercase(), v)).collect())
        }
        other => other,
    }
}

pub(crate) fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A number that may have come as a string (§1.3).
pub fn number(value: &Value, key: &str) -> Option<u64> {
    match value.get(key)? {
        Value::Number(n) => n.as_u64(),
        Value::String(s) => s.parse().ok(),
        _ => None,
    }
}

/// The selection of a multi-object request (§9): `objnames`, a `template`, a `prefix` that is
/// taken as it is (ours), or the whole bucket.
pub fn selection(value: &Value) -> Result<Selection> {
    let value = lower_keys(value.clone());
    let names = value.get("objnames").filter(|names| !names.is_null());
    if let Some(names) = names {
        let listed = names.as_array().and_then(|names| {
            names.iter().map(|n| n.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        let names = listed.ok_or_else(|| Error::invalid("objnames must be a list of strings"))?;
        if !names.is_empty() {
            return Ok(Selection::Names(names));
        }
    }
    let template = text(&value, "template");
    let prefix = text(&value, "prefix");
    if template.is_empty() && !prefix.is_empty() {
        return Ok(Selection::Prefix(prefix));
    }
    Ok(match Template::parse(&template)? {
        Template::Prefix(prefix) => Selection::Prefix(prefix),
        Template::Ranges(_) => Selection::Template(template),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_in_any_case_and_null_is_absent() {
        let m = ActionMsg::parse(br#"{"Action":"list","Value":null}"#).unwrap();
        assert_eq!((m.action.as_str(), m.value), ("list", Value::Null));
        assert!(ActionMsg::parse(b"{").is_err());
    }

    #[test]
    fn selections() {
        let s = |t: &str| selection(&serde_json::from_str(t).unwrap()).unwrap();
        assert_eq!(s(r#"{"objnames":["a"]}"#), Selection::Names(vec!["a".into()]));
        let range = s(r#"{"template":"o-{0..1}"}"#);
        assert_eq!(range, Selection::Template("o-{0..1}".into()));
        assert_eq!(range.names().unwrap().unwrap().collect::<Vec<_>>(), ["o-0", "o-1"]);
        let flood = serde_json::json!({"template": "o-{0..10000000}"});
        assert!(selection(&flood).unwrap_err().message.contains("10000000"));
        assert!(selection(&serde_json::json!({"objnames": "a"})).is_err());
        assert_eq!(s(r#"{"template":"abc"}"#), Selection::Prefix("abc".into()));
        assert_eq!(s(r#"{"prefix":"a{0..1}"}"#), Selection::Prefix("a{0..1}".into()));
        assert_eq!(s("{}"), Selection::Prefix(String::new()));
    }
}
