//! Google's application default credentials, created again when they fail.
//!
//! Google's crate renews tokens by itself. But after a response that it takes for final it never
//! retries, after any other only ten seconds later, and it waits without a timeout. A node runs
//! longer than that.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::locks::MutexExt;
use google_cloud_auth::build_errors::Error as BuildError;
use google_cloud_auth::credentials::{
    Builder, CacheableResource, Credentials, CredentialsProvider,
};
use google_cloud_gax::error::CredentialsError;
use http::{Extensions, HeaderMap};
use tokio::time::{Instant, timeout};

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
    /// Fails if the files that the environment names cannot be read.
    pub(super) fn new() -> Result<Self, BuildError> {
        let named = ["GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"];
        let expected = named.into_iter().any(|name| std::env::var_os(name).is_some());
        let current = Mutex::new(Made { credentials: make()?, at: Instant::now() });
        Ok(Self { current, expected: expected.into() })
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
            *current = Made { credentials: make().ok()?, at: Instant::now() };
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

fn make() -> Result<Credentials, BuildError> {
    Builder::default().with_scopes([SCOPE]).build()
}
