//! Batches: the native stream, and GetBatch of v1 (`/v1/ml/moss`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use forebay_client::PeerClient;
use forebay_core::access::Access;
use forebay_core::batch::BatchRequest;
use forebay_core::batch_stream::CONTENT_TYPE;
use forebay_core::cloud_rules::CloudRules;
use forebay_core::job::JobKind;
use forebay_core::name::{MAX_OBJECT_NAME, check_length};
use forebay_core::request::{Caller, RequestContext};
use forebay_core::timing::TIMING_HEADER;
use forebay_core::url::decode_path;
use forebay_core::{Bucket, Error, Result};
use forebay_node::auth;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::Hangup;
use forebay_node::maps::Maps;
use forebay_node::off_worker;
use forebay_node::rates::Pass;
use forebay_node::reply::Failure;
use forebay_node::routing::RouteSet;
use forebay_node::trace;
use forebay_routes::native::BATCH;
use forebay_routes::v1_objects::MOSS;
use forebay_v1::batch::{MossRequest, MossResponse};
use forebay_v1::query::Query;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};

use super::MAX_JSON;
use super::objects::Admission;
use super::synced::{Current, Synced};
use crate::batch::assembler::Assembler;
use crate::batch::budget::{Budget, RequestMemory, Sender, Share};
use crate::batch::native::StageTimer;
use crate::batch::output::content_type;
use crate::batch::spool::Spool;
use crate::batch::{Loader, answer, native};
use crate::job::{Jobs, Registration};
use crate::object::read_first_chunk;

/// The services for native batches; cheap to clone.
#[derive(Clone)]
pub(crate) struct BatchApi {
    /// The reader of requests without rules of their own.
    pub(crate) loader: Loader,
    /// Memory of the batches in progress.
    pub(crate) budget: Budget,
    pub(crate) lifecycle: Lifecycle,
}

/// The services for GetBatch of v1; cheap to clone.
#[derive(Clone)]
pub(crate) struct GetBatchApi {
    pub(crate) batches: BatchApi,
    pub(crate) jobs: Jobs,
    pub(crate) maps: Maps,
    pub(crate) peer: PeerClient,
}

pub(crate) fn routes() -> RouteSet<Synced<BatchApi>> {
    RouteSet::new().on(&BATCH, Current(native))
}

pub(crate) fn get_batch_routes() -> RouteSet<Synced<GetBatchApi>> {
    RouteSet::new().on(&MOSS, Current(moss))
}

/// `POST /api/v1/batch`.
async fn native(State(api): State<BatchApi>, request: Request) -> Result<Response, Failure> {
    Ok(answer_native(&api, request).await?)
}

async fn answer_native(api: &BatchApi, request: Request) -> Result<Response> {
    let (sender, hangup, access) = (sender(&request), hangup(&request), access_of(&request));
    let loader = api.loader(request.headers())?;
    let (is_node, user) = (matches!(sender, Sender::Node), user_of(&request));
    let is_timed = request.headers().contains_key(TIMING_HEADER);
    let (body, memory) = api.whole_body(request, "batch").await?;
    let mut times = is_timed.then(StageTimer::start);
    let arrived = Instant::now();
    let share = api.budget.admit(sender, memory, hangup).await;
    trace::stage("queue", arrived);
    let share = share?;
    if let Some(times) = &mut times {
        times.admitted();
    }
    let request = off_worker(body.len(), || serde_json::from_slice::<BatchRequest>(&body));
    let request = request
        .map_err(|e| Error::invalid(format!("batch: the request's body is not valid: {e}")))?;
    request.check_size()?;
    for entry in &request.entries {
        check_length("archpath of an entry", &entry.archpath, MAX_OBJECT_NAME)?;
    }
    // An entry whose bucket is not in the list fails by itself.
    let named = request.entries.iter().filter_map(|entry| {
        Some((request.buckets.get(entry.bucket as usize)?, entry.name.as_str()))
    });
    BATCH.row().of(&access).require_entries(named)?;
    drop(body);
    let pass = match is_node {
        true => None,
        false => {
            let mut counts = vec![0; request.buckets.len()];
            for entry in &request.entries {
                if let Some(count) = counts.get_mut(entry.bucket as usize) {
                    *count += 1;
                }
            }
            api.admit(request.buckets.iter().zip(counts), user).await?
        }
    };
    let stream = native::answer(loader, request, share, times, &api.lifecycle);
    Ok(shaped(body_of(CONTENT_TYPE, stream), pass.as_ref()))
}

