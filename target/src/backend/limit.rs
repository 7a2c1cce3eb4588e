//! Bounds how many calls to one backend are in flight; a body counts until it ends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use futures::stream::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Backend, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// A backend that shares a number of permits with others at the same endpoint.
pub struct Limited {
    inner: Arc<dyn Backend>,
    permits: Arc<Semaphore>,
    /// Longest time a call waits for its turn.
    wait: Duration,
}

impl Limited {
    pub fn new(inner: Arc<dyn Backend>, permits: Arc<Semaphore>, wait: Duration) -> Self {
        Self { inner, permits, wait }
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        match tokio::time::timeout(self.wait, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Error::new(
                ErrorCode::TooManyRequests,
                format!("no call to the backend became free within {:?}", self.wait),
            )
            .retry_after(1)),
        }
    }
}

#[async_trait]
impl Backend for Limited {
    async fn head_bucket(&self) -> Result<()> {
        let _permit = self.permit().await?;
        self.inner.head_bucket().await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        let _permit = self.permit().await?;
        self.inner.stat(name).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let permit = self.permit().await?;
        let RemoteObject { meta, range, stream } = self.inner.get(name, range, if_version).await?;
        let stream = stream
            .map(move |chunk| {
                let _held_until_the_stream_is_dropped = &permit;
                chunk
            })
            .boxed();
        Ok(RemoteObject { meta, range, stream })
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        let _permit = self.permit().await?;
        self.inner.put(name, body).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let _permit = self.permit().await?;
        self.inner.delete(name).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<RemotePage> {
        let _permit = self.permit().await?;
        self.inner.list(prefix, after, limit).await
    }
}
