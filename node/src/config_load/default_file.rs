//! Which configuration file a node reads if no flag names one.

use std::path::{Path, PathBuf};

use forebay_core::{Error, Result};

/// The file that is read if neither a flag nor the environment names one.
pub const DEFAULT_FILE: &str = "/etc/forebay/forebay.toml";
/// Names the file in the environment.
const VARIABLE: &str = "FOREBAY_CONFIG";

/// The configuration file of a node: `given` by a flag, else `FOREBAY_CONFIG`, else [`DEFAULT_FILE`] if it
/// exists.
pub fn choose_file(given: Option<&Path>) -> Result<PathBuf> {
    let variable = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
    choose(given, variable.map(PathBuf::from), Path::new(DEFAULT_FILE))
}

fn choose(given: Option<&Path>, variable: Option<PathBuf>, default: &Path) -> Result<PathBuf> {
    if let Some(file) = given.map(Path::to_owned).or(variable) {
        return Ok(file);
    }
    // A file that exists and cannot be read has an error of its own.
    match default.try_exists() {
        Ok(false) => Err(Error::invalid("there is no configuration file")
            .hint(format!("give --config FILE, set {VARIABLE}, or write {}", default.display()))),
        _ => Ok(default.to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_overrides_the_variable_and_the_variable_the_default_file() {
        let dir = tempfile::tempdir().unwrap();
        let default = dir.path().join("forebay.toml");
        let error = choose(None, None, &default).unwrap_err();
        assert!(error.hint.unwrap().contains("FOREBAY_CONFIG"));
        std::fs::write(&default, "").unwrap();
        assert_eq!(choose(None, None, &default).unwrap(), default);
        let variable = || Some(PathBuf::from("/v"));
        assert_eq!(choose(None, variable(), &default).unwrap(), Path::new("/v"));
        let flag = Some(Path::new("/f"));
        assert_eq!(choose(flag, variable(), &default).unwrap(), Path::new("/f"));
    }
}