/// `GET /v1/ml/moss[/BUCKET]`, redirected here by a gateway.
async fn moss(State(api): State<GetBatchApi>, request: Request) -> Result<Response, Failure> {
    Ok(answer_moss(&api, request).await?)
}

async fn answer_moss(api: &GetBatchApi, request: Request) -> Result<Response> {
    let query = Query::parse(request.uri().query());
    let path = request.uri().path().to_owned();
    let about = request.extensions().get::<RequestContext>();
    let caller = about.map_or(Caller::Anonymous, RequestContext::caller);
    let default = match path.strip_prefix("/v1/ml/moss").unwrap_or("").trim_matches('/') {
        "" => None,
        rest => {
            let bucket = rest.split('/').next().unwrap_or("");
            Some(query.bucket(&decode_path(bucket)?)?)
        }
    };
    let (sender, hangup, access) = (sender(&request), hangup(&request), access_of(&request));
    let (is_node, user) = (matches!(sender, Sender::Node), user_of(&request));
    let loader = api.batches.loader(request.headers())?;
    let (bytes, memory) = api.batches.whole_body(request, "moss").await?;
    let share = Arc::new(api.batches.budget.admit(sender, memory, hangup).await?);
    auth::check_body(caller, &query, &bytes)?;
    let moss = off_worker(bytes.len(), || MossRequest::parse(&bytes))?;
    let format = moss.format()?;
    let entries = off_worker(bytes.len(), || moss.resolve(default.as_ref()))?;
    drop(bytes);
    let named = entries.iter().map(|entry| (&entry.bucket, entry.name.as_str()));
    MOSS.row().of(&access).require_entries(named)?;
    let state = api.maps.load();
    let (mut known, mut counts) = (None, BTreeMap::new());
    for entry in &entries {
        if known != Some(&entry.bucket) {
            state.bucket(&entry.bucket)?;
            known = Some(&entry.bucket);
        }
        *counts.entry(&entry.bucket).or_insert(0) += 1;
    }
    let pass = match is_node {
        true => None,
        false => api.batches.admit(counts.into_iter(), user).await?,
    };
    let bucket = default.as_ref().or_else(|| entries.first().map(|e| &e.bucket));
    let job = Registration::new(JobKind::GetBatch);
    let job = api.jobs.register(match bucket {
        Some(bucket) => job.bucket(bucket),
        None => job,
    })?;
    job.expect(entries.len() as u64, 0);
    let streaming = moss.strm;
    let assembler = Assembler::new(loader, api.peer.clone(), share.clone(), moss, entries);
    if streaming {
        let archive = answer::streamed(assembler, job, share, &api.batches.lifecycle);
        // A failure before the first byte can still set the status.
        let archive = read_first_chunk(archive.boxed()).await?;
        return Ok(shaped(body_of(content_type(format), archive), pass.as_ref()));
    }
    let spool = Spool::new(api.batches.loader.service.clone(), job.id());
    let (whole, archive) = answer::buffered(assembler, job, spool).await?;
    Ok(shaped(multipart(whole, archive, share)?, pass.as_ref()))
}

/// A response whose body passes at the rate of its limits, if it has some.
fn shaped(response: Response, pass: Option<&Arc<Pass>>) -> Response {
    match pass {
        Some(pass) => pass.shape_response(response),
        None => response,
    }
}

