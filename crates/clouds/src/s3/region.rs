//! A bucket of S3 whose region is found out: if the server names another region, the call is sent there.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use forebay_core::egress::EndpointTrust;
use forebay_core::error::Result;
use forebay_core::name::Bucket;
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;

use super::{S3Backend, S3Clients};
use crate::{After, Backend, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// See the module.
pub(crate) struct RegionalS3 {
    clients: Arc<S3Clients>,
    endpoint: Option<String>,
    trust: EndpointTrust,
    bucket: Bucket,
    remote: String,
    bill: Arc<Bill>,
    current: ArcSwap<S3Backend>,
}

impl RegionalS3 {
    /// `bucket` is the name that errors show; `remote` the one at the endpoint.
    pub(crate) async fn open(
        clients: Arc<S3Clients>,
        endpoint: Option<&str>,
        trust: EndpointTrust,
        bucket: Bucket,
        remote: &str,
        bill: Arc<Bill>,
    ) -> Result<Self> {
        let client = clients.client_in(endpoint, trust, None).await?;
        let backend = S3Backend::new(client, bucket.clone(), remote).billing(Arc::clone(&bill));
        let (endpoint, remote) = (endpoint.map(str::to_owned), remote.to_owned());
        let current = ArcSwap::from_pointee(backend);
        Ok(Self { clients, endpoint, trust, bucket, remote, bill, current })
    }

    /// The backend in the bucket's region, if `failed` got an answer that it is another one.
    async fn elsewhere(&self, failed: &Arc<S3Backend>) -> Option<Arc<S3Backend>> {
        let current = self.current.load_full();
        if !Arc::ptr_eq(&current, failed) {
            // Another call has found the region meanwhile.
            return failed.errors.is_elsewhere().then_some(current);
        }
        let region = failed.region_of_bucket().await?;
        let client = self
            .clients
            .client_in(self.endpoint.as_deref(), self.trust, Some(&region))
            .await
            .ok()?;
        let backend = S3Backend::new(client, self.bucket.clone(), &self.remote);
        let backend = Arc::new(backend.billing(Arc::clone(&self.bill)));
        tracing::info!(bucket = %self.bucket, region, "found the region of a bucket");
        self.current.store(Arc::clone(&backend));
        Some(backend)
    }
}

/// Sends a call, and once more if the bucket is in another region.
macro_rules! in_region {
    ($self:ident, $method:ident($($arg:expr),*)) => {{
        let backend = $self.current.load_full();
        match backend.$method($($arg),*).await {
            Ok(done) => Ok(done),
            Err(error) => match $self.elsewhere(&backend).await {
                Some(backend) => backend.$method($($arg),*).await,
                None => Err(error),
            },
        }
    }};
}

#[async_trait]
impl Backend for RegionalS3 {
    fn region(&self) -> Option<String> {
        self.current.load().region()
    }

    async fn head_bucket(&self) -> Result<()> {
        in_region!(self, head_bucket())
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        in_region!(self, stat(name))
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        in_region!(self, get(name, range, if_version))
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        in_region!(self, put(name, body.clone()))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        in_region!(self, delete(name))
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        in_region!(self, list(prefix, after, limit))
    }
}
