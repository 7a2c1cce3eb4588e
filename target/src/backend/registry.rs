//! Bucket to backend: picks the constructor by kind, shares clients and permits, adds decorators.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::error::{Error, Result};
use forebay_core::name::Bucket;
use tokio::sync::Semaphore;

use super::Backend;
use super::folder::FolderBackend;
use super::gcs::{GcsBackend, GcsClients, GcsSettings};
use super::limit::Limited;
use super::metered::{BytesHook, Hook, Metered};
use super::retry::{RetryPolicy, Retrying};
use super::s3::{S3Backend, S3Clients, S3Settings};

/// What all backends of a node need to know.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    /// Folders under which the roots of folder buckets may lie; none allows none.
    pub folder_roots: Vec<PathBuf>,
    pub s3: S3Settings,
    pub gcs: GcsSettings,
    pub retry: RetryPolicy,
    /// Calls in flight to one endpoint.
    pub concurrency: usize,
    /// Longest time a call waits for others to finish.
    pub queue_wait: Duration,
}

impl Default for BackendSettings {
    fn default() -> Self {
        Self {
            folder_roots: Vec::new(),
            s3: S3Settings::default(),
            gcs: GcsSettings::default(),
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
        Self { folder_roots, s3, gcs, ..Self::default() }
    }
}

type Known = HashMap<u64, (BackendSpec, Arc<dyn Backend>)>;

/// Backends of a node's buckets, made on first use and kept.
pub struct Backends {
    settings: BackendSettings,
    hook: Hook,
    bytes: BytesHook,
    s3: S3Clients,
    gcs: GcsClients,
    known: Mutex<Known>,
    permits: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Backends {
    /// `hook` hears of every call that goes to a backend.
    pub fn new(settings: BackendSettings, hook: Hook) -> Self {
        let s3 = S3Clients::new(settings.s3.clone());
        let gcs = GcsClients::new(settings.gcs.clone());
        let bytes: BytesHook = Arc::new(|_, _| {});
        Self { settings, hook, bytes, s3, gcs, known: Mutex::default(), permits: Mutex::default() }
    }

    /// `bytes` hears of the bytes that come from backends.
    #[must_use]
    pub fn telling_bytes(self, bytes: BytesHook) -> Self {
        Self { bytes, ..self }
    }

    /// The backend of a bucket. It is not asked whether the bucket is there: `head_bucket` tells.
    ///
    /// A bucket that is not registered yet (id 0) gets one of its own that is not kept.
    pub async fn for_bucket(&self, info: &BucketInfo) -> Result<Arc<dyn Backend>> {
        let Some(spec) = &info.backend else {
            return Err(Error::invalid(format!("bucket \"{}\" has no backend", info.bucket)));
        };
        if let Some((known, backend)) = self.known().get(&info.id)
            && known == spec
        {
            return Ok(Arc::clone(backend));
        }
        let backend = self.build(&info.bucket, spec).await?;
        if info.id != 0 {
            self.known().insert(info.id, (spec.clone(), Arc::clone(&backend)));
        }
        Ok(backend)
    }

    /// Forgets a destroyed bucket's backend.
    pub fn forget(&self, bucket_id: u64) {
        self.known().remove(&bucket_id);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn build(&self, bucket: &Bucket, spec: &BackendSpec) -> Result<Arc<dyn Backend>> {
        let name = if spec.bucket.is_empty() { &bucket.name } else { spec.bucket.as_str() };
        let (raw, provider, endpoint): (Arc<dyn Backend>, _, _) = match spec.kind {
            BackendKind::S3 => {
                let client = self.s3.client(spec.endpoint.as_deref()).await?;
                let endpoint = client.endpoint.clone();
                (Arc::new(S3Backend::new(client, bucket.clone(), name)), "aws", endpoint)
            }
            BackendKind::Gcs => {
                let client = self.gcs.client(spec.endpoint.as_deref()).await?;
                let endpoint = client.endpoint.clone();
                (Arc::new(GcsBackend::new(client, bucket.clone(), name)), "gcp", endpoint)
            }
            BackendKind::Folder => {
                let root = spec.root.clone().unwrap_or_default();
                let folder =
                    FolderBackend::open(bucket.clone(), root.into(), &self.settings.folder_roots)
                        .await?;
                (Arc::new(folder), "folder", String::new())
            }
        };
        let metered = Metered::new(raw, provider, Arc::clone(&self.hook));
        let metered = Arc::new(metered.telling_bytes(Arc::clone(&self.bytes)));
        let permits = self.permits_for(endpoint);
        let limited = Arc::new(Limited::new(metered, permits, self.settings.queue_wait));
        Ok(Arc::new(Retrying::new(limited, self.settings.retry.clone())))
    }

    fn permits_for(&self, endpoint: String) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(self.settings.concurrency.max(1)));
        Arc::clone(permits.entry(endpoint).or_insert_with(new))
    }
}