/// The metadata, followed by the archive.
fn multipart(
    whole: MossResponse,
    archive: BoxStream<'static, Result<Bytes>>,
    share: Arc<Share>,
) -> Result<Response> {
    let boundary = random_text(48);
    let uuid = &whole.uuid;
    let metadata = serde_json::to_string(&whole)
        .map_err(|e| Error::internal(format!("batch metadata: {e}")))?;
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\
         Content-Type: application/json\r\n\r\n{metadata}\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"archive\"; filename=\"get-batch[{uuid}]\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    let part = |text: String| stream::once(async move { Ok(Bytes::from(text)) });
    let parts = part(head).chain(archive).chain(part(tail)).boxed();
    // The share is held until all is sent. Between two chunks this waits for the client.
    let parts = stream::unfold((parts, share), |(mut parts, share)| async move {
        share.waits_for_client(false);
        let part = parts.next().await?;
        share.waits_for_client(true);
        Some((part, (parts, share)))
    });
    Ok(body_of(&format!("multipart/mixed; boundary={boundary}"), parts))
}

/// Random letters and digits, so that they do not occur in an archive by accident.
fn random_text(len: usize) -> String {
    use rand::RngExt;
    let mut rng = rand::rng();
    (0..len).map(|_| char::from(rng.sample(rand::distr::Alphanumeric))).collect()
}

impl BatchApi {
    /// Waits for the turn of a batch with so many entries of each bucket, if their buckets or its user
    /// have limits. Entries of unknown buckets fail by themselves.
    fn admit<'a>(
        &self,
        counts: impl Iterator<Item = (&'a Bucket, usize)>,
        user: Option<String>,
    ) -> Admission {
        let maps = self.loader.service.maps().clone();
        let state = maps.load();
        let found = counts.filter_map(|(bucket, n)| Some((state.bucket(bucket).ok()?.clone(), n)));
        let requests: Vec<_> = found.filter(|(_, count)| *count > 0).collect();
        Box::pin(async move {
            let requests: Vec<_> = requests.iter().map(|(info, count)| (&**info, *count)).collect();
            let targets = maps.load().alive_targets().count();
            maps.rates().admit_all(&requests, user.as_deref(), targets).await
        })
    }

    /// The reader for a request with these headers.
    fn loader(&self, headers: &HeaderMap) -> Result<Loader> {
        let cloud = CloudRules::default().with_request_rules(headers)?;
        Ok(Loader { cloud, ..self.loader.clone() })
    }

    /// Reads the request's body, and accounts for its memory as it arrives.
    async fn whole_body(&self, request: Request, what: &str) -> Result<(Bytes, RequestMemory)> {
        let mut memory = self.budget.request();
        let mut body = request.into_body().into_data_stream();
        let (mut first, mut all) = (Bytes::new(), BytesMut::new());
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|e| {
                Error::invalid(format!("{what}: the request's body cannot be read: {e}"))
            })?;
            memory.grow(piece.len())?;
            if first.is_empty() && all.is_empty() {
                first = piece;
                continue;
            }
            if all.is_empty() {
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&piece);
            if all.len() > MAX_JSON {
                let text = format!("{what}: the request's body has more than {MAX_JSON} bytes");
                return Err(Error::invalid(text));
            }
        }
        Ok((if all.is_empty() { first } else { all.freeze() }, memory))
    }
}

/// The rights of the sender of a request.
fn access_of(request: &Request) -> Access {
    let about = request.extensions().get::<RequestContext>();
    about.map_or(Access::Anonymous, |about| about.access().clone())
}

/// Name of the user who sent a request.
fn user_of(request: &Request) -> Option<String> {
    request.extensions().get::<RequestContext>()?.user().map(str::to_owned)
}

fn sender(request: &Request) -> Sender {
    let about = request.extensions().get::<RequestContext>();
    match about.map(RequestContext::caller) {
        Some(Caller::Node) => Sender::Node,
        _ => Sender::Client,
    }
}

/// The handle that ends the request's connection.
fn hangup(request: &Request) -> Hangup {
    request.extensions().get::<Hangup>().cloned().unwrap_or_default()
}

fn body_of(
    content_type: &str,
    stream: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> Response {
    ([(header::CONTENT_TYPE, content_type.to_owned())], Body::from_stream(stream)).into_response()
}
