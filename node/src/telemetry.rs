//! Logging of a process: level and format from the configuration, output to standard error and to
//! the lines kept in memory.

use std::fmt;
use std::sync::OnceLock;

use forebay_core::config::{LogConfig, LogFormat};
use forebay_core::{Error, Result};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer, format};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::exchange;
use crate::logs::{Tee, logs};

/// The consensus library reports each message that a silent gateway does not answer, several times
/// a second. Forebay logs the important cases itself. Below info, the libraries of clouds and of HTTP log
/// requests with URLs, headers and credentials. A level that names a library enables its lines.
const QUIET: &str = "openraft=off,aws=info,azure=info,typespec=info,google=info,gaxi=info,\
                     hyper=info,h2=info,reqwest=info";

type SetFilter = Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>;

/// Replaces the filter of this process.
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// The field of a request's id.
const REQUEST_ID: &str = "request_id";

/// Sets up logging once a process; `FOREBAY_LOG` overrides the configured level.
pub fn init(config: &LogConfig) -> Result<()> {
    let directives = directives(config);
    let filter = filter(&directives)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Lines);
    let done = match config.format {
        LogFormat::Text => {
            let format = WithRequest { inner: format().with_ansi(false), is_json: false };
            let builder = builder.with_ansi(false).event_format(format).with_filter_reloading();
            let handle = builder.reload_handle();
            keep_setter(move |filter| handle.reload(filter));
            builder.try_init()
        }
        LogFormat::Json => {
            let format = WithRequest { inner: format().json(), is_json: true };
            let builder = builder.json().event_format(format).with_filter_reloading();
            let handle = builder.reload_handle();
            keep_setter(move |filter| handle.reload(filter));
            builder.try_init()
        }
    };
    done.map_err(|e| Error::internal(format!("logging is set up already: {e}")))?;
    // A request for the log of a quiet node shows at least this line.
    let version = env!("CARGO_PKG_VERSION");
    logs().push(Level::INFO, &format!("forebay {version}, log level {directives}\n"));
    Ok(())
}

/// Sets the level of a process whose logging is set up; `FOREBAY_LOG` overrides it.
pub fn set_level(config: &LogConfig) -> Result<()> {
    let filter = filter(&directives(config))?;
    match SET_FILTER.get() {
        Some(set) => set(filter),
        None => Ok(()),
    }
}

/// Checks the level of a configuration.
pub fn check_level(config: &LogConfig) -> Result<()> {
    filter(&directives(config)).map(drop)
}

fn directives(config: &LogConfig) -> String {
    std::env::var("FOREBAY_LOG").unwrap_or_else(|_| config.level.clone())
}

fn filter(directives: &str) -> Result<EnvFilter> {
    check_levels(directives)?;
    EnvFilter::try_new(format!("{QUIET},{directives}"))
        .map_err(|e| Error::invalid(format!("invalid log.level \"{directives}\": {e}")))
}

/// Keeps the way to replace the filter of the process.
fn keep_setter<E: fmt::Display>(
    reload: impl Fn(EnvFilter) -> std::result::Result<(), E> + Send + Sync + 'static,
) {
    let set = move |filter| {
        reload(filter).map_err(|e| Error::internal(format!("log.level stays as it was: {e}")))
    };
    let _ = SET_FILTER.set(Box::new(set));
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

/// Adds the id of the current request to lines that do not have it.
struct WithRequest<F> {
    inner: F,
    is_json: bool,
}

impl<S, N, F> FormatEvent<S, N> for WithRequest<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let named = event.metadata().fields().field(REQUEST_ID).is_some();
        let Some(id) = exchange::id().filter(|_| !named) else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        match line.trim_end().strip_suffix('}').filter(|_| self.is_json) {
            Some(object) => writeln!(writer, "{object},\"{REQUEST_ID}\":\"{id}\"}}"),
            None => writeln!(writer, "{} {REQUEST_ID}={id}", line.trim_end()),
        }
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
    use forebay_core::request::RequestId;

    use super::*;
    use crate::exchange::CurrentRequest;

    /// The line that a task writes which works for request 255.
    async fn line(is_json: bool) -> String {
        let (sender, receiver) = std::sync::mpsc::channel();
        let writer = move || Sent(sender.clone());
        let builder = tracing_subscriber::fmt().with_writer(writer).with_ansi(false);
        let request = CurrentRequest::new(RequestId(255));
        let work = request.scope(async { tracing::info!(disk = "d0", "disk is full") });
        let write = || futures::FutureExt::now_or_never(work);
        if is_json {
            let format = WithRequest { inner: format().json(), is_json };
            tracing::subscriber::with_default(builder.json().event_format(format).finish(), write);
        } else {
            let format = WithRequest { inner: format(), is_json };
            tracing::subscriber::with_default(builder.event_format(format).finish(), write);
        }
        receiver.try_iter().collect()
    }

    struct Sent(std::sync::mpsc::Sender<String>);

    impl std::io::Write for Sent {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_line_about_a_request_has_its_id() {
        let text = line(false).await;
        assert!(text.ends_with("disk is full disk=\"d0\" request_id=00000000000000FF\n"), "{text}");
        let json = line(true).await;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap_or_default();
        assert_eq!(json["request_id"], "00000000000000FF");
        assert_eq!(json["fields"]["message"], "disk is full");
    }

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
