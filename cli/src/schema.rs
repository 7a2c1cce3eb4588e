//! `forebay schema`: the JSON Schema of what the commands print with `-o json`.

use std::collections::BTreeSet;

use clap::{Args, Command, CommandFactory};
use forebay_core::config::nearest;
use forebay_core::{Error, ErrorCode};
use serde_json::{Map, Value};

use crate::Cli;
use crate::failure::Failure;
use crate::help::{leaves, print};
use crate::output::Format;

/// The whole document: a definition for each command, and the parts of these.
const DOCUMENT: &str = include_str!("output-schema.json");
/// Name of the definition of the error object on standard error.
const ERROR: &str = "error";
/// Commands without JSON, and what they print or do in place of it.
const WITHOUT_JSON: [(&str, &str); 8] = [
    ("cat", "it prints the bytes of objects"),
    ("node logs", "it prints the lines of a log; with log.format = \"json\", they are JSON"),
    ("node prestop", "Kubernetes runs it; the log of the node has what it does"),
    ("serve", "it runs until it is stopped; serve.json in its folder has the endpoint"),
    ("dev", "it runs until it is stopped; dev.json in its folder has the nodes"),
    ("gateway", "it runs until it is stopped"),
    ("target", "it runs until it is stopped"),
    ("completion", "it prints a script"),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay schema > forebay.schema.json
  forebay schema job get             of one command, with all that it needs
  forebay schema error               of the error object on standard error
  forebay schema -o name             the commands that have a definition

The document is a JSON Schema (draft 2020-12) with a definition for each
command. Later versions add fields, and never rename or remove any. Exit code 4
if there is no such command, or if it prints no JSON.")]
pub(crate) struct SchemaArgs {
    /// The command; all commands if absent
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Prints the whole document, or the definition of a command with the parts that it needs.
pub(crate) fn run(args: &SchemaArgs, format: Format) -> Result<(), Failure> {
    let document = document()?;
    if args.command.is_empty() {
        return match format {
            Format::Table | Format::Json => print(DOCUMENT),
            Format::Jsonl => print(&format!("{document}\n")),
            Format::Name => print(&format!("{}\n", commands(&document).join("\n"))),
        };
    }
    let words = args.command.join(" ");
    let command = if words == ERROR { words } else { known(&words, &document)? };
    let part = part(&document, &command);
    match format {
        Format::Table | Format::Json => print(&format!("{part:#}\n")),
        Format::Jsonl => print(&format!("{part}\n")),
        Format::Name => print(&format!("{command}\n")),
    }
}

fn document() -> Result<Value, Error> {
    serde_json::from_str(DOCUMENT).map_err(|e| Error::internal(format!("output-schema.json: {e}")))
}

/// The commands that have a definition. Names of parts begin with a capital letter.
fn commands(document: &Value) -> Vec<&str> {
    let all = document["$defs"].as_object().into_iter().flat_map(Map::keys);
    let is_command = |name: &&str| *name != ERROR && !name.starts_with(char::is_uppercase);
    all.map(String::as_str).filter(is_command).collect()
}

/// The name of the command that these words are, or an error if it has no definition.
fn known(words: &str, document: &Value) -> Result<String, Failure> {
    let not_found = |text: String| Error::new(ErrorCode::ObjectNotFound, text);
    let mut cli = Cli::command();
    cli.build();
    let all: Vec<&str> = leaves(&cli).into_iter().map(name_of).collect();
    let mut found = Some(&cli);
    for word in words.split_whitespace().skip_while(|word| *word == "forebay") {
        // Finds aliases, too.
        found = found.and_then(|command| command.find_subcommand(word));
    }
    let Some(command) = found.map(name_of).filter(|command| !command.is_empty()) else {
        let e = not_found(format!("there is no command \"{words}\""));
        let hint = match nearest(words, all.iter().copied()) {
            Some(name) => format!("did you mean {name}?"),
            None => "forebay schema -o name lists the commands".to_owned(),
        };
        return Err(e.hint(hint).into());
    };
    if let Some((_, why)) = WITHOUT_JSON.iter().find(|(name, _)| *name == command) {
        return Err(not_found(format!("forebay {command} prints no JSON: {why}")).into());
    }
    if document["$defs"].get(command).is_none() {
        let below = format!("{command} ");
        let below: Vec<&str> =
            all.iter().copied().filter(|name| name.starts_with(&below)).collect();
        let e = not_found(format!("forebay {command} is a group of commands"));
        return Err(e.hint(format!("name one of {}", below.join(", "))).into());
    }
    Ok(command.to_owned())
}

/// The full name of a command without the program's; empty for the program.
fn name_of(command: &Command) -> &str {
    command.get_bin_name().and_then(|full| full.strip_prefix("forebay ")).unwrap_or_default()
}

/// The definition of a command as a document of its own.
fn part(document: &Value, command: &str) -> Value {
    let all = &document["$defs"];
    let mut names = BTreeSet::new();
    add_parts(all, &all[command], &mut names);
    let parts: Map<String, Value> =
        names.into_iter().map(|name| (name.clone(), all[&name].clone())).collect();
    let id = document["$id"].as_str().unwrap_or_default();
    let mut part = all[command].clone();
    part["$schema"] = document["$schema"].clone();
    part["$id"] = format!("{id}:{}", command.replace(' ', "-")).into();
    part["title"] = match command {
        ERROR => "What a forebay command prints on standard error if it fails".into(),
        _ => format!("What forebay {command} prints with -o json").into(),
    };
    if !parts.is_empty() {
        part["$defs"] = parts.into();
    }
    part
}

/// Adds the names of the definitions that a schema refers to, and those that these refer to.
fn add_parts(all: &Value, schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let to = fields.get("$ref").and_then(Value::as_str);
            if let Some(name) = to.and_then(|to| to.strip_prefix("#/$defs/"))
                && names.insert(name.to_owned())
            {
                add_parts(all, &all[name], names);
            }
            fields.values().for_each(|field| add_parts(all, field, names));
        }
        Value::Array(items) => items.iter().for_each(|item| add_parts(all, item, names)),
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn failure(words: &str) -> Failure {
        let command = words.split(' ').map(str::to_owned).collect();
        run(&SchemaArgs { command }, Format::Json).unwrap_err()
    }

    #[test]
    fn every_command_has_a_definition_or_prints_no_json() {
        let mut cli = Cli::command();
        cli.build();
        let document = document().unwrap();
        let mut defined: Vec<&str> = commands(&document);
        defined.extend(WITHOUT_JSON.iter().map(|(name, _)| name));
        let mut grammar: Vec<&str> = leaves(&cli).into_iter().map(name_of).collect();
        defined.sort_unstable();
        grammar.sort_unstable();
        assert_eq!(defined, grammar);
    }

    #[test]
    fn every_part_that_is_referred_to_exists() {
        let document = document().unwrap();
        let all = &document["$defs"];
        let mut names = BTreeSet::new();
        add_parts(all, all, &mut names);
        for name in names {
            assert!(all.get(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_document_of_a_command_has_all_that_it_refers_to() {
        let document = document().unwrap();
        let of_job = part(&document, "job get");
        assert_eq!(of_job["$ref"], "#/$defs/Job");
        let parts: Vec<_> = of_job["$defs"].as_object().unwrap().keys().collect();
        assert_eq!(parts, ["Job", "JobKind"]);
        assert!(part(&document, "du").get("$defs").is_none());
    }

    #[test]
    fn aliases_and_the_name_of_the_program_are_accepted() {
        let document = document().unwrap();
        for (words, name) in [
            ("bucket info", "bucket show"),
            ("list", "ls"),
            ("forebay job get", "job get"),
            ("trace", "trace"),
        ] {
            assert_eq!(known(words, &document).unwrap(), name);
        }
    }

    #[test]
    fn an_unknown_command_gets_the_nearest_name() {
        let unknown = failure("job gte");
        assert_eq!(unknown.code, 4);
        assert_eq!(unknown.error.unwrap().hint.unwrap(), "did you mean job get?");
        let without = failure("gateway");
        assert!(without.code == 4 && without.error.unwrap().message.contains("prints no JSON"));
        let group = failure("node join-token").error.unwrap();
        assert!(group.hint.unwrap().contains("node join-token create"), "{}", group.message);
    }
}
