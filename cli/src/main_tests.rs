//! Tests of the grammar: every command has its help, and options stand anywhere.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use super::{Cli, Command, SERVERS, parse};

/// Every command without subcommands, with its full name.
fn leaves(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
    let path = format!("{path} {}", command.get_name());
    let below = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    let found: Vec<_> = below.flat_map(|sub| leaves(sub, &path)).collect();
    if found.is_empty() { vec![(path, command.clone())] } else { found }
}

#[test]
fn every_command_shows_examples_that_fit_a_terminal() {
    for (path, command) in leaves(&Cli::command(), "") {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let is_shown = after.contains("Example") && after.contains(path.trim());
        assert!(is_shown || command.get_name() == "version", "{path}: {after}");
        for line in after.lines() {
            assert!(line.chars().count() <= 80, "{path}: {line}");
        }
    }
}

#[test]
fn commands_that_run_servers_show_no_options_of_clients() {
    let help = |line: &[&str]| {
        let line = line.iter().map(OsString::from).collect();
        parse(line).map(drop).unwrap_err().to_string()
    };
    for server in SERVERS {
        let shown = help(&["forebay", server, "--help"]);
        assert!(!shown.contains("Client options") && shown.contains("Usage"), "{shown}");
    }
    assert!(help(&["forebay", "ls", "--help"]).contains("Client options"));
    assert!(help(&["forebay"]).contains("Usage: forebay"));
    let words = ["forebay", "help", "ls"].iter().map(OsString::from).collect();
    assert!(matches!(parse(words).unwrap().command, Command::Help(_)));
}

#[test]
fn the_grammar_is_sound_and_every_command_helps() {
    let mut cli = Cli::command();
    cli.clone().debug_assert();
    for sub in cli.get_subcommands_mut() {
        let help = sub.render_long_help().to_string();
        assert!(sub.get_about().is_some() && help.contains("Usage"), "{help}");
    }
}

#[test]
fn client_options_stand_anywhere() {
    for line in [
        ["forebay", "-o", "json", "ls", "ais://b"],
        ["forebay", "ls", "-o", "json", "ais://b"],
        ["forebay", "ls", "ais://b", "-o", "json"],
    ] {
        let parsed = Cli::try_parse_from(line);
        assert!(parsed.is_ok_and(|cli| cli.client.output().is_json()), "{line:?}");
    }
    assert!(Cli::try_parse_from(["forebay", "version", "-o", "json"]).is_ok());
    assert!(Cli::try_parse_from(["forebay", "get", "ais://b/o", "-", "--range", "-5"]).is_ok());
    for bad in [&["forebay"][..], &["forebay", "ls", "--what"], &["forebay", "mb"]] {
        assert!(Cli::try_parse_from(bad).is_err(), "{bad:?}");
    }
}
