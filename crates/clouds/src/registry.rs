//! Bucket to backend: picks the constructor by kind, shares clients and permits, adds decorators.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::cloud_rules::{CloudRule, CloudRules, Compose};
use forebay_core::config::CloudConfig;
use forebay_core::egress::{Egress, EgressPolicy, EndpointTrust};
use forebay_core::error::{Error, Result};
use forebay_core::locks::MutexExt;
use forebay_core::name::Bucket;
use forebay_node::bill::{Bill, Bills};
use forebay_node::pace::Pace;
use tokio::sync::Semaphore;

use super::Backend;
use super::accepted_endpoints::AcceptedEndpoints;
use super::accounts::{self, AllAccounts, AllClients};
use super::azure::{AzureBackend, AzureSettings};
use super::composed::{Announced, Composing, Gathers};
use super::folder::FolderBackend;
use super::gcs::{GcsBackend, GcsSettings};
use super::journal::{Journal, Journaled, Journals};
use super::ledger::Ledger;
use super::limit::{Limited, Limits};
use super::metered::{BytesHook, Hook, Metered};
use super::origin::{OriginBackend, OriginSettings};
use super::remote::{RemoteBackend, RemoteSettings};
use super::retry::{RetryPolicy, Retrying};
use super::s3::{RegionalS3, S3Backend, S3Settings};
use super::timed::Timed;

/// Settings that all backends of a node share.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    /// Folders under which the roots of folder buckets may be; an empty list allows none.
    pub folder_roots: Vec<PathBuf>,
    pub s3: S3Settings,
    pub gcs: GcsSettings,
    pub azure: AzureSettings,
    pub origin: OriginSettings,
    pub remote: RemoteSettings,
    /// Accounts of the configuration, by name.
    pub accounts: AllAccounts,
    pub retry: RetryPolicy,
    /// Calls in flight to one endpoint.
    pub concurrency: usize,
    /// Longest time a call waits for a permit.
    pub queue_wait: Duration,
}

impl Default for BackendSettings {
    fn default() -> Self {
        Self {
            folder_roots: Vec::new(),
            s3: S3Settings::default(),
            gcs: GcsSettings::default(),
            azure: AzureSettings::default(),
            origin: OriginSettings::default(),
            remote: RemoteSettings::default(),
            accounts: AllAccounts::new(),
            retry: RetryPolicy::default(),
            concurrency: 64,
            queue_wait: Duration::from_secs(60),
        }
    }
}

impl BackendSettings {
    /// Defaults, with the clouds' endpoints taken from the environment.
    pub fn from_env(folder_roots: Vec<PathBuf>) -> Self {
        let (s3, gcs) = (S3Settings::from_env(), GcsSettings::from_env());
        Self { folder_roots, s3, gcs, azure: AzureSettings::from_env(), ..Self::default() }
    }

    /// The settings with the accounts of the configuration. Fails if a credential file cannot be read,
    /// or if other users of the machine can.
    pub fn with_accounts(self, accounts: &[CloudConfig], policy: &EgressPolicy) -> Result<Self> {
        Ok(Self { accounts: accounts::settings_of(accounts, policy)?, ..self })
    }

    /// The settings with this policy for the destinations of buckets, and networks of web servers.
    #[must_use]
    pub fn guarded_by(mut self, policy: &EgressPolicy, web: Egress) -> Self {
        self.s3.egress = policy.clone();
        self.gcs.egress = policy.clone();
        self.azure.egress = policy.clone();
        self.remote.egress = policy.clone();
        (self.origin.egress, self.origin.reach) = (policy.clone(), web);
        self
    }
}

/// The cached backend of a bucket.
#[derive(Clone)]
struct Known {
    spec: BackendSpec,
    trust: EndpointTrust,
    /// Without retries and timeouts: those depend on the request.
    raw: Raw,
    limits: Arc<Limits>,
    pace: Arc<Pace>,
    targets: usize,
    /// The whole chain, for the rules that it was made for.
    rules: CloudRules,
    backend: Arc<dyn Backend>,
}

