//! Logging of a process: level and format from the configuration, to standard error.

use forebay_core::config::{LogConfig, LogFormat};
use forebay_core::{Error, Result};
use tracing_subscriber::EnvFilter;

/// The consensus library reports each message that a silent gateway does not answer, several times
/// a second. What matters of it, our own lines say; naming it in the level brings its lines back.
const QUIET: &str = "openraft=off";

/// Sets up logging once a process; `FOREBAY_LOG` overrides the configured level.
pub fn init(config: &LogConfig) -> Result<()> {
    let directives = std::env::var("FOREBAY_LOG").unwrap_or_else(|_| config.level.clone());
    let filter = EnvFilter::try_new(format!("{QUIET},{directives}"))
        .map_err(|e| Error::invalid(format!("invalid log.level \"{directives}\": {e}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let done = match config.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    done.map_err(|e| Error::internal(format!("logging is set up already: {e}")))
}
