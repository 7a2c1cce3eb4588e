//! Renders `docs/cli.md` from the grammar of the command line, and checks the file against it.

#[path = "../../tests/generated_page.rs"]
mod generated_page;

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use self::generated_page::{cell, check, sentence};
use crate::failure::exit as client;
use crate::node::exit as server;
use crate::{Cli, SERVERS};

const INTRO: &str = "\
# Command line

Every command of the program `forebay`, with its arguments, its options and examples. `make docs` generates
this page from the program's own help.

Buckets and objects are written as URIs: `ais://bucket/object` for native buckets (`fb://` and `forebay://`
mean the same), `s3://`, `gs://` and `az://` for buckets of a cloud. `-` stands for standard input or output.

";

const CLIENT_OPTIONS: &str = "\
## Client options

Every command except `serve`, `dev`, `gateway` and `target` takes these options. They may stand before or after the
command. The sections of the commands do not repeat them.

`rm -r`, `sync --delete`, `rb --force` of a bucket with objects, and `disk detach` and `disk disable` with `--force` ask for confirmation.
Without a terminal (cron, pipes, CI) they end with exit code 2 and remove nothing, unless `--yes` is given. The answer
no ends with exit code 1.

";

/// Exit codes of client commands.
const CLIENT_CODES: [(u8, &str); 10] = [
    (client::OK, "The command did all its work."),
    (client::FAILED, "The command failed, and no other code applies."),
    (
        client::USAGE,
        "The command line is wrong; the cluster refuses an argument or a property; or a removal needs `--yes`, because there is no terminal to ask at.",
    ),
    (client::PARTIAL, "A part of the work is done; the errors name the rest."),
    (client::NOT_FOUND, "A bucket, an object, a job, a node, a disk or a file does not exist."),
    (client::DENIED, "Access is denied."),
    (client::CONFLICT, "The request conflicts with something that exists, or the object changed."),
    (client::UNAVAILABLE, "The cluster is not available."),
    (
        client::JOB_FAILED,
        "The job failed, also if it failed for one of its objects only, or was cancelled.",
    ),
    (client::INTERRUPTED, "The command was interrupted (Ctrl-C)."),
];

/// Exit codes of commands that run servers.
const SERVER_CODES: [(u8, &str); 6] = [
    (0, "The server stopped on request."),
    (server::FAILED, "The server failed, and no other code applies."),
    (server::BAD_CONFIG, "The configuration or the command line is wrong."),
    (server::PORT_IN_USE, "The port is in use by another process."),
    (server::DISK_UNUSABLE, "A folder or a disk cannot be used, or another process uses it."),
    (
        server::FORMAT_REFUSED,
        "A newer version wrote the data, in a format that this version cannot read.",
    ),
];

#[test]
fn the_page_of_the_command_line_matches_the_grammar() {
    check("cli.md", &page());
}

fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut page = INTRO.to_owned();
    page.push_str("## Commands\n\n| command | purpose |\n|---|---|\n");
    let top: Vec<&Command> = subcommands(&cli).collect();
    for leaf in top.iter().flat_map(|command| leaves(command)) {
        let name = name(leaf);
        let purpose = sentence(&about(leaf));
        let _ = writeln!(page, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), cell(&purpose));
    }
    let _ = writeln!(
        page,
        "\n`forebay help COMMAND` and `forebay COMMAND --help` show the same on the terminal; `forebay help -k WORD`\n\
         lists the commands that have a word. `forebay completion` completes commands and names in bash and zsh.\n"
    );
    page.push_str(CLIENT_OPTIONS);
    let globals = cli.get_arguments().filter(|arg| arg.is_global_set());
    arguments(&mut page, &cli, globals);
    exit_codes(&mut page);
    for command in top {
        section(&mut page, command, 2);
    }
    format!("{}\n", page.trim_end())
}

/// Subcommands in the order of the help, without `help` itself.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
}

/// The commands that do something themselves.
fn leaves(command: &Command) -> Vec<&Command> {
    let below = subcommands(command).flat_map(leaves);
    does_something(command).then_some(command).into_iter().chain(below).collect()
}

/// Whether a command works without a subcommand.
fn does_something(command: &Command) -> bool {
    subcommands(command).next().is_none() || !command.is_subcommand_required_set()
}

/// The words of a command: `forebay job ls`.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn section(page: &mut String, command: &Command, level: usize) {
    let _ = writeln!(
        page,
        "{} {}\n\n{}\n",
        "#".repeat(level),
        name(command),
        sentence(&about(command))
    );
    if does_something(command) {
        describe(page, command);
    }
    for sub in subcommands(command) {
        section(page, sub, (level + 1).min(4));
    }
}

/// Writes usage, arguments and the text after the help of a command.
fn describe(page: &mut String, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(page, "```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let aliases: Vec<_> = command.get_all_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = writeln!(page, "Alias: {}.\n", aliases.join(", "));
    }
    let own = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version"));
    arguments(page, command, own);
    after(page, &command.get_after_help().map(ToString::to_string).unwrap_or_default());
}

