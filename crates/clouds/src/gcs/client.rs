//! Settings and clients: one set of clients, and so of connections, per endpoint.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::bucket::BackendKind;
use forebay_core::egress::{
    AllowEntry, EgressPolicy, EgressRule, EndpointTrust, Server, is_clouds_own,
};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::shown_url;
use google_cloud_auth::credentials::anonymous::Builder as Anonymous;
use google_cloud_auth::credentials::{CacheableResource, Credentials};
use google_cloud_gax::retry_policy::NeverRetry;
use google_cloud_storage::client::Storage;
use reqwest::{RequestBuilder, Response, Url};
use tokio::sync::Mutex;

use super::credentials::Renewed;
use super::error::{CREDENTIALS_HINT, Failure};
use crate::RetryPolicy;
use crate::account::{CredentialFile, NamedAccount, credential_hint};
use crate::bounded::{has_long_head, long_head};
use crate::egress::{EndpointGuard, innermost};

/// Google's own address.
pub(super) const GOOGLE: &str = "https://storage.googleapis.com";

/// Settings for Google Cloud Storage.
#[derive(Clone, Debug)]
pub struct GcsSettings {
    /// Used by buckets that name no endpoint themselves; Google's own when absent.
    pub endpoint: Option<String>,
    pub connect_timeout: Duration,
    /// Longest wait for the first byte of a response; uploads get more by their size.
    pub read_timeout: Duration,
    /// Objects above this size are uploaded in chunks; only a failed chunk is sent again.
    pub resumable_above: u64,
    /// Size of a chunk; a multiple of 256 KiB, as Google requires.
    pub chunk_size: u64,
    /// For single chunks.
    pub chunk_retry: RetryPolicy,
    /// Whether Google's crate writes small objects at other hosts, too. For tests.
    pub crate_for_all: bool,
    /// The destinations of endpoints that buckets name.
    pub egress: EgressPolicy,
    /// The account of the configuration that these settings are of.
    pub named: Option<NamedAccount>,
    /// The file with the credential of that account.
    pub(crate) file: Option<Arc<CredentialFile>>,
}

impl Default for GcsSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            connect_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(30),
            resumable_above: 64 << 20,
            chunk_size: 16 << 20,
            chunk_retry: RetryPolicy::default(),
            crate_for_all: false,
            egress: EgressPolicy::default(),
            named: None,
            file: None,
        }
    }
}

impl GcsSettings {
    /// Defaults, with the emulator that `STORAGE_EMULATOR_HOST` names, if it is set.
    pub fn from_env() -> Self {
        let emulator = std::env::var("STORAGE_EMULATOR_HOST").ok();
        Self { endpoint: emulator.as_deref().and_then(emulator_url), ..Self::default() }
    }
}

/// `STORAGE_EMULATOR_HOST` as a URL: other tools accept it with or without a scheme.
fn emulator_url(host: &str) -> Option<String> {
    match host.trim().trim_end_matches('/') {
        "" => None,
        url if url.contains("://") => Some(url.to_owned()),
        host => Some(format!("http://{host}")),
    }
}

/// Clients for one endpoint.
pub(crate) struct GcsClient {
    /// Google's crate, which writes small objects. Only for Google's own hosts: it collects an
    /// error response of any length, and any client may name an endpoint in a bucket.
    pub(super) storage: Option<Storage>,
    http: reqwest::Client,
    guard: EndpointGuard,
    /// The rule for sessions of an endpoint without a guard: Google's hosts, and the endpoint itself.
    sessions: EgressRule,
    credentials: Credentials,
    /// For messages, and the prefix of paths: a URL without a slash at its end.
    pub(crate) endpoint: String,
    pub(super) settings: GcsSettings,
}

impl GcsClient {
    /// A request to `path`, with `query` behind it.
    pub(super) fn request(
        &self,
        method: reqwest::Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.endpoint)).query(query)
    }

    /// A request to an upload session. The session's URL is sufficient authorization, so no token
    /// is sent, whichever host the server names for the session. `AccessDenied` if the server names a
    /// closed host.
    pub(super) fn put_to_session(&self, session: &str) -> Result<RequestBuilder> {
        self.guard.check(session, &self.sessions)?;
        Ok(self.http.put(session))
    }

    /// Sends a request with the credentials; a status above 399 is a failure.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let headers = match self.credentials.headers(http::Extensions::new()).await {
            Ok(CacheableResource::New { data, .. }) => data,
            // Returned only to callers that have the headers already.
            Ok(CacheableResource::NotModified) => http::HeaderMap::new(),
            Err(e) => return Err(Failure::no_credentials(&e, e.is_transient())),
        };
        Self::send_bare(request.headers(headers)).await
    }

    /// Sends a request as it is; a status above 399 is a failure.
    pub(super) async fn send_bare(request: RequestBuilder) -> Result<Response, Failure> {
        let answer = request.send().await.map_err(|e| Failure::of_http(&e))?;
        if has_long_head(&answer) {
            return Err(Failure::Nonsense(long_head()));
        }
        match answer.status().as_u16() {
            400.. => Err(Failure::of_answer(answer).await),
            _ => Ok(answer),
        }
    }
}

