//! `forebay config`: the settings of a node on this machine, with their sources; checks of files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use forebay_core::Error;
use forebay_node::config_load::{self, Setting};
use serde_json::{Value, json};

use crate::config_edit::{self, SetArgs, UnsetArgs};
use crate::failure::{Failure, exit};
use crate::output::{Column, Format, Row, Rows};
use crate::user_config::UserConfig;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the settings that a node on this machine has, from file and environment
    #[command(after_help = "Examples:
  forebay config show                      reads the file that a node would read
  forebay config show --config target.toml --origin
  forebay config show -o json

Secrets are shown as ***. Flags of `forebay serve` and `forebay dev` are not
known here. Exit code 2 if the configuration is invalid.")]
    Show(ShowArgs),
    /// Check a configuration file, and print all of its errors
    #[command(after_help = "Example:
  forebay config validate /etc/forebay/target.toml

The environment is left out, and files that the settings name are not read.
Exit code 2 if the file has errors.")]
    Validate(ValidateArgs),
    /// Show the settings of a file that are not the defaults, or those in which two files differ
    #[command(after_help = "Examples:
  forebay config diff /etc/forebay/target.toml
  forebay config diff old.toml new.toml

The environment is left out. Secrets are shown as ***; two secrets that differ
look the same.")]
    Diff(DiffArgs),
    /// Change one setting in a configuration file, if the file is valid then
    #[command(after_help = "Examples:
  forebay config set log.level debug
  forebay config set limits.client_timeout_s 30 --config target.toml
  forebay config set cache.high 85 --dry-run

Comments in the file stay. A key of a list, such as disk.path, is edited by
hand. Exit code 2 if the file would be invalid; it is unchanged then.")]
    Set(SetArgs),
    /// Remove one setting from a configuration file, so that its default applies
    #[command(after_help = "Example:
  forebay config unset log.level

Exit code 2 if the file would be invalid; it is unchanged then.")]
    Unset(UnsetArgs),
    /// List the profiles in the configuration file of this user
    #[command(after_help = "Example:
  forebay config profiles

A profile is a table [profile.NAME] with `endpoint`, and perhaps `ca_file`, in
~/.config/forebay/config.toml, or in the file that FOREBAY_CONFIG names. The
option --profile or FOREBAY_PROFILE selects one.")]
    Profiles,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Configuration file [default: FOREBAY_CONFIG, else /etc/forebay/forebay.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show where each value comes from: default, line of the file, or variable
    #[arg(long)]
    origin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Configuration file of a node
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Configuration file of a node
    file: PathBuf,
    /// File to compare it with [default: the defaults]
    other: Option<PathBuf>,
}

/// Runs a command that needs no cluster; returns the exit code.
pub(crate) fn run(command: &ConfigCommand, format: Format) -> u8 {
    let result = match command {
        ConfigCommand::Show(args) => show(args, format),
        ConfigCommand::Validate(args) => validate(args, format),
        ConfigCommand::Diff(args) => diff(args, format),
        ConfigCommand::Set(args) => config_edit::set(args, format),
        ConfigCommand::Unset(args) => config_edit::unset(args, format),
        ConfigCommand::Profiles => profiles(format),
    };
    match result {
        Ok(()) => exit::OK,
        Err(failure) => {
            failure.report(format.is_json());
            failure.code
        }
    }
}

fn show(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    // Without a file, variables alone may configure a node.
    let file = config_load::choose_file(args.config.as_deref()).ok();
    let loaded = config_load::load(file.as_deref(), &[])?;
    let mut columns = vec![Column("KEY", false), Column("VALUE", false)];
    columns.extend(args.origin.then_some(Column("ORIGIN", false)));
    let mut rows = Rows::new(format, &columns);
    for setting in loaded.settings() {
        let mut cells = vec![setting.key.clone(), setting.value.to_string()];
        cells.extend(args.origin.then(|| setting.origin.clone()));
        let json = json!({
            "key": setting.key, "value": as_json(&setting), "origin": setting.origin,
        });
        rows.push(Row { name: setting.key, cells, json })?;
    }
    rows.finish()
}

fn as_json(setting: &Setting) -> Value {
    // Settings have no dates, and all other values of TOML are values of JSON.
    serde_json::to_value(&setting.value).unwrap_or_default()
}

