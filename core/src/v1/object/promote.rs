//! Promotion of files of the targets' file systems to objects.

use serde_json::Value;

use super::{object, switch};
use crate::error::{Error, Result};

/// The files of the targets' file systems that are promoted to objects (§7.11).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PromoteArgs {
    /// The only target that scans; all of them if empty.
    pub target: String,
    /// A file, or a folder of files.
    pub source: String,
    /// The object's name; used as a prefix of the files' own names if it is empty or ends with a
    /// slash, or if the source is a folder.
    pub object: String,
    /// Whether files in sub-folders are included.
    pub recursive: bool,
    /// Whether existing objects are replaced.
    pub overwrite: bool,
    /// Whether files are removed after they became objects.
    pub delete_source: bool,
    /// Whether the targets see different files, even if they look the same.
    pub not_shared: bool,
}

impl PromoteArgs {
    /// Reads an action's `name` and `value`.
    pub fn parse(name: &str, value: &Value) -> Result<Self> {
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
        Ok(Self {
            target: text("tid")?,
            source,
            object: text("obj")?,
            recursive: flag("rcr")?,
            overwrite: flag("ovw")?,
            delete_source: flag("dls")?,
            not_shared: flag("notshr")?,
        })
    }

    /// Checks the source against the only permitted folder, by its text alone.
    pub fn check_source(&self, root: &str) -> Result<()> {
        let source = self.source.as_str();
        let root = root.trim_end_matches('/');
        let problem = if source.is_empty() {
            "pathname is empty".to_owned()
        } else if !source.starts_with('/') {
            "must be an absolute path".to_owned()
        } else if source.split('/').any(|part| matches!(part, "." | "..")) {
            "must not contain '.' or '..' path elements".to_owned()
        } else if source.strip_prefix(root).is_none_or(|r| !r.is_empty() && !r.starts_with('/')) {
            format!("must be under {root}")
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("invalid promote source \"{source}\": {problem}")))
    }

    /// The object name of a file; `within` is its path in the source folder, or `None` if the
    /// source is the file.
    pub fn object_name(&self, within: Option<&str>) -> String {
        match within {
            Some(within) => format!("{}{within}", self.object),
            None if self.object.is_empty() || self.object.ends_with('/') => {
                let base = self.source.rsplit('/').next().unwrap_or_default();
                format!("{}{base}", self.object)
            }
            None => self.object.clone(),
        }
    }
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
        let args = PromoteArgs::parse("/var/lib/ais/promote/d", &value).unwrap();
        assert!(args.recursive && args.delete_source && !args.overwrite);
        assert_eq!(args.object_name(Some("x/y")), "p/x/y");
        let one = PromoteArgs { object: String::new(), ..args.clone() };
        assert_eq!(one.object_name(None), "d");
        assert_eq!(args.object_name(None), "p/d");
        assert_eq!(PromoteArgs { object: "o".into(), ..args }.object_name(None), "o");
        assert!(PromoteArgs::parse("/other", &value).is_err());
        assert!(PromoteArgs::parse("", &json!({"src": 5})).is_err());
        assert!(PromoteArgs::parse("", &json!([])).is_err());
        assert_eq!(PromoteArgs::parse("/x", &Value::Null).unwrap().source, "/x");
    }

    #[test]
    fn files_come_from_under_the_root_only() {
        let check = |source: &str| {
            let args = PromoteArgs { source: source.into(), ..PromoteArgs::default() };
            args.check_source("/srv/in/").map_err(|e| e.message)
        };
        check("/srv/in").unwrap();
        check("/srv/in/a/b").unwrap();
        for (bad, why) in [
            ("", "empty"),
            ("a", "absolute"),
            ("/srv/in/../etc", "'..'"),
            ("/srv/inner", "must be under /srv/in"),
            ("/etc/passwd", "must be under"),
        ] {
            assert!(check(bad).unwrap_err().contains(why), "{bad}");
        }
    }
}