/// Writes the table of arguments and options.
fn arguments<'a>(page: &mut String, command: &Command, args: impl Iterator<Item = &'a Arg>) {
    let mut rows = String::new();
    for arg in args.filter(|arg| !arg.is_hide_set()) {
        let (default, meaning) = described(command, arg);
        let _ = writeln!(
            rows,
            "| `{}` | {} | {} |",
            cell(&spelled(arg)),
            cell(&default),
            cell(&meaning)
        );
    }
    if !rows.is_empty() {
        let _ = writeln!(page, "| argument | default | meaning |\n|---|---|---|\n{rows}");
    }
}

/// `-r, --recursive`, `--size <SIZE>`, `[URI]`.
fn spelled(arg: &Arg) -> String {
    match arg.get_short().filter(|_| arg.get_long().is_some()) {
        Some(short) => format!("-{short}, {arg}"),
        None => arg.to_string(),
    }
}

/// The default and the meaning of an argument.
fn described(command: &Command, arg: &Arg) -> (String, String) {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let takes_values = arg.get_action().takes_values();
    let values: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    let (meaning, default) = match help.split_once("[default: ") {
        Some((meaning, default)) => (meaning.trim(), default.trim_end_matches(']').to_owned()),
        None if arg.is_required_set() && !arg.is_positional() => {
            (help.trim(), "required".to_owned())
        }
        None if takes_values && values.iter().any(|value| !value.is_empty()) => {
            (help.trim(), format!("`{}`", values.join(" ")))
        }
        None => (help.trim(), String::new()),
    };
    let mut meaning = sentence(meaning);
    let possible = arg.get_possible_values();
    if takes_values && !possible.is_empty() {
        let words = possible.iter().filter(|value| !value.is_hide_set()).map(|value| {
            match value.get_help() {
                Some(help) => format!("`{}` ({})", value.get_name(), lower(&help.to_string())),
                None => format!("`{}`", value.get_name()),
            }
        });
        let _ = write!(meaning, " One of: {}.", words.collect::<Vec<_>>().join(", "));
    }
    let conflicts = command.get_arg_conflicts_with(arg);
    let conflicts: Vec<_> =
        conflicts.iter().map(|other| format!("`{}`", short_form(other))).collect();
    if !conflicts.is_empty() {
        let _ = write!(meaning, " Not with {}.", conflicts.join(", "));
    }
    (default, meaning)
}

/// An argument without its value.
fn short_form(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| arg.to_string(), |long| format!("--{long}"))
}

/// A text with a small first letter, unless it starts with a name in capitals.
fn lower(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().collect::<String>() + &text[first.len_utf8()..]
        }
        _ => text.to_owned(),
    }
}

/// Writes the text behind the options: paragraphs, and blocks of indented lines as code.
fn after(page: &mut String, text: &str) {
    let mut paragraph: Vec<&str> = Vec::new();
    let mut code: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        let is_code = line.starts_with(' ');
        if !is_code && !code.is_empty() {
            let _ = writeln!(page, "```text\n{}\n```\n", code.join("\n"));
            code.clear();
        }
        if (is_code || line.is_empty()) && !paragraph.is_empty() {
            let _ = writeln!(page, "{}\n", paragraph.join(" "));
            paragraph.clear();
        }
        if is_code {
            code.push(line.strip_prefix("  ").unwrap_or(line));
        } else if !line.is_empty() {
            paragraph.push(line);
        }
    }
}

fn exit_codes(page: &mut String) {
    let mut table = |title: &str, codes: &[(u8, &str)]| {
        let _ = writeln!(page, "{title}\n\n| code | meaning |\n|---|---|");
        for (code, meaning) in codes {
            let _ = writeln!(page, "| {code} | {meaning} |");
        }
        page.push('\n');
    };
    table("## Exit codes\n\nClient commands:", &CLIENT_CODES);
    let servers: Vec<_> = SERVERS.iter().map(|server| format!("`{server}`")).collect();
    table(&format!("Commands that run servers ({}):", servers.join(", ")), &SERVER_CODES);
}

#[test]
fn every_flag_that_the_page_of_the_configuration_names_exists() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
    let page = std::fs::read_to_string(file).expect("the page is in docs");
    let mut cli = Cli::command();
    cli.build();
    let mut checked = 0;
    for words in page.split('`').skip(1).step_by(2) {
        let Some((name, flag)) = words.split_once(" --") else { continue };
        let Some(command) = cli.find_subcommand(name) else { continue };
        let known = command.get_arguments().any(|arg| arg.get_long() == Some(flag));
        assert!(known, "forebay {name} has no --{flag}");
        checked += 1;
    }
    assert!(checked > 10, "{checked} flags");
}
