//! Rules of the configuration that types alone cannot express.

use super::external::check_external;
use super::{CacheConfig, NodeConfig};
use crate::boundary;
use crate::error::{Error, Result};
use crate::rate::Weights;

/// With less memory, batches would read one object after the other.
const LEAST_BATCH_MEMORY: u64 = 16 << 20;

impl NodeConfig {
    /// Checks rules that types alone cannot express; returns the first violation.
    pub fn validate(&self) -> Result<()> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// Every violation of a rule that types alone cannot express.
    pub fn problems(&self) -> Vec<Error> {
        let mut found: Vec<Error> = self
            .listen
            .hosts
            .iter()
            .map(|host| ("listen.hosts", host))
            .chain(self.listen.external_hosts.iter().map(|host| ("listen.external_hosts", host)))
            .filter_map(|(key, host)| boundary::check_pattern(key, host).err())
            .collect();
        if !self.listen.external.is_empty() {
            found.extend(check_external(&self.listen.external).err());
        }
        let mut require = |holds: bool, text: String, hint: Option<&str>| {
            if !holds {
                let error = Error::invalid(text);
                found.push(match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                });
            }
        };
        let CacheConfig { high, low, out_of_space, .. } = self.cache;
        require(
            high <= 100 && low < high,
            format!("cache.low ({low}) must be below cache.high ({high}), both percents up to 100"),
            None,
        );
        require(
            out_of_space <= 100 && out_of_space >= high,
            format!(
                "cache.out_of_space ({out_of_space}) must be a percent from cache.high ({high}) to 100"
            ),
            None,
        );
        let limits = &self.limits;
        for (holds, text) in [
            (
                limits.batches > 0 && limits.cold_gets > 0,
                "limits.batches and limits.cold_gets must be at least 1",
            ),
            (
                (1..=100).contains(&limits.prefetch_percent),
                "limits.prefetch_percent must be from 1 to 100",
            ),
            (
                limits.client_timeout_s > 0 && limits.client_min_rate.0 > 0,
                "limits.client_timeout_s and limits.client_min_rate must be at least 1",
            ),
            (
                limits.batch_memory.0 >= LEAST_BATCH_MEMORY,
                "limits.batch_memory must be at least 16MiB",
            ),
            (
                self.etl.parallel > 0 && self.download.parallel > 0,
                "etl.parallel and download.parallel must be at least 1",
            ),
            (
                (0.0..=1.0).contains(&self.log.access_share),
                "log.access_share must be from 0 (no request) to 1 (all)",
            ),
        ] {
            require(holds, text.to_owned(), None);
        }
        for (i, command) in self.etl.command.iter().enumerate() {
            let taken = self.etl.command[..i].iter().any(|c| c.name == command.name);
            require(
                !command.name.is_empty() && !command.argv.is_empty() && !taken,
                format!(
                    "etl.command \"{}\" needs a name of its own and a program in argv",
                    command.name
                ),
                None,
            );
        }
        require(
            self.scrub.bytes_per_second.0 > 0,
            "scrub.bytes_per_second must be at least 1".to_owned(),
            Some("scrub.enabled = false turns it off"),
        );
        let sections = [
            self.trace.validate(),
            self.disks.validate(),
            self.egress.entries().map(drop),
            self.tls.validate(),
            self.auth.validate(),
            Weights::parse(&self.limits.weights).map(drop),
        ];
        found.extend(sections.into_iter().filter_map(Result::err));
        found.extend(self.problems_of_clouds());
        found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::EtlCommand;
    use crate::size::ByteSize;

    #[test]
    fn watermarks_must_be_in_order() {
        let mut c = NodeConfig::default();
        c.validate().unwrap();
        c.cache = CacheConfig { high: 50, low: 50, ..CacheConfig::default() };
        assert!(c.validate().is_err());
        c.cache = CacheConfig { out_of_space: 89, ..CacheConfig::default() };
        assert!(c.validate().unwrap_err().message.contains("cache.out_of_space (89)"));
    }

    #[test]
    fn commands_of_transforms_have_names_of_their_own_and_a_program() {
        let command = |name: &str, argv: &[&str]| EtlCommand {
            name: name.into(),
            argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        };
        let valid = |command: &[EtlCommand]| {
            let mut c = NodeConfig::default();
            c.etl.command = command.to_vec();
            c.validate().is_ok()
        };
        assert!(valid(&[command("a", &["cat"]), command("b", &["cat"])]));
        assert!(!valid(&[command("a", &["cat"]), command("a", &["tac"])]));
        assert!(!valid(&[command("", &["cat"])]) && !valid(&[command("a", &[])]));
    }

    #[test]
    fn an_entry_that_opens_no_destination_and_a_relative_root_are_refused() {
        let mut c = NodeConfig::default();
        c.egress.allow = vec!["10.0.0.0/8".into(), "minio.lab:9000".into()];
        c.disks.roots = vec!["/mnt".into()];
        c.validate().unwrap();
        c.egress.allow.push("http://minio.lab:9000".into());
        assert!(c.validate().unwrap_err().message.contains("egress.allow"));
        c.egress.allow.clear();
        c.disks.roots.push("mnt".into());
        assert!(c.validate().unwrap_err().message.contains("disks.roots"));
    }

    #[test]
    fn a_host_with_a_scheme_or_a_port_is_refused_by_name() {
        let mut c = NodeConfig::default();
        c.listen.hosts = vec!["cache.example.com".into(), "*.lab".into()];
        c.validate().unwrap();
        c.listen.hosts.push("http://cache.example.com:7400".into());
        let e = c.validate().unwrap_err();
        assert!(e.message.contains("listen.hosts: \"http://cache.example.com:7400\""), "{e}");
    }

    #[test]
    fn a_scrub_that_reads_nothing_is_refused() {
        let mut c = NodeConfig::default();
        c.scrub.bytes_per_second = ByteSize(0);
        assert!(c.validate().is_err());
    }

    #[test]
    fn every_problem_is_reported_and_the_first_one_refuses() {
        let mut c = NodeConfig::default();
        assert!(c.problems().is_empty());
        c.limits.batches = 0;
        c.log.access_share = 2.0;
        c.trace.slow_ms = 0;
        let found: Vec<_> = c.problems().into_iter().map(|e| e.message).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("limits.batches") && found[2].contains("trace.slow_ms"));
        assert_eq!(c.validate().unwrap_err().message, found[0]);
    }
}
