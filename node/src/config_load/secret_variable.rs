//! Variables that name a file with the value of a setting: `FOREBAY_S3__KEYS_FILE`.

use std::path::Path;

use forebay_core::{Error, Result};

use super::env_path;
use crate::secret_file;

/// Settings whose values may have secrets: errors do not show them. The other secrets are in files anyway.
pub(super) const SECRETS: [&str; 5] =
    ["s3.keys", "audit.url", "auth.issuer", "etl.command", "trace.endpoint"];
const SUFFIX: &str = "_FILE";

/// The setting, its source and its value, if the variable names a file with the value of a setting.
pub(super) fn read(
    key: &str,
    value: &str,
    variables: &[(String, String)],
) -> Result<Option<(String, String, String)>> {
    let Some(plain) = key.strip_suffix(SUFFIX) else { return Ok(None) };
    let Some(path) = env_path(plain).filter(|path| SECRETS.contains(&path.as_str())) else {
        return Ok(None);
    };
    if variables.iter().any(|(other, _)| other == plain) {
        let text = format!("environment: {plain} and {key} are both set");
        return Err(Error::invalid(text).hint(format!("unset one of them; {key} is the safer one")));
    }
    let origin = format!("environment {key}");
    let text = secret_file::read_text(&origin, Path::new(value))?;
    Ok(Some((path, origin, text.trim().to_owned())))
}
