//! `forebay completion`: scripts for shells, and the answers that these scripts request.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, Args, Command, CommandFactory, Parser, ValueEnum};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter, complete,
};

use crate::Cli;
use crate::failure::Failure;
use crate::session::Session;

/// The first argument of a request of a script; the words of the line follow.
pub(crate) const REQUEST: &str = "__complete";
/// Longest wait for names of the cluster; without them nothing is shown.
const NAMES_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(forebay completion bash)         for this shell
  forebay completion bash > ~/.local/share/bash-completion/completions/forebay
  forebay completion zsh > ~/.zsh/_forebay  a folder of fpath, before compinit

Commands, options and values are completed, and names of buckets, nodes and jobs
of the cluster that FOREBAY_ENDPOINT or --endpoint names. If the cluster does
not reply within 300 ms, no name is shown.")]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
}

/// Prints the script of a shell.
pub(crate) fn print(args: &CompletionArgs) -> u8 {
    let script = match args.shell {
        Shell::Bash => include_str!("bash.sh"),
        Shell::Zsh => include_str!("zsh.sh"),
    };
    let _ = std::io::stdout().write_all(script.as_bytes());
    0
}

/// Prints the completions of the last of these words, one in a line.
pub(crate) fn answer(words: Vec<OsString>) {
    let mut out = std::io::stdout().lock();
    for candidate in candidates(words) {
        let _ = writeln!(out, "{candidate}");
    }
}

fn candidates(words: Vec<OsString>) -> Vec<String> {
    let words: Vec<OsString> = ["forebay".into()].into_iter().chain(words).collect();
    let names = Names { endpoint: endpoint_of(&words) };
    let is_option = words.last().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    let mut grammar = with_names(Cli::command(), &[], &Arc::new(names));
    let last = words.len() - 1;
    let found = complete(&mut grammar, words, last, None).unwrap_or_default();
    let found = found.iter().filter(|candidate| !candidate.is_hide_set());
    let found = found.filter_map(|candidate| candidate.get_value().to_str().map(str::to_owned));
    // Options are shown to those who begin one.
    found.filter(|value| is_option || !value.starts_with('-')).collect()
}

/// The endpoint on the command line.
fn endpoint_of(words: &[OsString]) -> Option<String> {
    let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
    let after =
        words.iter().position(|word| *word == "--endpoint").and_then(|at| words.get(at + 1));
    let joined = || words.iter().find_map(|word| word.strip_prefix("--endpoint="));
    after.copied().or_else(joined).map(str::to_owned)
}

/// Adds the names of the cluster to the arguments that take them.
fn with_names(command: Command, path: &[String], names: &Arc<Names>) -> Command {
    let below: Vec<String> = path.iter().cloned().chain([command.get_name().to_owned()]).collect();
    let command = command.mut_args(|arg| match kind_of(&below, &arg) {
        None => arg,
        Some((kind, with_paths)) => {
            let names = names.clone();
            arg.add(ArgValueCompleter::new(move |current: &OsStr| {
                let mut found = names.of(kind, current);
                if with_paths && !current.to_string_lossy().contains("://") {
                    found.extend(PathCompleter::any().complete(current));
                }
                found
            }))
        }
    });
    command.mut_subcommands(|sub| with_names(sub, &below, names))
}

/// A kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Buckets,
    Nodes,
    Jobs,
}

/// The names that an argument takes, and whether it takes paths of files too.
fn kind_of(command: &[String], arg: &Arg) -> Option<(Kind, bool)> {
    let value = arg.get_value_names().and_then(|names| names.first())?;
    let within = |word: &str| command.iter().any(|part| part == word);
    match value.as_str() {
        "URI" if within("mb") => None,
        "URI" | "SRC" | "DST" => Some((Kind::Buckets, false)),
        "FROM" | "TO" => Some((Kind::Buckets, true)),
        "NODE" | "TARGET" => Some((Kind::Nodes, false)),
        "ID" if within("job") => Some((Kind::Jobs, false)),
        _ => None,
    }
}

/// Where names come from.
struct Names {
    endpoint: Option<String>,
}

impl Names {
    /// Names that begin with this text; none if the cluster does not reply in time.
    fn of(&self, kind: Kind, begin: &OsStr) -> Vec<CompletionCandidate> {
        let Some(begin) = begin.to_str() else { return Vec::new() };
        let endpoint = self.endpoint.clone();
        let (sender, names) = mpsc::channel();
        // The thread ends with the process: nothing waits for a cluster that does not reply.
        std::thread::spawn(move || sender.send(fetch(kind, endpoint).unwrap_or_default()));
        let names = names.recv_timeout(NAMES_TIMEOUT).unwrap_or_default();
        let names = names.into_iter().filter(|name| name.starts_with(begin));
        names.map(CompletionCandidate::new).collect()
    }
}

fn fetch(kind: Kind, endpoint: Option<String>) -> Result<Vec<String>, Failure> {
    let mut line = vec!["forebay".to_owned(), "ls".into(), "--timeout".into(), "300ms".into()];
    line.extend(endpoint.map(|url| format!("--endpoint={url}")));
    let cli = Cli::try_parse_from(line).map_err(|e| Failure::usage(e.to_string(), ""))?;
    let session = Session::new(&cli.client)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::local("threads", &e))?;
    runtime.block_on(async {
        if kind == Kind::Jobs {
            let jobs = session.client.jobs().await?;
            return Ok(jobs.into_iter().map(|job| job.id).collect());
        }
        let map = session.client.map().await?;
        Ok(match kind {
            Kind::Nodes => map.state.nodes.keys().map(ToString::to_string).collect(),
            _ => map.state.buckets.values().map(|info| format!("{}/", info.bucket)).collect(),
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        candidates(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn commands_and_options_are_completed() {
        assert_eq!(of("pres"), ["presign"]);
        assert!(of("").contains(&"sync".to_owned()));
        assert!(of("archive ").contains(&"ls".to_owned()));
        assert!(of("sync --del").contains(&"--delete".to_owned()));
        assert!(of("ls -o j").contains(&"json".to_owned()));
        assert!(of("").iter().all(|word| !word.starts_with('-')));
    }

    #[test]
    fn arguments_that_take_names_are_known_by_their_value_names() {
        let cli = Cli::command();
        let kind = |path: &[&str], id: &str| {
            let mut command = &cli;
            for name in path {
                command = command.find_subcommand(name).unwrap();
            }
            let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
            let path: Vec<String> = path.iter().map(|&name| name.to_owned()).collect();
            kind_of(&path, arg)
        };
        assert_eq!(kind(&["ls"], "what"), Some((Kind::Buckets, false)));
        assert_eq!(kind(&["cp"], "to"), Some((Kind::Buckets, true)));
        assert_eq!(kind(&["job", "wait"], "id"), Some((Kind::Jobs, false)));
        assert_eq!(kind(&["node", "drain"], "node"), Some((Kind::Nodes, false)));
        assert_eq!(kind(&["mb"], "bucket"), None);
    }

    #[test]
    fn the_endpoint_of_the_line_is_used() {
        let of = |line: &str| endpoint_of(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("forebay ls --endpoint http://a:1 ").as_deref(), Some("http://a:1"));
        assert_eq!(of("forebay --endpoint=http://a:1 ls").as_deref(), Some("http://a:1"));
        assert_eq!(of("forebay ls"), None);
    }
}
