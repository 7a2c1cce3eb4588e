//! Batches: the native stream, and GetBatch of v1 (`/v1/ml/moss`).

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::batch::{BatchRequest, MAX_ENTRIES};
use forebay_core::batch_stream::CONTENT_TYPE;
use forebay_core::v1::batch::{MossRequest, MossResponse};
use forebay_core::v1::query::{Query, decode_path};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::reply::Failure;
use futures::{Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Context, MAX_JSON, Shared};
use crate::batch::assembler::Assembler;
use crate::batch::output::{Sink, content_type};
use crate::batch::{Loader, native, outgoing};

/// `POST /api/v1/batch`.
pub(super) async fn native(
    State(context): State<Shared>,
    Json(request): Json<BatchRequest>,
) -> Result<Response, Failure> {
    if request.entries.len() > MAX_ENTRIES {
        return Err(Error::invalid(format!("a batch has at most {MAX_ENTRIES} entries")).into());
    }
    let permit = permit(&context)?;
    context.metrics.http_request("api", "batch", "ok");
    let stream = native::answer(loader(&context), request, &context.lifecycle);
    Ok(body(CONTENT_TYPE, stream, permit))
}

/// `GET /v1/ml/moss[/BUCKET]`, redirected here by a gateway.
pub(super) async fn moss(
    State(context): State<Shared>,
    request: Request,
) -> Result<Response, Failure> {
    let result = answer_moss(&context, request).await;
    context.metrics.http_request("v1", "moss", forebay_node::metrics::result_of(&result));
    Ok(result?)
}

async fn answer_moss(context: &Context, request: Request) -> Result<Response> {
    let query = Query::parse(request.uri().query());
    let path = request.uri().path().to_owned();
    let default = match path.strip_prefix("/v1/ml/moss").unwrap_or("").trim_matches('/') {
        "" => None,
        rest => {
            let bucket = rest.split('/').next().unwrap_or("");
            Some(query.bucket(&decode_path(bucket)?)?)
        }
    };
    let bytes = axum::body::to_bytes(request.into_body(), MAX_JSON)
        .await
        .map_err(|e| Error::invalid(format!("moss: the request's body cannot be read: {e}")))?;
    let moss = MossRequest::parse(&bytes)?;
    let format = moss.format()?;
    let entries = moss.resolve(default.as_ref())?;
    let state = context.maps.load();
    for entry in &entries {
        state.bucket(&entry.bucket)?;
    }
    let permit = permit(context)?;
    let streaming = moss.strm;
    let assembler = Assembler::new(loader(context), context.peer.clone(), moss, entries)?;
    if streaming {
        Ok(body(content_type(format), streamed(context, assembler), permit))
    } else {
        buffered(assembler).await
    }
}

fn streamed(context: &Context, assembler: Assembler) -> impl Stream<Item = Result<Bytes>> + use<> {
    let (sender, receiver) = mpsc::channel(2);
    let stop = context.lifecycle.token();
    context.lifecycle.spawn(async move {
        let mut sink = Sink::Channel(sender.clone());
        let done = tokio::select! {
            () = sender.closed() => return,
            () = stop.cancelled() => Err(Error::unavailable("this target is stopping")),
            done = assembler.run(&mut sink) => done,
        };
        if let Err(e) = done {
            tracing::debug!(error = %e, "batch ended early");
            // The stream then has no proper end, which is how the client learns of it.
            let _ = sender.send(Err(e)).await;
        }
    });
    outgoing(receiver)
}

/// Metadata first, so everything is read before the first byte goes out.
async fn buffered(assembler: Assembler) -> Result<Response> {
    let mut sink = Sink::Memory(Vec::new(), 0);
    let out = assembler.run(&mut sink).await?;
    let Sink::Memory(parts, _) = sink else {
        return Err(Error::internal("a buffered batch went elsewhere"));
    };
    let uuid = format!("gbt-{}", random_text(9));
    let boundary = random_text(48);
    let metadata = serde_json::to_string(&MossResponse { uuid: uuid.clone(), out })
        .map_err(|e| Error::internal(format!("batch metadata: {e}")))?;
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\
         Content-Type: application/json\r\n\r\n{metadata}\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"archive\"; filename=\"get-batch[{uuid}]\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    let parts = std::iter::once(Bytes::from(head))
        .chain(parts)
        .chain(std::iter::once(Bytes::from(tail)))
        .map(Ok::<_, Error>);
    let mut response = Response::new(Body::from_stream(futures::stream::iter(parts)));
    let content_type = format!("multipart/mixed; boundary={boundary}");
    if let Ok(value) = HeaderValue::from_str(&content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    Ok(response)
}

/// Random letters and digits: cannot occur in an archive by accident.
fn random_text(len: usize) -> String {
    use rand::RngExt;
    let mut rng = rand::rng();
    (0..len).map(|_| char::from(rng.sample(rand::distr::Alphanumeric))).collect()
}

fn loader(context: &Context) -> Loader {
    Loader {
        service: context.objects.clone(),
        shards: context.shards.clone(),
        me: context.identity.id.clone(),
    }
}

fn permit(context: &Context) -> Result<OwnedSemaphorePermit> {
    context.batches.clone().try_acquire_owned().map_err(|_| {
        Error::new(ErrorCode::TooManyRequests, "this target answers as many batches as it may")
            .retry_after(1)
            .hint("retry later, or raise limits.batches")
    })
}

/// A streamed answer that holds its permit until it has gone out.
fn body(
    content_type: &'static str,
    stream: impl Stream<Item = Result<Bytes>> + Send + 'static,
    permit: OwnedSemaphorePermit,
) -> Response {
    let stream = stream.map(move |item| {
        let _held = &permit;
        item
    });
    ([(header::CONTENT_TYPE, content_type)], Body::from_stream(stream)).into_response()
}
