//! Reading the configuration again while a node runs: which changes apply at once, and which need a
//! restart.

use std::collections::BTreeSet;

use forebay_core::Result;
use forebay_core::config::NodeConfig;
use toml::{Table, Value};

use crate::config_load::Loaded;
use crate::lifecycle::Lifecycle;
use crate::telemetry;

/// Settings whose changes apply without a restart.
pub const LIVE: [&str; 10] = [
    "limits.client_min_rate",
    "limits.client_timeout_s",
    "limits.user_bytes_per_second",
    "limits.user_requests_per_second",
    "limits.weights",
    "log.access_share",
    "log.failures_per_s",
    "log.level",
    "trace.sample",
    "trace.slow_ms",
];

/// The settings of a running node.
#[derive(Clone, Debug)]
pub struct RunningConfig {
    /// As read at the start: settings that need a restart have these values.
    started: NodeConfig,
    /// As read last.
    current: NodeConfig,
}

/// The keys that a changed configuration sets to other values.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that apply at once.
    pub live: Vec<String>,
    /// Those that need a restart.
    pub restart: Vec<String>,
}

impl RunningConfig {
    pub fn new(config: NodeConfig) -> Self {
        Self { started: config.clone(), current: config }
    }

    /// Makes the node use the settings that were read again, and logs what changed. After an error,
    /// nothing has changed.
    pub fn reload(&mut self, read: Result<Loaded>, lifecycle: &Lifecycle) {
        let checked = read.and_then(|loaded| {
            telemetry::check_level(&loaded.config.log)?;
            Ok(loaded)
        });
        let loaded = match checked {
            Ok(loaded) => loaded,
            Err(e) => {
                let hint = e.hint.as_deref().unwrap_or_default();
                let what = "the configuration is invalid; the node goes on with the one it has";
                tracing::error!(error = %e, hint, "{what}");
                return;
            }
        };
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let changes = self.changes(&loaded.config);
        for key in &changes.restart {
            tracing::warn!(key, "the setting changed, and needs a restart: it is not applied");
        }
        if let Err(e) = telemetry::set_level(&loaded.config.log) {
            tracing::error!(error = %e, "the level of the log stays as it was");
        }
        lifecycle.reload(&loaded.config);
        let (applied, restart) = (changes.live.join(", "), changes.restart.len());
        tracing::info!(applied, restart, "the configuration was read again");
        self.current = loaded.config;
    }

    /// The keys that another configuration changes.
    fn changes(&self, read: &NodeConfig) -> Changes {
        let is_live = |key: &String| LIVE.contains(&key.as_str());
        let live = differences(&self.current, read).into_iter().filter(is_live).collect();
        let others = differences(&self.started, read).into_iter();
        Changes { live, restart: others.filter(|key| !is_live(key)).collect() }
    }
}

/// The keys whose values differ; of a list, its key.
fn differences(one: &NodeConfig, other: &NodeConfig) -> BTreeSet<String> {
    let (one, other) = (keys_of(one), keys_of(other));
    let is_other = |(key, value): &(&String, &Value)| other.get(*key) != Some(value);
    let changed = one.iter().filter(is_other).map(|(key, _)| key.clone());
    let new = other.keys().filter(|key| !one.contains_key(*key)).cloned();
    changed.chain(new).collect()
}

/// The values by `section.key`.
fn keys_of(config: &NodeConfig) -> Table {
    // The types have nothing that TOML cannot express.
    let sections = Table::try_from(config).unwrap_or_default();
    let mut keys = Table::new();
    for (section, value) in sections {
        match value {
            Value::Table(table) => {
                keys.extend(table.into_iter().map(|(key, v)| (format!("{section}.{key}"), v)));
            }
            value => drop(keys.insert(section, value)),
        }
    }
    keys
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, Mutex};

    use forebay_core::Error;
    use forebay_core::config::DiskConfig;

    use super::*;
    use crate::config_load::load;

    fn loaded(flags: &[(&str, &str)]) -> Result<Loaded> {
        let flags: Vec<_> = flags.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        load(None, &flags)
    }

    #[test]
    fn changes_are_live_or_need_a_restart() {
        let running = RunningConfig::new(NodeConfig::default());
        let mut read = NodeConfig::default();
        assert_eq!(running.changes(&read), Changes::default());
        read.log.level = "debug".into();
        read.limits.batches = 7;
        let (path, size) = ("/a".into(), None);
        read.disk = vec![DiskConfig { path, size, mount: false, rebuild_index: false }];
        let changes = running.changes(&read);
        assert_eq!(changes.live, ["log.level"]);
        assert_eq!(changes.restart, ["disk", "limits.batches"]);
    }

    #[test]
    fn every_live_key_is_a_setting() {
        let keys = keys_of(&NodeConfig::default());
        assert!(LIVE.iter().all(|key| keys.contains_key(*key)));
    }

    #[test]
    fn an_invalid_configuration_changes_nothing_and_a_valid_one_reaches_the_parts() {
        let (lifecycle, seen) = (Lifecycle::new(), Arc::new(Mutex::new(Vec::new())));
        let applied = seen.clone();
        lifecycle.on_reload(move |config| applied.lock().unwrap().push(config.trace.sample));
        let mut running = RunningConfig::new(NodeConfig::default());
        running.reload(loaded(&[("trace.sample", "7")]), &lifecycle);
        running.reload(loaded(&[("log.level", "loud"), ("trace.sample", "0.5")]), &lifecycle);
        running.reload(Err(Error::invalid("cannot read")), &lifecycle);
        assert!(seen.lock().unwrap().is_empty());
        running.reload(loaded(&[("trace.sample", "0.5")]), &lifecycle);
        assert_eq!(*seen.lock().unwrap(), [0.5]);
        assert!(
            running.changes(&loaded(&[("trace.sample", "0.5")]).unwrap().config).live.is_empty()
        );
    }
}