fn validate(args: &ValidateArgs, format: Format) -> Result<(), Failure> {
    let (warnings, problems) = match config_load::load_file(&args.file) {
        Ok(loaded) => {
            let level = forebay_node::telemetry::check_level(&loaded.config.log);
            (loaded.warnings, Vec::from_iter(level.err()))
        }
        Err(problems) => (Vec::new(), problems),
    };
    if format.is_json() {
        let problems: Vec<_> = problems.iter().map(problem_json).collect();
        let json = json!({
            "file": args.file, "valid": problems.is_empty(),
            "problems": problems, "warnings": warnings,
        });
        let _ = writeln!(std::io::stdout(), "{json}");
    } else {
        let mut err = std::io::stderr();
        for warning in &warnings {
            let _ = writeln!(err, "warning: {warning}");
        }
        for problem in &problems {
            let _ = writeln!(err, "error: {}", problem.message);
            if let Some(hint) = &problem.hint {
                let _ = writeln!(err, "hint: {hint}");
            }
        }
        if problems.is_empty() {
            let end = if format == Format::Name { "" } else { " is valid" };
            let _ = writeln!(std::io::stdout(), "{}{end}", args.file.display());
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::silent(exit::USAGE)),
    }
}

fn problem_json(problem: &Error) -> Value {
    json!({ "message": problem.message, "hint": problem.hint })
}

fn diff(args: &DiffArgs, format: Format) -> Result<(), Failure> {
    let first = |mut problems: Vec<Error>| problems.swap_remove(0);
    let of_file = config_load::load_file(&args.file).map_err(first)?.settings();
    let (one, other, titles) = match &args.other {
        Some(other) => {
            let other = config_load::load_file(other).map_err(first)?.settings();
            (of_file, other, ["FIRST", "SECOND"])
        }
        None => (config_load::defaults(), of_file, ["DEFAULT", "VALUE"]),
    };
    let columns = [Column("KEY", false), Column(titles[0], false), Column(titles[1], false)];
    let mut rows = Rows::new(format, &columns);
    for (key, [one, other]) in differences(one, other) {
        let shown = |side: &Option<Setting>| {
            side.as_ref().map_or_else(|| "-".to_owned(), |setting| setting.value.to_string())
        };
        let names = titles.map(str::to_ascii_lowercase);
        let json = json!({
            "key": key, &names[0]: one.as_ref().map(as_json), &names[1]: other.as_ref().map(as_json),
        });
        rows.push(Row { name: key.clone(), cells: vec![key, shown(&one), shown(&other)], json })?;
    }
    rows.finish()
}

fn profiles(format: Format) -> Result<(), Failure> {
    let columns = [Column("PROFILE", false), Column("ENDPOINT", false), Column("CAS", false)];
    let mut rows = Rows::new(format, &columns);
    for (name, access) in UserConfig::of_user()?.all_profiles()? {
        let ca_file = access.ca_file.map(|path| path.display().to_string());
        let json = json!({ "profile": name, "endpoint": access.endpoint, "ca_file": ca_file });
        let cells = vec![
            name.clone(),
            access.endpoint.unwrap_or_default(),
            ca_file.unwrap_or_else(|| "-".to_owned()),
        ];
        rows.push(Row { name, cells, json })?;
    }
    rows.finish()
}

/// The settings that only one side has, or that have other values there.
fn differences(one: Vec<Setting>, other: Vec<Setting>) -> BTreeMap<String, [Option<Setting>; 2]> {
    let mut sides: BTreeMap<String, [Option<Setting>; 2]> = BTreeMap::new();
    for (side, settings) in [one, other].into_iter().enumerate() {
        for setting in settings {
            let pair = sides.entry(setting.key.clone()).or_default();
            pair[side] = Some(setting);
        }
    }
    let value = |side: &Option<Setting>| side.as_ref().map(|setting| setting.value.clone());
    sides.retain(|_, [one, other]| value(one) != value(other));
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str, value: i64) -> Setting {
        Setting { key: key.into(), value: value.into(), origin: "default".into() }
    }

    #[test]
    fn settings_of_one_side_and_other_values_differ() {
        let one = vec![setting("a", 1), setting("b", 2), setting("c", 3)];
        let other = vec![setting("a", 1), setting("b", 7), setting("d", 4)];
        let keys: Vec<_> = differences(one, other).into_keys().collect();
        assert_eq!(keys, ["b", "c", "d"]);
    }
}
