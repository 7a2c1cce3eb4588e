//! Calls a hook for every call that really goes to a backend, retries included, makes a span of it in
//! the trace of the current request, and adds the bytes to the bucket's bill. Each kind of backend
//! bills its requests itself, because a call may be several.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use forebay_node::bill::Bill;
use forebay_node::trace::{self, ChildSpan};
use futures::StreamExt;

use super::{After, Backend, Described, Op, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// Called with provider (`aws`, `gcp`, `folder`), operation ([`Op::as_str`]) and result (`ok`,
/// `not_found`, `denied`, `changed`, `unavailable`, `error`) of each call, and its time: for a get,
/// until its body opens.
pub type Hook = Arc<dyn Fn(&'static str, &'static str, &'static str, Duration) + Send + Sync>;

/// Called with provider and the number of bytes received of an object's body.
pub type BytesHook = Arc<dyn Fn(&'static str, u64) + Send + Sync>;

/// A backend whose calls are counted. A get counts when its body opens, its bytes as they arrive.
pub struct Metered {
    inner: Arc<dyn Backend>,
    provider: &'static str,
    hook: Hook,
    bytes: BytesHook,
    bill: Option<Arc<Bill>>,
    /// The URI of the bucket, for spans.
    bucket: Arc<str>,
}

impl Metered {
    pub fn new(inner: Arc<dyn Backend>, provider: &'static str, hook: Hook) -> Self {
        let bucket = Arc::from("");
        Self { inner, provider, hook, bytes: Arc::new(|_, _| {}), bill: None, bucket }
    }

    /// Names the bucket in spans.
    #[must_use]
    pub fn of_bucket(self, bucket: Arc<str>) -> Self {
        Self { bucket, ..self }
    }

    /// Reports the bytes of bodies to `bytes`.
    #[must_use]
    pub fn telling_bytes(self, bytes: BytesHook) -> Self {
        Self { bytes, ..self }
    }

    /// Adds the bytes to a bill.
    #[must_use]
    pub fn billing(self, bill: Option<Arc<Bill>>) -> Self {
        Self { bill, ..self }
    }

    /// Counts a call about `name`. Returns its span, too, which the caller may keep longer.
    async fn spanned<T>(
        &self,
        (op, name): (Op, &str),
        call: impl Future<Output = Result<T>>,
    ) -> (Result<T>, Option<ChildSpan>) {
        let started = Instant::now();
        let mut span = trace::child(op.span_name(), self.provider, &self.bucket, name);
        let result = call.await;
        let word = result.as_ref().err().map_or("ok", result_word);
        (self.hook)(self.provider, op.as_str(), word, started.elapsed());
        if let Some(span) = &mut span {
            span.set_result(word, is_failure(word));
        }
        (result, span)
    }

    async fn count<T>(&self, call: (Op, &str), work: impl Future<Output = Result<T>>) -> Result<T> {
        self.spanned(call, work).await.0
    }
}

/// The result of a failed call, as metrics and spans name it.
fn result_word(e: &Error) -> &'static str {
    match e.code {
        ErrorCode::ObjectNotFound | ErrorCode::RemoteBucketNotFound => "not_found",
        code if code.is_refusal() => "denied",
        ErrorCode::ObjectChanged => "changed",
        code if code.is_transient() => "unavailable",
        _ => "error",
    }
}

/// Whether a span with this result has failed.
fn is_failure(word: &str) -> bool {
    !matches!(word, "ok" | "not_found" | "changed")
}

#[async_trait]
impl Backend for Metered {
    async fn head_bucket(&self) -> Result<()> {
        self.count((Op::HeadBucket, ""), self.inner.head_bucket()).await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.count((Op::Stat, name), self.inner.stat(name)).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let call = self.inner.get(name, range, if_version);
        let (object, mut span) = self.spanned((Op::Get, name), call).await;
        let mut object = object?;
        let (provider, bytes, bill) = (self.provider, self.bytes.clone(), self.bill.clone());
        // The span ends with the body.
        let counted = object.stream.inspect(move |chunk| match chunk {
            Ok(chunk) => {
                let n = chunk.len() as u64;
                bytes(provider, n);
                if let Some(span) = &mut span {
                    span.add_bytes(n);
                }
                if let Some(bill) = &bill {
                    bill.fetched(n);
                }
            }
            Err(e) => {
                let word = result_word(e);
                if let Some(span) = &mut span {
                    span.set_result(word, is_failure(word));
                }
            }
        });
        object.stream = counted.boxed();
        Ok(object)
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        let size = body.size;
        let (done, mut span) = self.spanned((Op::Put, name), self.inner.put(name, body)).await;
        let done = done?;
        if let Some(span) = &mut span {
            span.add_bytes(size);
        }
        if let Some(bill) = &self.bill {
            bill.sent(size);
        }
        Ok(done)
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.count((Op::Delete, name), self.inner.delete(name)).await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.count((Op::List, prefix), self.inner.list(prefix, after, limit)).await
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.count((Op::List, from), self.inner.describe(from, limit)).await
    }

    async fn compose(&self, into: &str, parts: &[&Described]) -> Result<RemoteMeta> {
        self.count((Op::Compose, into), self.inner.compose(into, parts)).await
    }

    async fn check_composing(&self) -> Result<()> {
        self.count((Op::HeadBucket, ""), self.inner.check_composing()).await
    }
}
