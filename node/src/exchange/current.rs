//! The request that the current task works for: its id, and the name of its operation.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use forebay_core::bucket::BucketInfo;
use forebay_core::request::RequestId;
use forebay_core::trace::TraceContext;

use crate::trace::RequestTrace;

tokio::task_local! {
    static CURRENT: Arc<CurrentRequest>;
}

/// A request, as far as the tasks that work for it need to know.
#[derive(Debug)]
pub(crate) struct CurrentRequest {
    id: RequestId,
    /// The operation of its route.
    route: OnceLock<&'static str>,
    /// The operation that the handler found in the request.
    operation: OnceLock<&'static str>,
    user: OnceLock<String>,
    /// The bucket that it is about.
    bucket: OnceLock<Arc<BucketInfo>>,
    /// Bytes that it wrote.
    written: AtomicU64,
    /// Its span, if it has one.
    trace: Option<RequestTrace>,
}

impl CurrentRequest {
    pub(crate) fn new(id: RequestId) -> Arc<Self> {
        Self::traced(id, None)
    }

    /// A request with its trace.
    pub(crate) fn traced(id: RequestId, trace: Option<RequestTrace>) -> Arc<Self> {
        let (route, operation, user) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (bucket, written) = Default::default();
        Arc::new(Self { id, route, operation, user, bucket, written, trace })
    }

    pub(crate) fn trace(&self) -> Option<&RequestTrace> {
        self.trace.as_ref()
    }

    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    /// The name of the operation in metrics and logs.
    pub(crate) fn operation(&self) -> &'static str {
        let route = || self.route.get().copied().filter(|name| !name.is_empty());
        self.operation.get().copied().or_else(route).unwrap_or("unknown")
    }

    /// Names the operation by the route.
    pub(crate) fn set_route(&self, operation: &'static str) {
        let _ = self.route.set(operation);
    }

    /// Records the name of the user, once it is known.
    pub(crate) fn set_user(&self, user: &str) {
        let _ = self.user.set(user.to_owned());
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.user.get().map(String::as_str)
    }

    /// The bucket that the request is about, once a handler has named it.
    pub(crate) fn bucket(&self) -> Option<&Arc<BucketInfo>> {
        self.bucket.get()
    }

    /// Bytes that the request wrote so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Runs work for this request, so that [`id`] finds it.
    pub(crate) async fn scope<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }
}

/// The id of the request that the current task works for.
pub fn id() -> Option<RequestId> {
    CURRENT.try_with(|request| request.id).ok()
}

/// The span of the current request, for requests to other nodes that work for it.
pub fn trace_context() -> Option<TraceContext> {
    CURRENT.try_with(|request| request.trace().map(RequestTrace::context)).ok()?
}

/// The request that the current task works for.
pub(crate) fn current() -> Option<Arc<CurrentRequest>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Names the operation of the current request, if its route does not say it or says it less exactly.
/// The first call counts.
pub fn set_operation(name: &'static str) {
    let _ = CURRENT.try_with(|request| request.operation.set(name));
}

/// Records the bucket that the current request is about. The first call counts.
pub fn set_bucket(info: &Arc<BucketInfo>) {
    let _ = CURRENT.try_with(|request| {
        request.bucket.get_or_init(|| info.clone());
    });
}

/// Adds bytes that the current request wrote.
pub fn add_written(bytes: u64) {
    let _ = CURRENT.try_with(|request| request.written.fetch_add(bytes, Ordering::Relaxed));
}

/// Records the user who sent the current request.
pub(crate) fn set_user(user: &str) {
    let _ = CURRENT.try_with(|request| request.set_user(user));
}

/// Names the operation of the current request by its route.
pub(crate) fn set_route(operation: &'static str) {
    let _ = CURRENT.try_with(|request| request.set_route(operation));
}

/// Work that another task does for the current request.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let request = CURRENT.try_with(Arc::clone).ok();
    async move {
        match request {
            Some(request) => CURRENT.scope(request, work).await,
            None => work.await,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_works_for_a_request_knows_its_id() {
        let request = CurrentRequest::new(RequestId(7));
        let seen = request.scope(async {
            let other = tokio::spawn(carried(async { id() }));
            (id(), other.await.unwrap(), tokio::spawn(async { id() }).await.unwrap())
        });
        assert_eq!(seen.await, (Some(RequestId(7)), Some(RequestId(7)), None));
        assert_eq!(id(), None);
    }

    #[tokio::test]
    async fn the_handler_names_the_operation_more_exactly_than_the_route() {
        let request = CurrentRequest::new(RequestId(7));
        assert_eq!(request.operation(), "unknown");
        request.clone().scope(async { set_route("buckets") }).await;
        assert_eq!(request.operation(), "buckets");
        request.clone().scope(async { set_operation("list") }).await;
        assert_eq!(request.operation(), "list");
    }
}
