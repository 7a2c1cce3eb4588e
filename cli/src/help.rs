//! `forebay help`: the help of a command, and the search for commands by a word.

use clap::{Args, Command, CommandFactory};
use forebay_core::{Error, ErrorCode};
use serde_json::json;

use crate::Cli;
use crate::failure::Failure;
use crate::output::{Column, Format, Row, Rows};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay help sync
  forebay help job wait
  forebay help -k cache              commands about caching
  forebay help -k cache -o json

A word is looked for in names, purposes and options of all commands, and only if
none has it, in their whole help. Without a match, the exit code is 4.")]
pub(crate) struct HelpArgs {
    /// The command; all commands if absent
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// List the commands that have this word
    #[arg(short, long, value_name = "WORD", conflicts_with = "command")]
    keyword: Option<String>,
}

/// Prints the help of a command, or the commands that have a word.
pub(crate) fn run(args: &HelpArgs, format: Format) -> Result<(), Failure> {
    let mut cli = Cli::command();
    cli.build();
    if let Some(word) = &args.keyword {
        return search(&cli, word, format);
    }
    let mut command = &mut cli;
    for name in &args.command {
        let known = command.get_bin_name().unwrap_or("forebay").to_owned();
        command = command.find_subcommand_mut(name).ok_or_else(|| {
            let text = format!("{known} has no command \"{name}\"");
            Failure::usage(text, format!("{known} --help lists the commands"))
        })?;
    }
    let help = command.render_long_help();
    print(&format!("{help}\n").replace("\n\n\n", "\n\n"))
}

/// Writes a text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(|e| Failure::local("standard output", &e))
}

fn search(cli: &Command, word: &str, format: Format) -> Result<(), Failure> {
    let all = leaves(cli);
    let word_in = |text: &str| text.to_lowercase().contains(&word.to_lowercase());
    let mut found: Vec<_> = all.iter().filter(|command| word_in(&summary(command))).collect();
    if found.is_empty() {
        let in_help = |command: &&&Command| {
            let mut command = (**command).clone();
            word_in(&command.render_long_help().to_string())
        };
        found = all.iter().filter(in_help).collect();
    }
    if word.trim().is_empty() || found.is_empty() {
        let e = Error::new(ErrorCode::ObjectNotFound, format!("no command has \"{word}\""));
        return Err(e.hint("forebay help lists all commands").into());
    }
    let mut rows = Rows::new(format, &[Column("COMMAND", false), Column("PURPOSE", false)]);
    for command in found {
        let (name, purpose) = (name(command), about(command));
        let json = json!({ "command": name, "purpose": purpose });
        rows.push(Row { name: name.clone(), cells: vec![name, purpose], json })?;
    }
    rows.finish()
}

/// The commands that do something themselves.
pub(crate) fn leaves(command: &Command) -> Vec<&Command> {
    // Groups have a subcommand `help` by themselves; that of the program is this one.
    let is_program = command.get_name() == "forebay";
    let below = command.get_subcommands();
    let below = below.filter(|sub| (is_program || sub.get_name() != "help") && !sub.is_hide_set());
    let below: Vec<_> = below.flat_map(leaves).collect();
    if below.is_empty() || !command.is_subcommand_required_set() {
        return [command].into_iter().chain(below).filter(|c| c.get_name() != "forebay").collect();
    }
    below
}

fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Name, purpose and the own options of a command.
fn summary(command: &Command) -> String {
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    let options: Vec<_> = own.filter_map(clap::Arg::get_long).collect();
    format!("{} {} {}", name(command), about(command), options.join(" "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_a_word_of_its_purpose() {
        let mut cli = Cli::command();
        cli.build();
        let names: Vec<String> = leaves(&cli).into_iter().map(name).collect();
        for expected in ["forebay sync", "forebay job wait", "forebay archive ls", "forebay serve"]
        {
            assert!(names.iter().any(|name| name == expected), "{expected} in {names:?}");
        }
        assert!(
            !names.iter().any(
                |name| name == "forebay" || (name.ends_with(" help") && name != "forebay help")
            ),
            "{names:?}"
        );
        let sync = leaves(&cli).into_iter().find(|c| c.get_name() == "sync").unwrap();
        assert!(summary(sync).contains("delete") && !summary(sync).contains("endpoint"));
    }

    #[test]
    fn a_word_that_no_command_has_is_not_found() {
        let of = |word: &str| HelpArgs { command: Vec::new(), keyword: Some(word.to_owned()) };
        assert_eq!(run(&of("xyzzy"), Format::Json).unwrap_err().code, 4);
        let unknown = HelpArgs { command: vec!["xyzzy".to_owned()], keyword: None };
        assert_eq!(run(&unknown, Format::Table).unwrap_err().code, 2);
    }
}
