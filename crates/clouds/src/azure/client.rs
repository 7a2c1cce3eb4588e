//! Settings and clients: one pool of connections per endpoint.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::policies::Policy;
use azure_core::http::{
    AsyncRawResponse, ClientOptions, HttpClient, Method, Request, RetryOptions, Transport, Url,
};
use azure_storage_blob::{BlobContainerClient, BlobContainerClientOptions};
use forebay_core::bucket::BackendKind;
use forebay_core::egress::{EgressPolicy, EndpointTrust, Server, is_clouds_own};
use forebay_core::error::{Error, Result};
use forebay_node::bill::Bill;
use futures::StreamExt;
use tokio::sync::Mutex;

use super::billed::Billed;
use super::credentials::{Account, AzureCredentials, entra, key_bytes, names_entra};
use super::sign::{SharedKey, Signature};
use crate::RetryPolicy;
use crate::account::{CredentialFile, NamedAccount};
use crate::bounded::{MAX_ERROR_BYTES, MAX_LISTING_BYTES, is_long_head, long_head};
use crate::egress::{EndpointGuard, innermost};

/// Settings for Azure Blob Storage.
#[derive(Clone, Debug)]
pub struct AzureSettings {
    /// The storage account. Its name is part of Azure's own URLs and of signatures.
    pub account: Option<String>,
    pub credentials: AzureCredentials,
    /// The account of the configuration that these settings are of.
    pub named: Option<NamedAccount>,
    /// Used by buckets that name no endpoint themselves; the account's at Azure when absent.
    pub endpoint: Option<String>,
    /// The destinations of endpoints that buckets name.
    pub egress: EgressPolicy,
    pub connect_timeout: Duration,
    /// Longest wait for the first byte of a response; uploads get more by their size.
    pub read_timeout: Duration,
    /// Objects above this size are uploaded in blocks.
    pub blocks_above: u64,
    /// Size of a block; larger where 50,000 blocks would not suffice.
    pub block_size: u64,
    /// Blocks of one object in flight.
    pub max_parallel_blocks: usize,
    /// For single blocks.
    pub block_retry: RetryPolicy,
}

impl Default for AzureSettings {
    fn default() -> Self {
        Self {
            account: None,
            credentials: AzureCredentials::default(),
            named: None,
            endpoint: None,
            egress: EgressPolicy::default(),
            connect_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(30),
            blocks_above: 64 << 20,
            block_size: 16 << 20,
            max_parallel_blocks: 4,
            block_retry: RetryPolicy::default(),
        }
    }
}

impl AzureSettings {
    /// Defaults, with the account and the credentials from the environment.
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let found = Account::from_env(variable);
        let credentials = match (found.key, found.sas) {
            (Some(key), _) => AzureCredentials::Key(key),
            (None, Some(sas)) => AzureCredentials::Sas(sas),
            (None, None) if names_entra(variable) => AzureCredentials::Entra,
            (None, None) => AzureCredentials::Anonymous,
        };
        Self { account: found.name, credentials, endpoint: found.endpoint, ..Self::default() }
    }

    /// The settings with the credential of an account of the configuration. A connection string is read
    /// once; without a file, the identity of the environment is used.
    pub(crate) fn with_files(
        self,
        key: Option<Arc<CredentialFile>>,
        sas: Option<Arc<CredentialFile>>,
        connection: Option<Arc<CredentialFile>>,
    ) -> Self {
        let credentials = match (key, sas) {
            (Some(key), _) => AzureCredentials::KeyFile(key),
            (None, Some(sas)) => AzureCredentials::SasFile(sas),
            (None, None) => {
                if let Some(file) = connection {
                    let found = Account::parse(&file.text());
                    let credentials = match (found.key, found.sas) {
                        (Some(key), _) => AzureCredentials::Key(key),
                        (None, Some(sas)) => AzureCredentials::Sas(sas),
                        (None, None) => AzureCredentials::Anonymous,
                    };
                    let (account, endpoint) =
                        (self.account.or(found.name), self.endpoint.or(found.endpoint));
                    return Self { account, endpoint, credentials, ..self };
                }
                match names_entra(|name| std::env::var(name).ok()) {
                    true => AzureCredentials::Entra,
                    false => AzureCredentials::Anonymous,
                }
            }
        };
        Self { credentials, ..self }
    }
}

/// A client for one endpoint.
pub(crate) struct AzureClient {
    /// URL of the account's containers.
    service: Url,
    options: ClientOptions,
    token: Option<Arc<dyn TokenCredential>>,
    /// Whether requests carry credentials.
    pub(super) signed: bool,
    /// For messages: the URL without credentials.
    pub(crate) endpoint: String,
    pub(super) settings: AzureSettings,
}

