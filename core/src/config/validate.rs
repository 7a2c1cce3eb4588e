//! Rules of the configuration that types alone cannot express.

use super::{CacheConfig, NodeConfig};
use crate::boundary;
use crate::error::{Error, Result};

/// With less memory, batches would read one object after the other.
const LEAST_BATCH_MEMORY: u64 = 16 << 20;

impl NodeConfig {
    /// Checks rules that types alone cannot express.
    pub fn validate(&self) -> Result<()> {
        self.listen.hosts.iter().try_for_each(|host| boundary::check_pattern(host))?;
        let CacheConfig { high, low, out_of_space, .. } = self.cache;
        if high > 100 || low >= high {
            return Err(Error::invalid(format!(
                "cache.low ({low}) must be below cache.high ({high}), both percents up to 100"
            )));
        }
        if out_of_space > 100 || out_of_space < high {
            return Err(Error::invalid(format!(
                "cache.out_of_space ({out_of_space}) must be a percent from cache.high ({high}) to 100"
            )));
        }
        if self.limits.batches == 0 || self.limits.cold_gets == 0 {
            return Err(Error::invalid("limits.batches and limits.cold_gets must be at least 1"));
        }
        if !(1..=100).contains(&self.limits.prefetch_percent) {
            return Err(Error::invalid("limits.prefetch_percent must be from 1 to 100"));
        }
        if self.limits.client_timeout_s == 0 || self.limits.client_min_rate.0 == 0 {
            return Err(Error::invalid(
                "limits.client_timeout_s and limits.client_min_rate must be at least 1",
            ));
        }
        if self.limits.batch_memory.0 < LEAST_BATCH_MEMORY {
            return Err(Error::invalid("limits.batch_memory must be at least 16MiB"));
        }
        if self.etl.parallel == 0 || self.download.parallel == 0 {
            return Err(Error::invalid("etl.parallel and download.parallel must be at least 1"));
        }
        for (i, command) in self.etl.command.iter().enumerate() {
            let taken = self.etl.command[..i].iter().any(|c| c.name == command.name);
            if command.name.is_empty() || command.argv.is_empty() || taken {
                return Err(Error::invalid(format!(
                    "etl.command \"{}\" needs a name of its own and a program in argv",
                    command.name
                )));
            }
        }
        if self.scrub.bytes_per_second.0 == 0 {
            return Err(Error::invalid("scrub.bytes_per_second must be at least 1")
                .hint("scrub.enabled = false turns it off"));
        }
        if !(0.0..=1.0).contains(&self.log.access_share) {
            return Err(Error::invalid("log.access_share must be from 0 (no request) to 1 (all)"));
        }
        self.trace.validate()?;
        self.disks.validate()?;
        self.egress.entries()?;
        self.tls.validate()?;
        self.auth.validate()
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
}
