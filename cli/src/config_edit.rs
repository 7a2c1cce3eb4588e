//! `forebay config set` and `unset`: change one setting in a configuration file. Comments and the order of
//! the other settings stay.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use clap::Args;
use forebay_core::Error;
use forebay_node::{config_load, reload};
use serde_json::json;
use toml_edit::{DocumentMut, Item, Table, Value};

use crate::failure::{Failure, exit};
use crate::output::{self, Format};
use crate::part::Part;

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Key with its section, such as log.level
    key: String,
    /// Value in TOML; other text is a string
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UnsetArgs {
    /// Key with its section, such as log.level
    key: String,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Args)]
struct FileArgs {
    /// Configuration file [default: FOREBAY_CONFIG, else /etc/forebay/forebay.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the change, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Sets a key in the file; nothing changes if the file would have errors then.
pub(crate) fn set(args: &SetArgs, format: Format) -> Result<(), Failure> {
    let value = value_of(&args.value);
    edit(&args.file, &args.key, Some(value), format)
}

/// Removes a key from the file, so that it has its default.
pub(crate) fn unset(args: &UnsetArgs, format: Format) -> Result<(), Failure> {
    edit(&args.file, &args.key, None, format)
}

fn edit(args: &FileArgs, key: &str, value: Option<Value>, format: Format) -> Result<(), Failure> {
    let named = config_load::choose_file(args.config.as_deref())?;
    // A link, such as to a file in another folder, stays a link.
    let file = fs::canonicalize(&named).map_err(|e| Failure::local(named.display(), &e))?;
    let text = fs::read_to_string(&file).map_err(|e| Failure::local(file.display(), &e))?;
    let shown = value.as_ref().map(|value| value.to_string().trim().to_owned());
    let new = changed(&file, &text, key, value)?;
    let is_changed = new != text;
    write_checked(&file, &new, is_changed && !args.dry_run)?;
    let (effect, hint) = match (is_changed, reload::LIVE.contains(&key)) {
        (false, _) => ("none", "nothing changes"),
        (true, true) => ("reload", "a running node applies it at SIGHUP (systemctl reload)"),
        (true, false) => ("restart", "a running node applies it after a restart"),
    };
    let json = json!({
        "file": file, "key": key, "value": shown, "needs": effect, "written": is_changed && !args.dry_run,
    });
    let fields = [
        ("file", file.display().to_string()),
        ("key", key.to_owned()),
        ("value", shown.unwrap_or_else(|| "the default".to_owned())),
        ("note", hint.to_owned()),
    ];
    output::one(format, key, &fields, &json)
}

/// The value of an argument: TOML, or else a string.
fn value_of(text: &str) -> Value {
    text.trim().parse().unwrap_or_else(|_| Value::from(text))
}

/// The text of the file with the key set to this value, or without it.
fn changed(file: &Path, text: &str, key: &str, value: Option<Value>) -> Result<String, Error> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| {
        Error::invalid(format!("{}: {}", file.display(), e.message()))
    })?;
    let parts: Vec<&str> = key.split('.').collect();
    let (Some((last, sections)), true) = (parts.split_last(), parts.iter().all(|p| is_name(p)))
    else {
        return Err(unknown(key));
    };
    if sections.is_empty() {
        return Err(unknown(key));
    }
    let Some(value) = value else {
        let of_root = Some(document.as_table_mut());
        let table = sections.iter().try_fold(of_root, |at, part| match at {
            Some(table) => Ok(table.get_mut(part).and_then(Item::as_table_mut)),
            None => Ok::<_, Error>(None),
        })?;
        if let Some(table) = table {
            table.remove(last);
        }
        return Ok(document.to_string());
    };
    let mut table = document.as_table_mut();
    for part in sections {
        let item = table.entry(part).or_insert_with(|| Item::Table(Table::new()));
        table = item.as_table_mut().ok_or_else(|| {
            let text = format!("{key}: {part} of {} is not a table", file.display());
            Error::invalid(text).hint("edit the file by hand: it has one entry for each of a list")
        })?;
    }
    match table.get_mut(last).and_then(Item::as_value_mut) {
        // The comment behind the former value stays.
        Some(old) => {
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        None => {
            table.insert(last, Item::Value(value));
        }
    }
    Ok(document.to_string())
}