/// Clients created so far.
pub(crate) struct GcsClients {
    pub(super) settings: GcsSettings,
    clients: Mutex<HashMap<(String, EndpointTrust), Arc<GcsClient>>>,
}

impl GcsClients {
    pub(crate) fn new(settings: GcsSettings) -> Self {
        Self { settings, clients: Mutex::default() }
    }

    /// The guard for an endpoint that a bucket names, if it names one.
    pub(crate) fn guard(
        &self,
        endpoint: Option<&str>,
        trust: EndpointTrust,
    ) -> Result<EndpointGuard> {
        let GcsSettings { endpoint: configured, egress, named, .. } = &self.settings;
        if let Some(account) = named {
            let configured = configured.as_deref();
            return EndpointGuard::of_account(BackendKind::Gcs, endpoint, configured, account);
        }
        EndpointGuard::of(BackendKind::Gcs, endpoint, trust, configured.as_deref(), egress)
    }

    /// The clients for `endpoint`, or for the configured endpoint if there is none.
    #[cfg(test)]
    pub(crate) async fn client(&self, endpoint: Option<&str>) -> Result<Arc<GcsClient>> {
        self.client_of(endpoint, EndpointTrust::Judged).await
    }

    /// The clients for an endpoint with this trust, or for the configured endpoint if there is none.
    pub(crate) async fn client_of(
        &self,
        named: Option<&str>,
        trust: EndpointTrust,
    ) -> Result<Arc<GcsClient>> {
        let given = named.filter(|e| !e.is_empty()).or(self.settings.endpoint.as_deref());
        let endpoint = given.unwrap_or(GOOGLE).trim_end_matches('/').to_owned();
        let key = (endpoint, trust);
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(self.connect(&key.0, self.guard(named, trust)?).await?);
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    async fn connect(&self, endpoint: &str, guard: EndpointGuard) -> Result<GcsClient> {
        let url = endpoint.parse::<Url>().ok();
        let url = url.filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
        let Some(url) = url else {
            return Err(Error::invalid(format!(
                "GCS endpoint \"{}\" is not a URL",
                shown_url(endpoint)
            ))
            .hint("give it as http://host:port or https://host"));
        };
        forebay_node::tls::choose_provider();
        let credentials = credentials_for(&url, &self.settings)?;
        let unusable = |e: &(dyn std::error::Error + 'static)| {
            Error::internal(format!("no client for {}: {}", shown_url(endpoint), innermost(e)))
        };
        let storage = Storage::builder()
            .with_endpoint(endpoint)
            .with_credentials(credentials.clone())
            // A decorator retries.
            .with_retry_policy(NeverRetry)
            .build()
            .await
            .map_err(|e| unusable(&e))?;
        let storage = (is_google(&url) || self.settings.crate_for_all).then_some(storage);
        let http = guard
            .guard(reqwest::Client::builder())
            .connect_timeout(self.settings.connect_timeout)
            // Status 308 is the response to a chunk that was not sent in full; it is no redirect
            // here.
            .redirect(reqwest::redirect::Policy::none())
            // Objects are kept as they are stored, compressed or not.
            .no_gzip()
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| unusable(&e))?;
        let own = url.host_str().zip(url.port_or_known_default());
        let own = own.map(|(host, port)| AllowEntry::exactly(host, port));
        let sessions = self.settings.egress.endpoints().with(own);
        let (endpoint, settings) = (endpoint.to_owned(), self.settings.clone());
        Ok(GcsClient { storage, http, guard, sessions, credentials, endpoint, settings })
    }
}

/// Google's application default credentials for Google's own hosts, and none for any other. A token
/// is valid at Google for every server that receives it, and any client may name an endpoint in a
/// bucket.
fn credentials_for(url: &Url, settings: &GcsSettings) -> Result<Credentials> {
    if !is_google(url) {
        return Ok(Anonymous::new().build());
    }
    Renewed::new(settings.file.clone()).map(Credentials::from).map_err(|e| {
        let text = format!("no credentials for Google Cloud Storage: {}", innermost(&e));
        let error = Error::new(ErrorCode::AccessDenied, text);
        match &settings.named {
            Some(account) => error.hint(credential_hint(&account.name)),
            None => error.hint(CREDENTIALS_HINT),
        }
    })
}

pub(super) fn is_google(url: &Url) -> bool {
    Server::of(url.as_str()).is_some_and(|server| is_clouds_own(BackendKind::Gcs, &server))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_may_be_named_with_or_without_a_scheme() {
        assert_eq!(emulator_url("localhost:4443").unwrap(), "http://localhost:4443");
        assert_eq!(emulator_url("https://gcs:4443/").unwrap(), "https://gcs:4443");
        assert_eq!(emulator_url(" "), None);
    }

    #[test]
    fn tokens_go_to_google_alone_and_never_in_the_clear() {
        let google = |url: &str| is_google(&url.parse().unwrap());
        assert!(google(GOOGLE) && google("https://storage.us-east1.rep.googleapis.com"));
        for other in [
            "http://storage.googleapis.com",
            "https://storage.googleapis.com.example.org",
            "https://example.org/storage.googleapis.com",
            "https://notgoogleapis.com",
            "http://127.0.0.1:4443",
        ] {
            assert!(!google(other), "{other}");
        }
    }
}
