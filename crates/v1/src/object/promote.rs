//! Requests to promote files of the targets' file systems.

use forebay_core::error::{Error, Result};
use forebay_core::promote::PromoteArgs;
use serde_json::Value;

use super::{object, switch};

/// Reads an action's `name` and `value` (§7.11).
pub fn promote_args(name: &str, value: &Value) -> Result<PromoteArgs> {
    let value = object("promote", value)?;
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(Error::invalid(format!("promote: \"{key}\" must be a string"))),
    };
    let flag = |key: &str| switch("promote", &value, key);
    let mut source = text("src")?;
    if source.is_empty() {
        source = name.to_owned();
    } else if !name.is_empty() && name != source {
        let text = format!("conflicting promote source: \"{name}\" vs \"{source}\"");
        return Err(Error::invalid(text));
    }
    Ok(PromoteArgs {
        target: text("tid")?,
        source,
        object: text("obj")?,
        recursive: flag("rcr")?,
        overwrite: flag("ovw")?,
        delete_source: flag("dls")?,
        not_shared: flag("notshr")?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn promote_as_clients_send_it() {
        let value = json!({"tid": "", "src": "/var/lib/ais/promote/d", "obj": "p/", "rcr": true,
            "ovw": false, "dls": true, "notshr": false});
        let args = promote_args("/var/lib/ais/promote/d", &value).unwrap();
        assert!(args.recursive && args.delete_source && !args.overwrite);
        assert_eq!(args.object_name(Some("x/y")), "p/x/y");
        let one = PromoteArgs { object: String::new(), ..args.clone() };
        assert_eq!(one.object_name(None), "d");
        assert_eq!(args.object_name(None), "p/d");
        assert_eq!(PromoteArgs { object: "o".into(), ..args }.object_name(None), "o");
        assert!(promote_args("/other", &value).is_err());
        assert!(promote_args("", &json!({"src": 5})).is_err());
        assert!(promote_args("", &json!([])).is_err());
        assert_eq!(promote_args("/x", &Value::Null).unwrap().source, "/x");
    }
}
