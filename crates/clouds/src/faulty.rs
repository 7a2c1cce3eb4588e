//! A backend with injected faults: fails the n-th call, breaks or delays it.
//!
//! It is part of the product so that every layer above can be tested against the same faults.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use futures::stream::{self, StreamExt};

use super::{After, Backend, BodyStream, Op, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// One kind of fault. Faults of bodies have no effect on calls without one.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The call fails before it reaches the backend.
    Fail(Error),
    /// The backend executes the call, then the response is lost.
    LoseAnswer(Error),
    /// The call starts this much later.
    Delay(Duration),
    /// The body ends cleanly after this many bytes.
    Truncate(u64),
    /// The body fails after this many bytes.
    Break(u64),
    /// The body stops after this many bytes and never ends.
    Stall(u64),
}

#[derive(Default)]
struct Plan {
    calls: HashMap<Op, u64>,
    faults: HashMap<(Op, u64), Fault>,
    every: HashMap<Op, Fault>,
}

/// See the module.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    plan: Mutex<Plan>,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.locked()
    }

    /// Injects a fault into call `nth` of `op` (counted from 1, over the whole life).
    pub fn on_call(&self, op: Op, nth: u64, fault: Fault) {
        self.plan().faults.insert((op, nth), fault);
    }

    /// Injects a fault into every call of `op`; `None` ends it.
    pub fn on_every(&self, op: Op, fault: Option<Fault>) {
        match fault {
            Some(fault) => self.plan().every.insert(op, fault),
            None => self.plan().every.remove(&op),
        };
    }

    /// How many calls of `op` arrived so far.
    pub fn calls(&self, op: Op) -> u64 {
        self.plan().calls.get(&op).copied().unwrap_or(0)
    }

    fn begin(&self, op: Op) -> Option<Fault> {
        let mut plan = self.plan();
        let count = plan.calls.entry(op).or_insert(0);
        *count += 1;
        let nth = *count;
        plan.faults.remove(&(op, nth)).or_else(|| plan.every.get(&op).cloned())
    }

    async fn call<T>(&self, op: Op, work: impl Future<Output = Result<T>>) -> Result<T> {
        let fault = self.begin(op);
        apply(fault, work).await
    }
}

async fn apply<T>(fault: Option<Fault>, work: impl Future<Output = Result<T>>) -> Result<T> {
    match fault {
        Some(Fault::Fail(error)) => Err(error),
        Some(Fault::LoseAnswer(error)) => work.await.and(Err(error)),
        Some(Fault::Delay(time)) => {
            tokio::time::sleep(time).await;
            work.await
        }
        _ => work.await,
    }
}

/// The first `n` bytes of `body`.
fn head_of(body: BodyStream, n: u64) -> BodyStream {
    stream::unfold((body, n), |(mut body, left)| async move {
        if left == 0 {
            return None;
        }
        let chunk = body.next().await?.map(|mut chunk| {
            chunk.truncate(left.min(chunk.len() as u64) as usize);
            chunk
        });
        let taken = chunk.as_ref().map_or(0, |c| c.len() as u64);
        Some((chunk, (body, left - taken)))
    })
    .boxed()
}

#[async_trait]
impl Backend for Faulty {
    async fn head_bucket(&self) -> Result<()> {
        self.call(Op::HeadBucket, self.inner.head_bucket()).await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.call(Op::Stat, self.inner.stat(name)).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        let fault = self.begin(Op::Get);
        let mut object = apply(fault.clone(), self.inner.get(name, range, if_version)).await?;
        object.stream = match fault {
            Some(Fault::Truncate(n)) => head_of(object.stream, n),
            Some(Fault::Break(n)) => {
                let broken = Error::new(ErrorCode::Unavailable, "connection reset");
                head_of(object.stream, n).chain(stream::iter([Err(broken)])).boxed()
            }
            Some(Fault::Stall(n)) => head_of(object.stream, n).chain(stream::pending()).boxed(),
            _ => object.stream,
        };
        Ok(object)
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        self.call(Op::Put, self.inner.put(name, body)).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.call(Op::Delete, self.inner.delete(name)).await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.call(Op::List, self.inner.list(prefix, after, limit)).await
    }
}