impl AzureClient {
    /// A client for one container, whose requests are billed.
    pub(crate) fn container(&self, name: &str, bill: Arc<Bill>) -> Result<BlobContainerClient> {
        let mut url = self.service.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(name);
        }
        let mut client_options = self.options.clone();
        client_options.per_try_policies.push(Arc::new(Billed(bill)));
        let options = BlobContainerClientOptions { client_options, ..Default::default() };
        BlobContainerClient::new(url, self.token.clone(), Some(options))
            .map_err(|e| Error::internal(format!("no client for {}: {e}", self.endpoint)))
    }
}

/// Clients created so far.
pub(crate) struct AzureClients {
    pub(super) settings: AzureSettings,
    clients: Mutex<HashMap<(Option<String>, EndpointTrust), Arc<AzureClient>>>,
}

impl AzureClients {
    pub(crate) fn new(settings: AzureSettings) -> Self {
        Self { settings, clients: Mutex::default() }
    }

    /// The guard for an endpoint that a bucket names, if it names one.
    pub(crate) fn guard(
        &self,
        endpoint: Option<&str>,
        trust: EndpointTrust,
    ) -> Result<EndpointGuard> {
        let AzureSettings { endpoint: configured, egress, named, .. } = &self.settings;
        if let Some(account) = named {
            let configured = configured.as_deref();
            return EndpointGuard::of_account(BackendKind::Azure, endpoint, configured, account);
        }
        EndpointGuard::of(BackendKind::Azure, endpoint, trust, configured.as_deref(), egress)
    }

    /// The client for `endpoint`, or for the configured endpoint if there is none.
    #[cfg(test)]
    pub(crate) async fn client(&self, endpoint: Option<&str>) -> Result<Arc<AzureClient>> {
        self.client_of(endpoint, EndpointTrust::Judged).await
    }

    /// The client for an endpoint with this trust, or for the configured endpoint if there is none.
    pub(crate) async fn client_of(
        &self,
        endpoint: Option<&str>,
        trust: EndpointTrust,
    ) -> Result<Arc<AzureClient>> {
        let key = (endpoint.filter(|e| !e.is_empty()).map(str::to_owned), trust);
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let own = key.0.as_deref();
        let client = Arc::new(self.connect(own, &self.guard(own, trust)?)?);
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    fn connect(&self, own: Option<&str>, guard: &EndpointGuard) -> Result<AzureClient> {
        let settings = self.settings.clone();
        let account = settings.account.as_deref();
        let configured = service_url(settings.endpoint.as_deref(), account);
        let mut service = match own {
            Some(url) => service_url(Some(url), account)?,
            None => configured.clone()?,
        };
        let endpoint = service.as_str().trim_end_matches('/').to_owned();
        forebay_node::tls::choose_provider();
        let http = guard
            .guard(reqwest::Client::builder())
            .connect_timeout(settings.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Error::internal(format!("no client for {endpoint}: {}", innermost(&e))))?;
        let transport = Transport::new(Arc::new(BoundedAnswers(Arc::new(http))));
        let (mut policies, mut token): (Vec<Arc<dyn Policy>>, _) = (Vec::new(), None);
        let mut signed = true;
        match &settings.credentials {
            AzureCredentials::Key(key) if guard.is_trusted => {
                let name = account.map_or_else(|| first_label(&service), str::to_owned);
                policies.push(Arc::new(SharedKey::new(name, key_bytes(key)?)));
            }
            AzureCredentials::KeyFile(file) if guard.is_trusted => {
                let name = account.map_or_else(|| first_label(&service), str::to_owned);
                key_bytes(&file.text())?;
                policies.push(Arc::new(SharedKey::of_file(name, Arc::clone(file))));
            }
            AzureCredentials::SasFile(file) if guard.is_trusted => {
                policies.push(Arc::new(Signature(Arc::clone(file))));
            }
            // A signature or token grants its rights to every server that receives it, and any
            // client may name an endpoint in a bucket. So they are sent only to the configured
            // endpoint and to Azure's own hosts.
            AzureCredentials::Sas(sas) if configured.is_ok_and(|c| c == service) => {
                service.set_query(Some(sas.trim_start_matches('?')));
            }
            AzureCredentials::Entra if is_azure(&service) => {
                token = Some(entra(transport.clone())?);
            }
            _ => signed = false,
        }
        let options = ClientOptions {
            per_try_policies: policies,
            retry: RetryOptions::none(),
            transport: Some(transport),
            ..ClientOptions::default()
        };
        Ok(AzureClient { service, options, token, signed, endpoint, settings })
    }
}

/// Limits the size of responses that are kept. Microsoft's crate reads error responses and listings
/// as a whole; it passes the bytes of a blob on.
#[derive(Debug)]
struct BoundedAnswers(Arc<dyn HttpClient>);

#[async_trait]
impl HttpClient for BoundedAnswers {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let (status, headers, body) = self.0.execute_request(request).await?.deconstruct();
        if is_long_head(
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str().as_bytes())),
        ) {
            return Err(azure_core::Error::with_message(ErrorKind::Io, long_head()));
        }
        let parses = request.url().query_pairs().any(|(key, _)| key == "comp" || key == "restype");
        let mut left = match u16::from(status) {
            ..300 if request.method() == Method::Get && !parses => {
                return Ok(AsyncRawResponse::new(status, headers, Box::pin(body)));
            }
            ..300 => MAX_LISTING_BYTES,
            _ => MAX_ERROR_BYTES,
        };
        let most = left;
        let bounded = body.map(move |piece| {
            let piece = piece?;
            left = left.checked_sub(piece.len()).ok_or_else(|| {
                let text = format!("the answer has more than {most} bytes, which is the limit");
                azure_core::Error::with_message(ErrorKind::Io, text)
            })?;
            Ok(piece)
        });
        Ok(AsyncRawResponse::new(status, headers, Box::pin(bounded)))
    }
}

