//! Logging of a process: level and format from the configuration, output to standard error and to
//! the lines kept in memory.

use forebay_core::config::{LogConfig, LogFormat};
use forebay_core::{Error, Result};
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::logs::{Tee, logs};

/// The consensus library reports each message that a silent gateway does not answer, several times
/// a second. Forebay logs the important cases itself. Below info, the libraries of clouds and of HTTP log
/// requests with URLs, headers and credentials. A level that names a library enables its lines.
const QUIET: &str = "openraft=off,aws=info,azure=info,typespec=info,google=info,gaxi=info,\
                     hyper=info,h2=info,reqwest=info";

/// Sets up logging once a process; `FOREBAY_LOG` overrides the configured level.
pub fn init(config: &LogConfig) -> Result<()> {
    let directives = std::env::var("FOREBAY_LOG").unwrap_or_else(|_| config.level.clone());
    check_levels(&directives)?;
    let filter = EnvFilter::try_new(format!("{QUIET},{directives}"))
        .map_err(|e| Error::invalid(format!("invalid log.level \"{directives}\": {e}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Lines);
    let done = match config.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    done.map_err(|e| Error::internal(format!("logging is set up already: {e}")))?;
    // A request for the log of a quiet node shows at least this line.
    let version = env!("CARGO_PKG_VERSION");
    logs().push(Level::INFO, &format!("forebay {version}, log level {directives}\n"));
    Ok(())
}

/// Rejects a misspelt level, which would otherwise be read as a module name and disable all others.
fn check_levels(directives: &str) -> Result<()> {
    let words = directives.split(',').map(str::trim).filter(|word| !word.is_empty());
    let is_known = |word: &&str| {
        let is_module = word.contains(['=', '[', ':']) || word.starts_with("forebay");
        is_module || word.parse::<LevelFilter>().is_ok()
    };
    match words.clone().find(|word| !is_known(word)) {
        None => Ok(()),
        Some(word) => Err(Error::invalid(format!("log.level: unknown level \"{word}\""))
            .hint("one of off, error, warn, info, debug, trace; or module=level")),
    }
}

/// Directs lines by their level.
struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Tee;

    fn make_writer(&'a self) -> Tee {
        Tee(Level::INFO)
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Tee {
        Tee(*line.level())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_rejected() {
        for good in ["info", "INFO", "off", "info,forebay_target=debug", "forebay_node", "", "a::b"]
        {
            assert!(check_levels(good).is_ok(), "{good}");
        }
        for bad in ["verbose", "info,wran"] {
            assert!(check_levels(bad).is_err(), "{bad}");
        }
    }
}
