//! Settings and SDK clients: one client, and so one pool of connections, per endpoint.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeDeserializationInterceptorContextMut,
    BeforeTransmitInterceptorContextRef,
};
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    ConfigBag, Credentials, IdentityCache, Intercept, RequestChecksumCalculation,
    ResponseChecksumValidation, RuntimeComponents, StalledStreamProtectionConfig,
};
use aws_sdk_s3::error::BoxError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use forebay_core::bucket::BackendKind;
use forebay_core::egress::{EgressPolicy, EndpointTrust};
use forebay_core::error::{Error, Result};
use forebay_core::shown_url;
use forebay_node::bill::Bill;
use http_body_util::Limited;
use tokio::sync::{Mutex, OnceCell};

use super::account::S3Source;
use crate::RetryPolicy;
use crate::account::NamedAccount;
use crate::bounded::{MAX_ERROR_BYTES, MAX_LISTING_BYTES, is_long_head, long_head};
use crate::egress::EndpointGuard;

/// Region for signatures if none is configured.
pub(super) const DEFAULT_REGION: &str = "us-east-1";

/// Longest wait for credentials of a service.
pub(super) const CREDENTIALS_WITHIN: Duration = Duration::from_secs(10);

/// A configured key pair.
#[derive(Clone)]
pub struct S3Credentials {
    pub access_key: String,
    pub secret_key: String,
}

impl std::fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// Settings for S3.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// Used by buckets that name no endpoint themselves; Amazon's own when absent.
    pub endpoint: Option<String>,
    /// From the environment or the AWS profile when absent.
    pub region: Option<String>,
    /// From the environment, profile or machine role when absent.
    pub credentials: Option<S3Credentials>,
    /// The account of the configuration that these settings are of.
    pub named: Option<NamedAccount>,
    /// The credentials of that account, if it has its own.
    pub(crate) source: Option<S3Source>,
    /// Pays for requests to requester-pays buckets.
    pub requester_pays: bool,
    /// The destinations of endpoints that buckets name.
    pub egress: EgressPolicy,
    pub connect_timeout: Duration,
    /// Longest wait for the first byte of a response; uploads get more by their size.
    pub read_timeout: Duration,
    /// Objects above this size are uploaded in parts.
    pub multipart_above: u64,
    /// Size of a part (at least 5 MiB at most servers); larger where 10,000 parts would not
    /// suffice.
    pub part_size: u64,
    /// Parts of one object in flight.
    pub max_parallel_parts: usize,
    /// For single parts of an upload.
    pub part_retry: RetryPolicy,
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            credentials: None,
            named: None,
            source: None,
            requester_pays: false,
            egress: EgressPolicy::default(),
            connect_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(30),
            multipart_above: 64 << 20,
            part_size: 16 << 20,
            max_parallel_parts: 4,
            part_retry: RetryPolicy::default(),
        }
    }
}

impl S3Settings {
    /// Defaults, with the endpoint of the environment: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` or
    /// `S3_ENDPOINT`, the first that is set. `AWS_REQUEST_PAYER=requester` pays for requests.
    pub fn from_env() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT"];
        let endpoint = endpoint.into_iter().find_map(set);
        let requester_pays = set("AWS_REQUEST_PAYER").is_some_and(|payer| payer == "requester");
        Self { endpoint, requester_pays, ..Self::default() }
    }
}

/// A client for one endpoint.
pub(crate) struct S3Client {
    pub(crate) sdk: Client,
    /// The region that requests are signed for.
    pub(super) region: String,
    /// For messages: the URL, or the name of Amazon's region.
    pub(crate) endpoint: String,
    pub(crate) settings: S3Settings,
}

/// Limits the size of responses that are kept. The SDK reads error responses and listings as a
/// whole; it passes the bytes of an object on.
#[derive(Debug)]
struct BoundedAnswers;

/// Marks a call that reads an object: when the response arrives, the request is gone.
#[derive(Clone, Copy, Debug)]
struct ReadsObject;

impl Storable for ReadsObject {
    type Storer = StoreReplace<Self>;
}

impl Intercept for BoundedAnswers {
    fn name(&self) -> &'static str {
        "BoundedAnswers"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // The name of the operation that the SDK puts into the query.
        if context.request().uri().contains("x-id=GetObject") {
            config.interceptor_state().store_put(ReadsObject);
        }
        Ok(())
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response_mut();
        if is_long_head(response.headers().iter_bytes()) {
            return Err(long_head().into());
        }
        let most = match response.status().is_success() {
            true if config.load::<ReadsObject>().is_some() => return Ok(()),
            true => MAX_LISTING_BYTES,
            false => MAX_ERROR_BYTES,
        };
        let body = std::mem::replace(response.body_mut(), SdkBody::taken());
        *response.body_mut() = SdkBody::from_body_1_x(Limited::new(body, most));
        Ok(())
    }
}

/// Adds the page of a listing to the bucket's bill. It belongs to one call, not to a client.
#[derive(Debug)]
pub(super) struct CountsListing(pub(super) Arc<Bill>);

impl Intercept for CountsListing {
    fn name(&self) -> &'static str {
        "CountsListing"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // The SDK has read the whole body by now; that of an error is no page.
        let response = context.response();
        if response.status().is_success() {
            self.0.listing_page(response.body().bytes().map_or(0, <[u8]>::len));
        }
        Ok(())
    }
}

