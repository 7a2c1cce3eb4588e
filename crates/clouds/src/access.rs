//! Checks the access of this node to a bucket's backend, and its identity: for
//! `forebay doctor URI`.

use std::time::Duration;

use forebay_core::backend_access::{Access, BackendAccess, CloudIdentity};
use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::shown_url;
use forebay_core::size::ByteRange;
use futures::TryStreamExt;
use tokio::time::timeout;

use super::gcs::GcsBackend;
use super::{Backend, Backends};

/// Longest time for one of the checks.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Names among which a readable object is searched.
const NAMES_LOOKED_AT: usize = 100;
/// Why the right to write is unknown.
const NOT_WRITTEN: &str = "nothing is written to find out";

impl Backends {
    /// Lists, reads a byte of the first object, and determines the identity. Nothing is retried or
    /// written.
    pub async fn access(&self, info: &BucketInfo, prefix: &str) -> Result<BackendAccess> {
        let Some(spec) = &info.backend else {
            return Err(Error::invalid(format!("bucket \"{}\" has no backend", info.bucket)));
        };
        let mut identity = self.identity(info, spec).await;
        let backend = match self.bare(info, spec).await {
            Ok(backend) => backend,
            Err(error) => {
                return Ok(BackendAccess {
                    identity,
                    list: Access::Fail { error },
                    get: Access::unknown("the bucket cannot be called"),
                    put: Access::unknown("the bucket cannot be called"),
                    example: String::new(),
                });
            }
        };
        let (list, example) = list(&*backend, prefix).await;
        let get = get(&*backend, &list, &example).await;
        let put = self.put(info, spec).await;
        // The calls may have found out another region than the configured one.
        if let (Some(region), Some(configured)) = (backend.region(), &identity.region) {
            let (was, is) = (format!("({configured})"), format!("({region})"));
            identity.endpoint = identity.endpoint.replace(&was, &is);
            identity.region = Some(region);
        }
        Ok(BackendAccess { identity, list, get, put, example })
    }

    async fn identity(&self, info: &BucketInfo, spec: &BackendSpec) -> CloudIdentity {
        let (endpoint, trust) = (spec.endpoint.as_deref(), info.endpoint_trust);
        let none = |why: &str, place: Option<&str>| CloudIdentity {
            credential: format!("none: {why}"),
            endpoint: place.unwrap_or_default().to_owned(),
            ..CloudIdentity::default()
        };
        let identity = match spec.kind {
            BackendKind::S3 => match self.clients.s3.of(&self.settings.accounts, info, spec) {
                Ok(s3) => s3.identity(endpoint, trust, spec.region.as_deref()).await,
                Err(e) => none(&e.message, endpoint),
            },
            BackendKind::Gcs => match self.clients.gcs.of(&self.settings.accounts, info, spec) {
                Ok(gcs) => gcs.identity(endpoint),
                Err(e) => none(&e.message, endpoint),
            },
            BackendKind::Azure => {
                match self.clients.azure.of(&self.settings.accounts, info, spec) {
                    Ok(azure) => azure.identity(endpoint, trust).await,
                    Err(e) => none(&e.message, endpoint),
                }
            }
            BackendKind::Http => none("web servers are called without one", endpoint),
            BackendKind::Ais => none("other clusters are called without one", endpoint),
            BackendKind::Folder => {
                return none(
                    "the user that runs the target reads the folder",
                    spec.root.as_deref(),
                );
            }
        };
        let endpoint = shown_url(&identity.endpoint);
        CloudIdentity { endpoint, cloud: spec.account.clone(), ..identity }
    }

    async fn put(&self, info: &BucketInfo, spec: &BackendSpec) -> Access {
        match spec.kind {
            BackendKind::Http => Access::unknown("a web server can only be read"),
            BackendKind::Gcs => {
                let own: &str = &info.bucket.name;
                let name = if spec.bucket.is_empty() { own } else { &spec.bucket };
                let (endpoint, trust) = (spec.endpoint.as_deref(), info.endpoint_trust);
                let Ok(gcs) = self.clients.gcs.of(&self.settings.accounts, info, spec) else {
                    return Access::unknown(NOT_WRITTEN);
                };
                let Ok(client) = gcs.client_of(endpoint, trust).await else {
                    return Access::unknown(NOT_WRITTEN);
                };
                GcsBackend::new(client, info.bucket.clone(), name).may_write().await
            }
            _ => Access::unknown(NOT_WRITTEN),
        }
    }
}

/// Runs `call` with its timeout.
async fn within<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(ANSWER_WITHIN, call).await.unwrap_or_else(|_| {
        let seconds = ANSWER_WITHIN.as_secs();
        Err(Error::new(ErrorCode::Timeout, format!("no answer came within {seconds} s")))
    })
}

/// Whether objects may be listed, and the name of one of them.
async fn list(backend: &dyn Backend, prefix: &str) -> (Access, String) {
    match within(backend.list(prefix, "".into(), NAMES_LOOKED_AT)).await {
        Ok(page) => {
            let mut objects = page.entries.into_iter().filter(|e| !e.name.ends_with('/'));
            let (found, name) = match objects.next() {
                Some(first) => (format!("the first name is {:?}", first.name), first.name),
                None => ("there is no object".to_owned(), String::new()),
            };
            (Access::ok(found), name)
        }
        Err(e) if e.code == ErrorCode::Unsupported => {
            (Access::unknown(e.message), prefix.to_owned())
        }
        // A credential may be allowed to read objects by name only.
        Err(error) => (Access::Fail { error }, prefix.to_owned()),
    }
}

async fn get(backend: &dyn Backend, listed: &Access, name: &str) -> Access {
    if name.is_empty() {
        return Access::unknown(match listed {
            Access::Ok { .. } => "there is no object to try it on",
            _ => "no object is known to try it on; give the name of one behind the bucket",
        });
    }
    let read = async {
        let size = backend.stat(name).await?.size;
        let range = (size > 0).then_some(ByteRange { start: 0, end: 1 });
        let object = backend.get(name, range, None).await?;
        object.stream.try_for_each(|_| async { Ok(()) }).await
    };
    match within(read).await {
        Ok(()) => Access::ok(format!("the first byte of {name:?}")),
        // Without a listing, `prefix` is used as an object name; it was only a prefix then.
        Err(e) if e.code == ErrorCode::ObjectNotFound && listed.error().is_some() => {
            Access::unknown(
                "no object is known to try it on; give the name of one behind the bucket",
            )
        }
        Err(error) => Access::Fail { error },
    }
}

/// The value of an environment variable that is not secret; `None` if it is empty.
pub(super) fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