/// A backend without decorators.
#[derive(Clone)]
struct Raw {
    backend: Arc<dyn Backend>,
    bill: Option<Arc<Bill>>,
    provider: &'static str,
    endpoint: String,
    /// URI of the bucket.
    bucket: Arc<str>,
}

/// The capacity of a cloud that callers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Buckets of one endpoint share its calls.
    pub endpoint: String,
    /// Calls in flight.
    pub calls: usize,
}

/// The rules that all requests of a bucket share.
const SHARED: [CloudRule; 3] =
    [CloudRule::Concurrency, CloudRule::RequestsPerSecond, CloudRule::BytesPerSecond];

impl Known {
    fn shares(&self, info: &BucketInfo, targets: usize) -> bool {
        let same = |rule: &CloudRule| self.rules.number(*rule) == info.cloud.number(*rule);
        let is_same =
            info.backend.as_ref() == Some(&self.spec) && self.trust == info.endpoint_trust;
        is_same && self.targets == targets && SHARED.iter().all(same)
    }
}

/// Backends of a node's buckets, created on first use and cached.
pub struct Backends {
    pub(super) settings: BackendSettings,
    hook: Hook,
    bytes: BytesHook,
    pub(super) clients: AllClients,
    known: Mutex<HashMap<u64, Known>>,
    journals: Journals,
    ledger: Ledger,
    gathers: Gathers,
    permits: Mutex<HashMap<String, Arc<Semaphore>>>,
    pub(super) accepted: AcceptedEndpoints,
}

impl Backends {
    /// `hook` is called for every call that goes to a backend.
    pub fn new(settings: BackendSettings, hook: Hook) -> Self {
        let BackendSettings { s3, gcs, azure, accounts, .. } = settings.clone();
        let clients = AllClients::new(s3, gcs, azure, &accounts);
        let bytes: BytesHook = Arc::new(|_, _| {});
        let (known, permits, journals) = (Mutex::default(), Mutex::default(), Journals::default());
        let (ledger, gathers) = (Ledger::default(), Gathers::default());
        let accepted = AcceptedEndpoints::default();
        Self { settings, hook, bytes, clients, known, journals, ledger, gathers, permits, accepted }
    }

    /// `bytes` is called for the bytes received from backends.
    #[must_use]
    pub fn telling_bytes(self, bytes: BytesHook) -> Self {
        Self { bytes, ..self }
    }

    /// Counts billed requests and bytes in `bills`.
    #[must_use]
    pub fn billing(self, bills: Bills) -> Self {
        Self { ledger: Ledger::new(bills), ..self }
    }

    /// The bill of a bucket; `None` if the bucket has no costs.
    pub fn bill(&self, info: &BucketInfo) -> Option<Arc<Bill>> {
        self.ledger.of(info)
    }

    /// The backend of a bucket. Does not check whether the bucket exists: `head_bucket` does.
    ///
    /// A bucket that is not registered yet (id 0) gets a backend that is not cached.
    pub async fn for_bucket(&self, info: &BucketInfo) -> Result<Arc<dyn Backend>> {
        self.for_bucket_among(info, 1).await
    }