/// URL of the account's containers. Emulators have the account in the path, which may be left out
/// of their address.
fn service_url(endpoint: Option<&str>, account: Option<&str>) -> Result<Url> {
    let Some(given) = endpoint else {
        let account = account.ok_or_else(|| {
            Error::invalid("no Azure storage account is named").hint(
                "set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING in the environment \
                 of the targets",
            )
        })?;
        let url = format!("https://{account}.blob.core.windows.net");
        return url.parse().map_err(|_| {
            Error::invalid(format!("\"{account}\" is not the name of an Azure storage account"))
                .hint("check AZURE_STORAGE_ACCOUNT: 3 to 24 lower-case letters and digits")
        });
    };
    let url = given.trim_end_matches('/').parse::<Url>().ok();
    let url = url.filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
    let Some(mut url) = url else {
        return Err(Error::invalid(format!("Azure endpoint \"{given}\" is not a URL"))
            .hint("give it as http://host:port/account or https://account.blob.core.windows.net"));
    };
    url.set_query(None);
    let bare = url.host_str().is_some_and(|host| {
        host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
    });
    if let (true, "/", Some(account)) = (bare, url.path(), account) {
        url.set_path(account);
    }
    Ok(url)
}

/// The account in a host of Azure's: `images` of `images.blob.core.windows.net`.
fn first_label(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    host.split('.').next().unwrap_or_default().to_owned()
}

/// Hosts of Azure and of its sovereign clouds.
fn is_azure(url: &Url) -> bool {
    Server::of(url.as_str()).is_some_and(|server| is_clouds_own(BackendKind::Azure, &server))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_gets_the_account_in_its_path() {
        let url = |endpoint, account| service_url(endpoint, account).unwrap().to_string();
        assert_eq!(url(None, Some("images")), "https://images.blob.core.windows.net/");
        assert_eq!(url(Some("http://127.0.0.1:10000"), Some("dev")), "http://127.0.0.1:10000/dev");
        assert_eq!(url(Some("http://[::1]:1/"), Some("dev")), "http://[::1]:1/dev");
        assert_eq!(url(Some("http://127.0.0.1:10000/x/"), Some("d")), "http://127.0.0.1:10000/x");
        assert_eq!(url(Some("https://blobs.example.org"), Some("d")), "https://blobs.example.org/");
        assert!(
            service_url(None, None).unwrap_err().hint.unwrap().contains("AZURE_STORAGE_ACCOUNT")
        );
        assert!(service_url(Some("localhost:10000"), None).is_err());
    }

    #[tokio::test]
    async fn a_signature_goes_to_the_configured_endpoint_alone() {
        let settings = AzureSettings {
            account: Some("images".into()),
            credentials: AzureCredentials::Sas("?sv=1&sig=secret".into()),
            ..AzureSettings::default()
        };
        let clients = AzureClients::new(settings);
        let own = clients.client(None).await.unwrap();
        assert!(own.signed && own.service.query() == Some("sv=1&sig=secret"));
        assert!(!own.endpoint.contains("secret"));
        let other = clients.client(Some("https://elsewhere.example.org")).await.unwrap();
        assert!(!other.signed && other.service.query().is_none());
    }
}
