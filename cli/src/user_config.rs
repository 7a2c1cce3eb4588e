//! The configuration file of a user, which the Python client reads too: an endpoint, CAs, and profiles
//! with those of further clusters.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use forebay_core::{Error, Result};
use forebay_node::config_load::not_toml;
use toml::{Table, Value};

/// Section of the profiles.
const PROFILES: &str = "profile";

/// The content of the file; empty if it does not exist.
#[derive(Debug, Default)]
pub(crate) struct UserConfig {
    path: PathBuf,
    table: Table,
}

/// Where a user reaches a cluster: a profile, or the settings of the file that are in none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) endpoint: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
}

impl UserConfig {
    /// Reads the file that the environment names, or that of the user.
    pub(crate) fn of_user() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        path_by(variable).map_or_else(|| Ok(Self::default()), Self::read)
    }

    fn read(path: PathBuf) -> Result<Self> {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self { path, table: Table::new() });
            }
            Err(e) => return Err(Error::invalid(format!("{}: {e}", path.display()))),
        };
        let table = text.parse().map_err(|e| not_toml(&path, &text, &e))?;
        Ok(Self { path, table })
    }

    /// The settings outside profiles.
    pub(crate) fn access(&self) -> Result<Access> {
        self.access_of(&self.table, "")
    }

    /// The settings of a profile. A profile without `ca_file` has that of the file.
    pub(crate) fn profile(&self, name: &str) -> Result<Access> {
        let profiles = self.profiles()?;
        let Some(Value::Table(table)) = profiles.and_then(|all| all.get(name)) else {
            let known: Vec<_> = profiles.into_iter().flat_map(Table::keys).cloned().collect();
            let text = format!("{}: there is no profile \"{name}\"", self.path.display());
            return Err(Error::invalid(text).hint(match known.is_empty() {
                true => format!("add it: [{PROFILES}.{name}] with endpoint = \"URL\""),
                false => format!("the profiles are {}", known.join(", ")),
            }));
        };
        let mut access = self.access_of(table, &format!("{PROFILES}.{name}."))?;
        if access.endpoint.is_none() {
            return Err(self.bad(&format!("{PROFILES}.{name} has no endpoint")));
        }
        if access.ca_file.is_none() {
            access.ca_file = self.access()?.ca_file;
        }
        Ok(access)
    }

    /// The names of all profiles with their settings, in order of name.
    pub(crate) fn all_profiles(&self) -> Result<Vec<(String, Access)>> {
        let names = self.profiles()?.into_iter().flat_map(Table::keys);
        let mut all: Vec<_> =
            names.map(|name| Ok((name.clone(), self.profile(name)?))).collect::<Result<_>>()?;
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    fn profiles(&self) -> Result<Option<&Table>> {
        match self.table.get(PROFILES) {
            None => Ok(None),
            Some(Value::Table(all)) => match all.iter().find(|(_, value)| !value.is_table()) {
                Some((name, _)) => Err(self.bad(&format!("{PROFILES}.{name} must be a table"))),
                None => Ok(Some(all)),
            },
            Some(_) => Err(self.bad(&format!("{PROFILES} must be a table of profiles"))),
        }
    }

    fn access_of(&self, table: &Table, section: &str) -> Result<Access> {
        let text = |key: &str, form: &str| match table.get(key) {
            None => Ok(None),
            Some(Value::String(set)) if !set.trim().is_empty() => Ok(Some(set.trim().to_owned())),
            Some(other) => Err(self.bad(&format!("{section}{key} must be {form}, not {other}"))),
        };
        Ok(Access {
            endpoint: text("endpoint", "a URL")?,
            ca_file: text("ca_file", "a path")?.map(PathBuf::from),
        })
    }

    fn bad(&self, what: &str) -> Error {
        Error::invalid(format!("{}: {what}", self.path.display()))
    }
}

/// The configuration file, whether it exists or not; `None` without a home.
fn path_by(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(named) = variable("FOREBAY_CONFIG") {
        return Some(named.into());
    }
    let of_home = || Some(Path::new(&variable("HOME")?).join(".config"));
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(of_home)?;
    Some(folder.join("forebay").join("config.toml"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<UserConfig> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        UserConfig::read(path)
    }

    #[test]
    fn the_file_is_where_the_python_client_looks() {
        let of = |set: &'static [(&str, &str)]| {
            path_by(move |name| {
                set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let named = of(&[("FOREBAY_CONFIG", "/x.toml"), ("HOME", "/h")]).unwrap();
        assert_eq!(named, Path::new("/x.toml"));
        let here = Path::new("/c/forebay/config.toml");
        assert_eq!(of(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]).unwrap(), here);
        assert_eq!(of(&[("HOME", "/h")]).unwrap(), Path::new("/h/.config/forebay/config.toml"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_missing_file_and_one_without_an_endpoint_set_none() {
        let missing = UserConfig::read("/nowhere/config.toml".into()).unwrap();
        assert_eq!(missing.access().unwrap(), Access::default());
        let other = read("[local]\nenabled = false\n").unwrap();
        assert_eq!(other.access().unwrap(), Access::default());
        let padded = read("endpoint = \" http://h:7400 \"\n").unwrap().access().unwrap();
        assert_eq!(padded.endpoint.as_deref(), Some("http://h:7400"));
    }

    #[test]
    fn an_endpoint_that_is_no_text_is_an_error_with_the_file() {
        for bad in ["endpoint = 7400\n", "endpoint = \"\"\n", "endpoint\n"] {
            let error = read(bad).and_then(|config| config.access()).unwrap_err();
            assert!(error.message.contains("config.toml"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_profile_has_its_own_endpoint_and_the_cas_of_the_file_unless_it_names_its_own() {
        let config = read(
            "endpoint = \"http://a\"\nca_file = \"/all.pem\"\n[profile.lab]\nendpoint = \"https://lab\"\n\
             [profile.prod]\nendpoint = \"https://prod\"\nca_file = \"/prod.pem\"\n",
        )
        .unwrap();
        let names: Vec<_> = config.all_profiles().unwrap().into_iter().map(|(n, _)| n).collect();
        assert_eq!(names, ["lab", "prod"]);
        let lab = config.profile("lab").unwrap();
        assert_eq!(lab.endpoint.as_deref(), Some("https://lab"));
        assert_eq!(lab.ca_file.as_deref(), Some(Path::new("/all.pem")));
        let prod = config.profile("prod").unwrap();
        assert_eq!(prod.ca_file.as_deref(), Some(Path::new("/prod.pem")));
        assert_eq!(config.access().unwrap().endpoint.as_deref(), Some("http://a"));
    }

    #[test]
    fn an_unknown_profile_is_an_error_with_the_known_ones() {
        let config = read("[profile.lab]\nendpoint = \"https://lab\"\n").unwrap();
        let error = config.profile("lba").unwrap_err();
        assert!(error.message.contains("no profile \"lba\""), "{error}");
        assert_eq!(error.hint.as_deref(), Some("the profiles are lab"));
        assert!(
            read("").unwrap().profile("lab").unwrap_err().hint.unwrap().contains("[profile.lab]")
        );
    }

    #[test]
    fn a_profile_that_cannot_be_meant_is_an_error() {
        for bad in ["[profile.lab]\n", "[profile]\nlab = 7\n", "profile = \"lab\"\n"] {
            assert!(read(bad).unwrap().profile("lab").is_err(), "{bad}");
        }
    }
}