    /// As [`Self::for_bucket`], for a cluster with this many targets, which share the bucket's
    /// budgets.
    pub async fn for_bucket_among(
        &self,
        info: &BucketInfo,
        targets: usize,
    ) -> Result<Arc<dyn Backend>> {
        let Some(spec) = &info.backend else {
            return Err(Error::invalid(format!("bucket \"{}\" has no backend", info.bucket)));
        };
        let rules = &info.cloud;
        let known = self.known().get(&info.id).cloned();
        let known = match known.filter(|known| known.shares(info, targets)) {
            Some(known) if known.rules == *rules => return Ok(known.backend),
            // Learned limits and used budgets are shared, even if a request has its own timeouts.
            Some(known) => {
                let backend = self.chain(info.id, &known.raw, &known.limits, &known.pace, rules);
                Known { rules: *rules, backend, ..known }
            }
            None => {
                let raw = self.raw(info, spec).await?;
                let endpoint = self.permits_for(&raw.endpoint);
                let most = self.settings.concurrency;
                let limits = Arc::new(Limits::new(rules, most, endpoint, targets));
                let bytes = rules.number(CloudRule::BytesPerSecond).unwrap_or(0);
                let pace = Arc::new(Pace::new(bytes as f64, targets));
                let backend = self.chain(info.id, &raw, &limits, &pace, rules);
                let (spec, trust, rules) = (spec.clone(), info.endpoint_trust, *rules);
                Known { spec, trust, raw, limits, pace, targets, rules, backend }
            }
        };
        let backend = Arc::clone(&known.backend);
        if info.id != 0 {
            self.known().insert(info.id, known);
        }
        Ok(backend)
    }

    /// The journal of writes to the backend of a bucket.
    pub fn journal(&self, bucket_id: u64) -> Arc<Journal> {
        self.journals.of(bucket_id)
    }

    /// Announces this many reads of whole objects of a bucket. `None` if the backend does not use
    /// it.
    pub fn announce(
        &self,
        info: &BucketInfo,
        objects: impl FnOnce() -> usize,
    ) -> Option<Announced> {
        let composes = info.id != 0 && info.cloud.compose() != Compose::Off;
        composes.then(|| self.gathers.of(info.id).announce(objects()))
    }

    /// The present capacity of a bucket's backend that was used before.
    pub fn room(&self, bucket_id: u64) -> Room {
        let most = self.settings.concurrency.max(1);
        match self.known().get(&bucket_id) {
            Some(known) => {
                Room { endpoint: known.raw.endpoint.clone(), calls: known.limits.calls().min(most) }
            }
            None => Room { endpoint: String::new(), calls: most },
        }
    }

    /// Adds the decorators to a backend: each attempt is timed, counted, and within the limits.
    fn chain(
        &self,
        bucket_id: u64,
        raw: &Raw,
        limits: &Arc<Limits>,
        pace: &Arc<Pace>,
        rules: &CloudRules,
    ) -> Arc<dyn Backend> {
        let policy = self.settings.retry.by(rules);
        let timed = Arc::new(Timed::new(Arc::clone(&raw.backend), policy.answer));
        let metered = Metered::new(timed, raw.provider, Arc::clone(&self.hook));
        let metered = metered.billing(raw.bill.clone()).of_bucket(Arc::clone(&raw.bucket));
        let metered = Arc::new(metered.telling_bytes(Arc::clone(&self.bytes)));
        let queue_wait = rules.time(CloudRule::DeadlineMs).unwrap_or(self.settings.queue_wait);
        let wait = queue_wait.min(self.settings.queue_wait);
        let limited = Arc::new(Limited::new(metered, Arc::clone(limits), wait));
        let retrying = Arc::new(Retrying::new(limited, policy).paced(Arc::clone(pace)));
        let whole: Arc<dyn Backend> = match (bucket_id, rules.compose()) {
            (0, _) => return retrying,
            (_, Compose::Off) => retrying,
            (id, how) => Arc::new(Composing::new(retrying, self.gathers.of(id), how)),
        };
        Arc::new(Journaled::new(whole, self.journals.of(bucket_id)))
    }

