//! The effective settings one by one: key, value, and where the value comes from. Secrets are masked.

use forebay_core::config::NodeConfig;
use toml::{Table, Value};

use super::Loaded;

/// The text in the place of a secret.
const MASK: &str = "***";

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// `section.key`; entries of lists of tables are `disk[0].path`.
    pub key: String,
    /// The value without secrets.
    pub value: Value,
    /// `default`, or the line of the file, the variable or the flag that sets it.
    pub origin: String,
}

impl Loaded {
    /// The settings that are in effect, sorted by section as the types have them.
    pub fn settings(&self) -> Vec<Setting> {
        let set = Value::Table(self.set.clone());
        let mut settings = flat(&self.config);
        for setting in &mut settings {
            if find(&set, &setting.key).is_some() {
                setting.origin = self.places.of(&setting.key);
            }
        }
        settings
    }
}

/// The settings of a node that configures nothing.
pub fn defaults() -> Vec<Setting> {
    flat(&NodeConfig::default())
}

fn flat(config: &NodeConfig) -> Vec<Setting> {
    let mut settings = Vec::new();
    // The types have nothing that TOML cannot express.
    let table = Table::try_from(config).unwrap_or_default();
    add(&mut settings, "", &Value::Table(table));
    settings
}

fn add(settings: &mut Vec<Setting>, path: &str, value: &Value) {
    match value {
        Value::Table(table) => {
            for (key, inner) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                add(settings, &path, inner);
            }
        }
        Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_table) => {
            for (i, inner) in list.iter().enumerate() {
                add(settings, &format!("{path}[{i}]"), inner);
            }
        }
        _ => settings.push(Setting {
            key: path.to_owned(),
            value: masked(path, value),
            origin: "default".to_owned(),
        }),
    }
}

/// The value at a path such as `disk[1].size`.
fn find<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split(['.', '[']).filter(|part| !part.is_empty()).try_fold(root, |at, part| match at {
        Value::Table(table) => table.get(part),
        Value::Array(list) => list.get(part.trim_end_matches(']').parse::<usize>().ok()?),
        _ => None,
    })
}

/// The value as operators may see it: without keys, without arguments of commands, and without those
/// parts of URLs that may have credentials.
fn masked(path: &str, value: &Value) -> Value {
    let mask = || Value::String(MASK.to_owned());
    if path.ends_with(".secret") {
        return mask();
    }
    match value {
        Value::String(text) => Value::String(masked_url(text, path == "audit.url")),
        Value::Array(list) if path.ends_with(".argv") => {
            let program = list.first().cloned().into_iter();
            program.chain((list.len() > 1).then(mask)).collect::<Vec<_>>().into()
        }
        Value::Array(list) => {
            list.iter().map(|inner| masked(path, inner)).collect::<Vec<_>>().into()
        }
        other => other.clone(),
    }
}

/// A URL without user, password and query, and without its path if `hides_path`; other text as it is.
fn masked_url(text: &str, hides_path: bool) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        // Not a URL, so it is unknown where a credential would be.
        return if text.contains('@') { MASK.to_owned() } else { text.to_owned() };
    };
    let (rest, query) = match rest.split_once(['?', '#']) {
        Some((rest, _)) => (rest, format!("?{MASK}")),
        None => (rest, String::new()),
    };
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = match host.rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}"),
        None => host.to_owned(),
    };
    let path = match path.len() > 1 && hides_path {
        true => format!("/{MASK}"),
        false => path.to_owned(),
    };
    format!("{scheme}://{host}{path}{query}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::load_file;
    use super::*;

    const FILE: &str = "\
[node]
id = \"target-1\"
[[disk]]
path = \"/a\"
size = \"1GiB\"
[[s3.keys]]
access = \"me\"
secret = \"planted-secret\"
[audit]
url = \"https://me:planted-password@logs/planted-path?planted-query\"
[[etl.command]]
name = \"x\"
argv = [\"/bin/x\", \"--planted\"]
";

    fn settings() -> Vec<Setting> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.toml");
        std::fs::write(&path, FILE).unwrap();
        let mut settings = load_file(&path).unwrap().settings();
        for setting in &mut settings {
            let folder = format!("{}/", dir.path().display());
            setting.origin = setting.origin.replace(&folder, "");
        }
        settings
    }

    fn of(key: &str) -> (String, String) {
        let found = settings().into_iter().find(|setting| setting.key == key).unwrap();
        (found.value.to_string(), found.origin)
    }

    #[test]
    fn every_value_names_its_line_or_that_it_is_the_default() {
        assert_eq!(of("node.id"), ("\"target-1\"".into(), "node.toml:2".into()));
        assert_eq!(of("disk[0].size"), ("\"1GiB\"".into(), "node.toml:5".into()));
        assert_eq!(of("log.level"), ("\"info\"".into(), "default".into()));
    }

    #[test]
    fn secrets_are_masked_wherever_they_may_be() {
        let all = format!("{:?}", settings());
        assert!(!all.contains("planted"), "{all}");
        assert_eq!(of("audit.url").0, "\"https://***@logs/***?***\"");
        assert_eq!(of("s3.keys[0].access").0, "\"me\"");
        assert_eq!(of("etl.command[0].argv").0, "[\"/bin/x\", \"***\"]");
    }

    #[test]
    fn the_defaults_have_every_key_outside_of_lists() {
        let keys: Vec<_> = defaults().into_iter().map(|setting| setting.key).collect();
        assert!(keys.contains(&"limits.batches".to_owned()), "{keys:?}");
        assert!(keys.contains(&"auth.issuer".to_owned()), "{keys:?}");
    }
}
