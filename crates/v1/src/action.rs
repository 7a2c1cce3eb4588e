//! The control envelope `{action, name, value}` (§1.3) and the values of the supported actions.

use forebay_core::error::{Error, Result};
use forebay_core::job::Selection;
use forebay_core::name::{MAX_OBJECT_NAME, ObjectName, check_length};
use forebay_core::template::Template;
use serde::Deserialize;
use serde_json::Value;

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
    /// Parses a request's body; keys are case-insensitive.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let value = parse_json(body)?;
        Ok(Self {
            action: text(&value, "action"),
            name: text(&value, "name"),
            value: value.get("value").cloned().unwrap_or(Value::Null),
        })
    }
}

/// Parses a JSON object and lower-cases its top-level keys, as the reference does.
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

/// A number that may be sent as a string (§1.3).
pub fn number(value: &Value, key: &str) -> Option<u64> {
    match value.get(key)? {
        Value::Number(n) => n.as_u64(),
        Value::String(s) => s.parse().ok(),
        _ => None,
    }
}

/// Keys of the values of multi-object requests, in lower case: those of all v1 clients.
const SELECTION_KEYS: [&str; 30] = [
    "objnames",
    "template",
    "prefix",
    "coer",
    "num-workers",
    "non-recurs",
    "skip-verify",
    "latest-ver",
    "blob-threshold",
    "blob-chunk-size",
    "blob-num-workers",
    "tobck",
    "prepend",
    "dry_run",
    "force",
    "synchronize",
    "ext",
    "id",
    "request_timeout",
    "pipeline",
    "archname",
    "mime",
    "isbn",
    "aate",
    "bnonly",
    "frombckname",
    "txnuuid",
    "tx",
    "continue-on-error",
    "fltpresence",
];

/// Refuses a key that no multi-object request has: a misspelt selection would mean the whole
/// bucket.
fn check_keys(value: &Value) -> Result<()> {
    let keys = value.as_object().into_iter().flat_map(serde_json::Map::keys);
    for key in keys {
        if SELECTION_KEYS.contains(&key.as_str()) {
            continue;
        }
        let shown: String = key.chars().take(64).collect();
        let e = Error::invalid(format!("unknown key \"{shown}\" in a selection of objects"));
        let near = SELECTION_KEYS.iter().copied().max_by(|a, b| {
            strsim::jaro_winkler(a, &shown).total_cmp(&strsim::jaro_winkler(b, &shown))
        });
        return Err(match near.filter(|near| strsim::jaro_winkler(near, &shown) > 0.8) {
            Some(near) => e.hint(format!("did you mean \"{near}\"?")),
            None => e.hint("a selection has objnames, template or prefix"),
        });
    }
    Ok(())
}

/// Whether a value selects objects. An empty template counts: it means all of them.
pub fn has_selection(value: &Value) -> bool {
    let value = lower_keys(value.clone());
    ["objnames", "template", "prefix"]
        .into_iter()
        .any(|key| value.get(key).is_some_and(|value| !value.is_null()))
}

/// The selection of a multi-object request (§9): `objnames`, a `template`, a literal `prefix`
/// (Forebay's own), or the whole bucket.
pub fn selection(value: &Value) -> Result<Selection> {
    let value = lower_keys(value.clone());
    check_keys(&value)?;
    let names = value.get("objnames").filter(|names| !names.is_null());
    if let Some(names) = names {
        let listed = names.as_array().and_then(|names| {
            names.iter().map(|n| n.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        let names = listed.ok_or_else(|| Error::invalid("objnames must be a list of strings"))?;
        if names.is_empty() {
            return Err(Error::invalid("objnames is an empty list")
                .hint("for all objects of the bucket, send the template \"\""));
        }
        for (index, name) in names.iter().enumerate() {
            ObjectName::new(name)
                .map_err(|e| Error { message: format!("objnames[{index}]: {}", e.message), ..e })?;
        }
        return Ok(Selection::Names(names));
    }
    let string = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => {
            check_length(key, text, MAX_OBJECT_NAME)?;
            Ok(text.clone())
        }
        Some(_) => Err(Error::invalid(format!("{key} must be a string"))),
    };
    let (template, prefix) = (string("template")?, string("prefix")?);
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
        let index = s(r#"{"prefix":"a/","num-workers":2,"skip-verify":true}"#);
        assert_eq!(index, Selection::Prefix("a/".into()));
        assert_eq!(s("{}"), Selection::Prefix(String::new()));
        assert_eq!(s(r#"{"template":"","objnames":null}"#), Selection::Prefix(String::new()));
    }

    #[test]
    fn a_selection_that_cannot_be_meant_is_refused() {
        let refused = |value: Value| selection(&value).unwrap_err().message;
        let long = "a".repeat(70_000);
        for (value, said) in [
            (serde_json::json!({"objnames": []}), "objnames is an empty list"),
            (serde_json::json!({"objnames": ["a", ""]}), "objnames[1]: invalid object name"),
            (serde_json::json!({"objnames": [long]}), "the limit is 1024"),
            (serde_json::json!({"template": long}), "template has 70000 bytes, the limit is 1024"),
            (serde_json::json!({"prefix": long}), "prefix has 70000 bytes, the limit is 1024"),
            (serde_json::json!({"template": 7}), "template must be a string"),
            (serde_json::json!({"objname": ["a"]}), "unknown key \"objname\""),
            (serde_json::json!({"Templte": "a"}), "unknown key \"templte\""),
        ] {
            let message = refused(value);
            assert!(message.contains(said), "{message}");
        }
        let e = selection(&serde_json::json!({"objname": ["a"]})).unwrap_err();
        assert!(e.to_string().contains("objnames"), "{e}");
    }

    #[test]
    fn only_what_is_said_is_a_selection() {
        let has = |text: &str| has_selection(&serde_json::from_str(text).unwrap());
        assert!(
            has(r#"{"template":""}"#) && has(r#"{"ObjNames":["a"]}"#) && has(r#"{"prefix":""}"#)
        );
        assert!(!has("{}") && !has("null") && !has(r#"{"template":null,"coer":true}"#));
    }
}
