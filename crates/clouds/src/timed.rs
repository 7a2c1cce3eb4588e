//! Limits how long a backend may take to respond. A body has time as long as it flows, which the
//! retries check.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use tokio::time::timeout;

use super::{After, Backend, Described, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// A backend with a timeout for responses. Uploads have timeouts by their size, which their own
/// clients enforce.
pub struct Timed {
    inner: Arc<dyn Backend>,
    answer: Duration,
}

impl Timed {
    pub fn new(inner: Arc<dyn Backend>, answer: Duration) -> Self {
        Self { inner, answer }
    }

    async fn within<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        timeout(self.answer, call).await.unwrap_or_else(|_| {
            let text = format!("the backend did not answer within {:?}", self.answer);
            Err(Error::new(ErrorCode::Timeout, text)
                .hint("cloud.answer_ms of the bucket says how long a call may take"))
        })
    }
}

#[async_trait]
impl Backend for Timed {
    async fn head_bucket(&self) -> Result<()> {
        self.within(self.inner.head_bucket()).await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.within(self.inner.stat(name)).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        self.within(self.inner.get(name, range, if_version)).await
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        self.inner.put(name, body).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.within(self.inner.delete(name)).await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.within(self.inner.list(prefix, after, limit)).await
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.within(self.inner.describe(from, limit)).await
    }

    async fn compose(&self, into: &str, parts: &[&Described]) -> Result<RemoteMeta> {
        self.within(self.inner.compose(into, parts)).await
    }

    async fn check_composing(&self) -> Result<()> {
        self.within(self.inner.check_composing()).await
    }
}
