//! Promotion of files of the targets' file systems to objects: which files, and the names of the
//! objects. Targets get the arguments in messages, so the names of their fields are fixed.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The files of the targets' file systems that are promoted to objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    use super::*;

    #[test]
    fn an_object_is_named_by_the_prefix_and_the_path_within_the_folder() {
        let args = PromoteArgs {
            source: "/var/lib/ais/promote/d".into(),
            object: "p/".into(),
            ..PromoteArgs::default()
        };
        assert_eq!(args.object_name(Some("x/y")), "p/x/y");
        let one = PromoteArgs { object: String::new(), ..args.clone() };
        assert_eq!(one.object_name(None), "d");
        assert_eq!(args.object_name(None), "p/d");
        assert_eq!(PromoteArgs { object: "o".into(), ..args }.object_name(None), "o");
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