/// Endpoint, its trust, and a region instead of the configured one.
type ClientKey = (Option<String>, EndpointTrust, Option<String>);

/// Clients created so far.
pub(crate) struct S3Clients {
    pub(super) settings: S3Settings,
    pub(super) base: OnceCell<SdkConfig>,
    clients: Mutex<HashMap<ClientKey, Arc<S3Client>>>,
}

impl S3Clients {
    pub(crate) fn new(settings: S3Settings) -> Self {
        Self { settings, base: OnceCell::new(), clients: Mutex::default() }
    }

    /// The guard for an endpoint that a bucket names, if it names one.
    pub(crate) fn guard(
        &self,
        endpoint: Option<&str>,
        trust: EndpointTrust,
    ) -> Result<EndpointGuard> {
        let S3Settings { endpoint: configured, egress, named, .. } = &self.settings;
        if let Some(account) = named {
            let configured = configured.as_deref();
            return EndpointGuard::of_account(BackendKind::S3, endpoint, configured, account);
        }
        EndpointGuard::of(BackendKind::S3, endpoint, trust, configured.as_deref(), egress)
    }

    /// The client for `endpoint`, or for the configured endpoint if there is none.
    #[cfg(test)]
    pub(crate) async fn client(&self, endpoint: Option<&str>) -> Result<Arc<S3Client>> {
        self.client_in(endpoint, EndpointTrust::Judged, None).await
    }

    /// The client for an endpoint with this trust, or for the configured endpoint if there is none;
    /// `region` instead of the configured one.
    pub(crate) async fn client_in(
        &self,
        named: Option<&str>,
        trust: EndpointTrust,
        region: Option<&str>,
    ) -> Result<Arc<S3Client>> {
        let endpoint = named.or(self.settings.endpoint.as_deref()).filter(|e| !e.is_empty());
        let key = (endpoint.map(str::to_owned), trust, region.map(str::to_owned));
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let guard = self.guard(named, trust)?;
        let client = Arc::new(self.connect(endpoint, guard, region).await?);
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    async fn connect(
        &self,
        endpoint: Option<&str>,
        guard: EndpointGuard,
        region: Option<&str>,
    ) -> Result<S3Client> {
        if let Some(url) = endpoint {
            let parsed = url.parse::<http::Uri>().ok();
            let usable = parsed.is_some_and(|u| {
                matches!(u.scheme_str(), Some("http" | "https")) && u.host().is_some()
            });
            if !usable {
                return Err(Error::invalid(format!(
                    "S3 endpoint \"{}\" is not a URL",
                    shown_url(url)
                ))
                .hint("give it as http://host:port or https://host"));
            }
        }
        let base = self.base.get_or_init(|| load_base(&self.settings)).await;
        let mut builder = base.clone().into_builder();
        if !guard.is_trusted {
            builder.set_credentials_provider(None);
        }
        builder.set_http_client(guard.aws_client().or_else(|| base.http_client()));
        let mut config = aws_sdk_s3::config::Builder::from(&builder.build())
            // A decorator retries; only calls for credentials have their own retries.
            .retry_config(RetryConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .interceptor(BoundedAnswers);
        if !guard.is_trusted {
            config = config.allow_no_auth();
        }
        if let Some(url) = endpoint {
            // The SDK puts the bucket right behind it, as in `/s3bucket`.
            let url = format!("{}/", url.trim_end_matches('/'));
            config = config.endpoint_url(url).force_path_style(true);
        }
        if self.settings.named.is_some() && endpoint.is_none() {
            // Not the server of the environment: that one is of another account.
            config.set_endpoint_url(None);
        }
        if let Some(region) = region {
            config = config.region(Region::new(region.to_owned()));
        }
        let own = base.region().map_or(DEFAULT_REGION, Region::as_ref);
        let region = region.unwrap_or(own).to_owned();
        let shown = shown_endpoint(endpoint, &region);
        Ok(S3Client {
            region,
            sdk: Client::from_conf(config.build()),
            endpoint: shown,
            settings: self.settings.clone(),
        })
    }
}

/// The endpoint of calls, for messages.
pub(super) fn shown_endpoint(endpoint: Option<&str>, region: &str) -> String {
    endpoint.map_or_else(|| format!("Amazon S3 ({region})"), str::to_owned)
}

/// The settings that do not depend on the endpoint. The region is not requested from the machine's
/// metadata service, which costs seconds where there is none.
pub(super) async fn load_base(settings: &S3Settings) -> SdkConfig {
    let region = RegionProviderChain::first_try(settings.region.clone().map(Region::new))
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(DEFAULT_REGION);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(settings.connect_timeout)
        .read_timeout(settings.read_timeout)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(region)
        .retry_config(RetryConfig::standard())
        .identity_cache(IdentityCache::lazy().load_timeout(CREDENTIALS_WITHIN).build())
        .timeout_config(timeouts)
        // A slow reader is no network failure; the retries detect stalls.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(keys) = &settings.credentials {
        let (id, secret) = (keys.access_key.clone(), keys.secret_key.clone());
        loader = loader.credentials_provider(Credentials::new(id, secret, None, None, "settings"));
    }
    if let Some(source) = &settings.source {
        loader = loader.credentials_provider(source.clone());
    }
    loader.load().await
}
