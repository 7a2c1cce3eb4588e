//! Limits how many calls to one backend are in flight, and how many start in a second. A body
//! counts until it ends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::cloud_rules::{CloudRule, CloudRules};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use forebay_node::pace::Pace;
use futures::stream::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::adaptive::{Adaptive, Turn};
use super::{After, Backend, Described, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// The limits that all calls to one bucket's backend share.
pub(crate) struct Limits {
    bucket: Arc<Adaptive>,
    /// Shared with other buckets at the same endpoint.
    endpoint: Arc<Semaphore>,
    requests: Pace,
}

impl Limits {
    /// At most `most` calls at once, or fewer if the rules say so; `targets` share the budget.
    pub(crate) fn new(
        rules: &CloudRules,
        most: usize,
        endpoint: Arc<Semaphore>,
        targets: usize,
    ) -> Self {
        let most = rules.number(CloudRule::Concurrency).map_or(most, |n| n as usize);
        let requests = rules.number(CloudRule::RequestsPerSecond);
        Self {
            bucket: Arc::new(Adaptive::new(most)),
            endpoint,
            requests: Pace::new(requests.unwrap_or(0) as f64, targets),
        }
    }
}

impl Limits {
    /// Calls in flight that the bucket's backend allows at the moment.
    pub(crate) fn calls(&self) -> usize {
        self.bucket.limit(Instant::now())
    }
}

/// A backend whose calls respect limits.
pub struct Limited {
    inner: Arc<dyn Backend>,
    limits: Arc<Limits>,
    /// Longest time a call waits for its permit.
    wait: Duration,
}

/// A call in progress.
struct Call {
    turn: Turn,
    _permit: OwnedSemaphorePermit,
}

impl Limited {
    pub(crate) fn new(inner: Arc<dyn Backend>, limits: Arc<Limits>, wait: Duration) -> Self {
        Self { inner, limits, wait }
    }

    async fn begin(&self) -> Result<Call> {
        let Limits { bucket, endpoint, requests, .. } = &*self.limits;
        let turn = bucket.turn(self.wait).await.ok_or_else(|| self.too_many())?;
        let permit = Arc::clone(endpoint).acquire_owned();
        let permit = match tokio::time::timeout(self.wait, permit).await {
            Ok(Ok(permit)) => permit,
            _ => return Err(self.too_many()),
        };
        if !requests.pass_within(1, self.wait).await {
            return Err(self.too_many().hint("the bucket's cloud.requests_per_second is used up"));
        }
        Ok(Call { turn, _permit: permit })
    }

    fn too_many(&self) -> Error {
        Error::new(
            ErrorCode::TooManyRequests,
            format!("no call to the backend became free within {:?}", self.wait),
        )
        .retry_after(1)
    }

    async fn call<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let call = self.begin().await?;
        let done = work.await;
        call.turn.ended(done.as_ref().err());
        done
    }
}

#[async_trait]
impl Backend for Limited {
    async fn head_bucket(&self) -> Result<()> {
        self.call(self.inner.head_bucket()).await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.call(self.inner.stat(name)).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let call = self.begin().await?;
        let opened = self.inner.get(name, range, if_version).await;
        call.turn.ended(opened.as_ref().err());
        let RemoteObject { meta, range, stream } = opened?;
        let stream = stream
            .map(move |chunk| {
                let _held_until_the_stream_is_dropped = &call;
                chunk
            })
            .boxed();
        Ok(RemoteObject { meta, range, stream })
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        self.call(self.inner.put(name, body)).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.call(self.inner.delete(name)).await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.call(self.inner.list(prefix, after, limit)).await
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.call(self.inner.describe(from, limit)).await
    }

    async fn compose(&self, into: &str, parts: &[&Described]) -> Result<RemoteMeta> {
        let call = self.begin().await?;
        let done = self.inner.compose(into, parts).await;
        // A rejection means that there are too many compositions, not too many other calls.
        call.turn.ended(None);
        done
    }

    async fn check_composing(&self) -> Result<()> {
        self.call(self.inner.check_composing()).await
    }
}
