//! Google's application default credentials, created again when they fail.
//!
//! Google's crate renews tokens by itself. But after a response that it takes for final it never
//! retries, after any other only ten seconds later, and it waits without a timeout. A node runs
//! longer than that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::locks::MutexExt;
use google_cloud_auth::build_errors::Error as BuildError;
use google_cloud_auth::credentials::{
    Builder, CacheableResource, Credentials, CredentialsProvider, external_account,
    service_account, user_account,
};
use google_cloud_gax::error::CredentialsError;
use http::{Extensions, HeaderMap};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::account::CredentialFile;

/// Scope of the tokens: to read and write objects, not to manage buckets.
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
/// Longest wait for a token.
const ANSWER: Duration = Duration::from_secs(10);
/// Shortest interval between token requests of calls that failed.
const PAUSE: Duration = Duration::from_secs(1);

type Headers = Result<CacheableResource<HeaderMap>, CredentialsError>;

/// See the module.
#[derive(Debug)]
pub(super) struct Renewed {
    /// The credential of an account of the configuration.
    file: Option<Arc<CredentialFile>>,
    current: Mutex<Made>,
    /// Whether a failure is likely to pass: there was a token before, or the configuration names a
    /// source of tokens. At hosts other than Google's there may be no token service at all.
    expected: AtomicBool,
}

#[derive(Clone, Debug)]
struct Made {
    credentials: Credentials,
    at: Instant,
}

impl Renewed {
    /// Fails if the files that the environment names cannot be read, or if `file` has no credential.
    pub(super) fn new(file: Option<Arc<CredentialFile>>) -> Result<Self, BuildError> {
        let named = ["GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"];
        let is_named = named.into_iter().any(|name| std::env::var_os(name).is_some());
        let expected = (file.is_some() || is_named).into();
        let credentials = make(file.as_deref())?;
        let current = Mutex::new(Made { credentials, at: Instant::now() });
        Ok(Self { file, current, expected })
    }

    fn current(&self) -> Made {
        self.current.locked().clone()
    }

    /// New credentials in place of those that failed; `None` if the last ones were created too
    /// recently.
    fn others(&self, failed: &Made) -> Option<Credentials> {
        let mut current = self.current.locked();
        if current.at == failed.at {
            if failed.at.elapsed() < PAUSE {
                return None;
            }
            // A file that was readable at the start may be in the middle of a change now.
            let credentials = make(self.file.as_deref()).ok()?;
            *current = Made { credentials, at: Instant::now() };
        }
        Some(current.credentials.clone())
    }

    async fn ask(&self, credentials: &Credentials, extensions: Extensions) -> Headers {
        match timeout(ANSWER, credentials.headers(extensions)).await {
            Ok(Ok(headers)) => {
                self.expected.store(true, Ordering::Relaxed);
                Ok(headers)
            }
            Ok(Err(e)) => Err(e),
            Err(_) => Err(CredentialsError::from_msg(true, "no token came in time")),
        }
    }
}

impl CredentialsProvider for Renewed {
    async fn headers(&self, extensions: Extensions) -> Headers {
        let current = self.current();
        let failure = match self.ask(&current.credentials, extensions.clone()).await {
            Ok(headers) => return Ok(headers),
            Err(e) => e,
        };
        // Where no token was ever likely, the crate's own retries suffice.
        let expected = self.expected.load(Ordering::Relaxed);
        let worth_it = expected || !failure.is_transient();
        let failure = match worth_it.then(|| self.others(&current)).flatten() {
            Some(others) => match self.ask(&others, extensions).await {
                Ok(headers) => return Ok(headers),
                Err(e) => e,
            },
            None => failure,
        };
        Err(CredentialsError::from_source(failure.is_transient() && expected, failure))
    }

    async fn universe_domain(&self) -> Option<String> {
        timeout(ANSWER, self.current().credentials.universe_domain()).await.ok().flatten()
    }
}

fn make(file: Option<&CredentialFile>) -> Result<Credentials, BuildError> {
    if let Some(file) = file {
        // Text that is no JSON is null, which each kind of account refuses by name.
        let json: Value = serde_json::from_str(&file.text()).unwrap_or_default();
        let scopes = [SCOPE];
        return match json["type"].as_str() {
            Some("authorized_user") => user_account::Builder::new(json).with_scopes(scopes).build(),
            Some("external_account") => {
                external_account::Builder::new(json).with_scopes(scopes).build()
            }
            _ => {
                let scopes = service_account::AccessSpecifier::from_scopes(scopes);
                service_account::Builder::new(json).with_access_specifier(scopes).build()
            }
        };
    }
    Builder::default().with_scopes([SCOPE]).build()
}
