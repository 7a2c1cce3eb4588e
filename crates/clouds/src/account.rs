//! An account of the configuration: its name, its servers, and its credentials in files.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::Result;
use forebay_core::config::CloudConfig;
use forebay_core::egress::{Egress, EgressRule};
use forebay_core::locks::MutexExt;
use forebay_node::secret_file;

/// Time for which the content of a credential file is used before the file is read again.
pub(crate) const REREAD: Duration = Duration::from_secs(10);

/// An account of the configuration, as its clients need it.
#[derive(Clone, Debug)]
pub struct NamedAccount {
    pub(crate) name: Arc<str>,
    /// Servers beside its endpoint that get its credentials.
    pub(crate) servers: EgressRule,
}

impl NamedAccount {
    pub(crate) fn of(config: &CloudConfig) -> Result<Self> {
        let servers = EgressRule::new(Egress::Public, config.servers()?);
        Ok(Self { name: config.name.as_str().into(), servers })
    }
}

/// A file with a credential, which may be replaced while the node runs.
pub struct CredentialFile {
    setting: String,
    path: PathBuf,
    last: Mutex<(Instant, Arc<str>)>,
}

impl std::fmt::Debug for CredentialFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl CredentialFile {
    /// Fails if the file cannot be read, or if other users can.
    pub(crate) fn open(account: &str, key: &str, path: &str) -> Result<Arc<Self>> {
        let (setting, path) = (format!("cloud \"{account}\": {key}"), PathBuf::from(path));
        let text = secret_file::read_text(&setting, &path)?;
        let last = Mutex::new((Instant::now(), text.trim().into()));
        Ok(Arc::new(Self { setting, path, last }))
    }

    /// The file of a setting that is not empty.
    pub(crate) fn optional(account: &str, key: &str, path: &str) -> Result<Option<Arc<Self>>> {
        (!path.is_empty()).then(|| Self::open(account, key, path)).transpose()
    }

    /// The content without the line end. If the file cannot be read at the moment, the last content
    /// serves.
    pub(crate) fn text(&self) -> Arc<str> {
        let mut last = self.last.locked();
        if last.0.elapsed() >= REREAD {
            last.0 = Instant::now();
            match secret_file::read_text(&self.setting, &self.path) {
                Ok(text) if *text.trim() != *last.1 => last.1 = text.trim().into(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "the last content of a credential file serves")
                }
            }
        }
        Arc::clone(&last.1)
    }

    /// The path, for descriptions of the credential.
    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// The hint of an error about the credential of an account, in place of one about the environment.
pub(crate) fn credential_hint(account: &str) -> String {
    format!(
        "check the credential of [[cloud]] \"{account}\" in the configuration of the targets; new content \
         of its file is used within {} s",
        3 * REREAD.as_secs()
    )
}