fn is_name(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn unknown(key: &str) -> Error {
    Error::invalid(format!("\"{key}\" is not a key of a configuration file"))
        .hint("write it with its section, such as log.level; `forebay config show` lists all keys")
}

/// Checks the new text of the file. Replaces the file by it if `is_written`, with the same owner and mode.
fn write_checked(file: &Path, text: &str, is_written: bool) -> Result<(), Failure> {
    let about = fs::metadata(file).map_err(|e| Failure::local(file.display(), &e))?;
    let part = Part::beside(file);
    let new = part.path();
    let written = (|| {
        let mut out = fs::OpenOptions::new().write(true).create_new(true).open(new)?;
        out.set_permissions(fs::Permissions::from_mode(about.mode() & 0o7777))?;
        fchown(&out, Some(about.uid()), Some(about.gid()))?;
        out.write_all(text.as_bytes())?;
        out.sync_all()
    })();
    written.map_err(|e| Failure::local(new.display(), &e))?;
    if let Err(problems) = config_load::load_file(new) {
        return Err(refused(file, new, problems));
    }
    if is_written {
        fs::rename(new, file).map_err(|e| Failure::local(file.display(), &e))?;
    }
    Ok(())
}

/// The first error of the new text, under the name of the file that the user knows.
fn refused(file: &Path, new: &Path, mut problems: Vec<Error>) -> Failure {
    let more = problems.len().saturating_sub(1);
    let Error { message, hint, .. } = problems.swap_remove(0);
    let named = |text: String| text.replace(&*new.to_string_lossy(), &file.to_string_lossy());
    let mut message = named(message);
    if more > 0 {
        message.push_str(&format!(", and {more} more"));
    }
    let error = Error::invalid(message);
    Failure::new(
        exit::USAGE,
        Some(match hint {
            Some(hint) => error.hint(named(hint)),
            None => error.hint("the file is unchanged"),
        }),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FILE: &str = "# Of the lab.\n[log]\nlevel = \"info\" # for now\n\n[cache]\nhigh = 90\n";

    fn with(key: &str, value: Option<&str>) -> Result<String, Error> {
        changed(Path::new("t.toml"), FILE, key, value.map(value_of))
    }

    #[test]
    fn a_changed_value_keeps_the_comments_and_the_other_settings() {
        let new = with("log.level", Some("debug")).unwrap();
        assert_eq!(new, FILE.replace("\"info\"", "\"debug\""));
    }

    #[test]
    fn a_new_key_comes_into_its_section_and_a_new_section_at_the_end() {
        let new = with("cache.low", Some("70")).unwrap();
        assert!(new.ends_with("[cache]\nhigh = 90\nlow = 70\n"), "{new}");
        let new = with("trace.sample", Some("0.5")).unwrap();
        assert!(new.ends_with("[trace]\nsample = 0.5\n"), "{new}");
    }

    #[test]
    fn values_are_toml_or_else_text() {
        assert_eq!(value_of("42").as_integer(), Some(42));
        assert_eq!(value_of("8MiB").as_str(), Some("8MiB"));
        assert_eq!(value_of("[\"a\"]").as_array().map(|list| list.len()), Some(1));
        assert_eq!(value_of("\"42\"").as_str(), Some("42"));
    }

    #[test]
    fn an_unset_key_is_gone_and_a_missing_one_changes_nothing() {
        assert_eq!(with("cache.high", None).unwrap(), FILE.replace("high = 90\n", ""));
        assert_eq!(with("scrub.enabled", None).unwrap(), FILE);
    }

    #[test]
    fn a_key_without_a_section_or_of_a_list_is_refused() {
        for bad in ["level", "", "log..level", "disk[0].path", "log.le vel"] {
            assert!(with(bad, Some("1")).is_err(), "{bad}");
        }
        let list = "[[disk]]\npath = \"/a\"\n";
        let error = changed(Path::new("t.toml"), list, "disk.path", Some("b".into())).unwrap_err();
        assert!(error.hint.unwrap().contains("by hand"));
    }
}