    /// Drops the backend of a destroyed bucket.
    pub fn forget(&self, bucket_id: u64) {
        self.known().remove(&bucket_id);
        self.journals.forget(bucket_id);
        self.ledger.forget(bucket_id);
        self.gathers.forget(bucket_id);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Known>> {
        self.known.locked()
    }

    /// The backend of a bucket without retries and limits.
    pub(super) async fn bare(
        &self,
        info: &BucketInfo,
        spec: &BackendSpec,
    ) -> Result<Arc<dyn Backend>> {
        Ok(self.raw(info, spec).await?.backend)
    }

    async fn raw(&self, info: &BucketInfo, spec: &BackendSpec) -> Result<Raw> {
        let bucket: &Bucket = &info.bucket;
        if self.guard_of(info, spec)?.is_accepted() {
            self.accepted.warn(info, spec);
        }
        let (named, trust) = (spec.endpoint.as_deref(), info.endpoint_trust);
        let accounts = &self.settings.accounts;
        let bill = self.ledger.of(info);
        let billed = || bill.clone().unwrap_or_else(|| Arc::new(Bill::unseen(spec.kind)));
        let name = if spec.bucket.is_empty() { &bucket.name } else { spec.bucket.as_str() };
        let (backend, provider, endpoint): (Arc<dyn Backend>, _, _) = match spec.kind {
            BackendKind::S3 => {
                let clients = Arc::clone(self.clients.s3.of(accounts, info, spec)?);
                let region = spec.region.as_deref();
                let client = clients.client_in(named, trust, region).await?;
                let endpoint = client.endpoint.clone();
                let (bucket, bill) = (bucket.clone(), billed());
                let backend: Arc<dyn Backend> = match region {
                    Some(_) => {
                        let backend = S3Backend::new(client, bucket, name).billing(bill);
                        Arc::new(backend.in_set_region())
                    }
                    None => {
                        let open = RegionalS3::open(clients, named, trust, bucket, name, bill);
                        Arc::new(open.await?)
                    }
                };
                (backend, "aws", endpoint)
            }
            BackendKind::Gcs => {
                let gcs = self.clients.gcs.of(accounts, info, spec)?;
                let client = gcs.client_of(named, trust).await?;
                let endpoint = client.endpoint.clone();
                let backend = GcsBackend::new(client, bucket.clone(), name).billing(billed());
                (Arc::new(backend), "gcp", endpoint)
            }
            BackendKind::Azure => {
                let azure = self.clients.azure.of(accounts, info, spec)?;
                let client = azure.client_of(named, trust).await;
                let client = client.map_err(|e| Error {
                    message: format!("bucket \"{bucket}\" cannot be used: {}", e.message),
                    ..e
                })?;
                let endpoint = client.endpoint.clone();
                let backend = AzureBackend::new(client, bucket.clone(), name)?.billing(billed())?;
                (Arc::new(backend), "azure", endpoint)
            }
            BackendKind::Http => {
                let (url, settings) = (spec.endpoint.as_deref(), self.settings.origin.clone());
                let origin = OriginBackend::new(bucket.clone(), url, settings)?;
                (Arc::new(origin.billing(billed())), "ht", url.unwrap_or_default().to_owned())
            }
            BackendKind::Ais => {
                let settings = RemoteSettings { trust, ..self.settings.remote.clone() };
                let url = named;
                let remote = RemoteBackend::new(bucket.clone(), name, url, settings)?;
                (Arc::new(remote.billing(billed())), "ais", url.unwrap_or_default().to_owned())
            }
            BackendKind::Folder => {
                let root = spec.root.clone().unwrap_or_default();
                let folder =
                    FolderBackend::open(bucket.clone(), root.into(), &self.settings.folder_roots)
                        .await?;
                (Arc::new(folder), "folder", String::new())
            }
        };
        // Clouds limit each account by itself.
        let endpoint = match &spec.account {
            Some(account) => format!("{endpoint} {account}"),
            None => endpoint,
        };
        Ok(Raw { backend, bill, provider, endpoint, bucket: bucket.to_string().into() })
    }

    fn permits_for(&self, endpoint: &str) -> Arc<Semaphore> {
        let mut permits = self.permits.locked();
        let new = || Arc::new(Semaphore::new(self.settings.concurrency.max(1)));
        Arc::clone(permits.entry(endpoint.to_owned()).or_insert_with(new))
    }
}
