//! Inventories on the target that owns their object: taken from the backend, returned in pages.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::ListPage;
use forebay_core::inventory::{
    Footer, InventoryInfo, InventoryQuery, InventoryRequest, InventoryWriter, TRAILER, footer_len,
    home, object_of, page_limit, select,
};
use forebay_core::job::JobKind;
use forebay_core::locks::MutexExt;
use forebay_core::object::ListEntry;
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::job::{Jobs, Registration, RequestJob};
use crate::object::{ObjectService, PutRequest};

/// Starts to take an inventory, as a job with the request's id.
pub(crate) fn create(
    objects: &ObjectService,
    jobs: &Jobs,
    request: InventoryRequest,
) -> Result<impl Future<Output = ()> + Send + use<>> {
    let state = objects.state();
    let info = state.bucket(&request.bucket)?.clone();
    let home = state.bucket(&home()?)?.clone();
    let object = object_of(&request.bucket, &request.name)?;
    let what = Registration::new(JobKind::Inventory).id(request.id.as_str());
    let job = jobs.register(what.bucket(&request.bucket))?;
    let about = InventoryInfo {
        name: request.name,
        prefix: request.prefix,
        started_ns: unix_ns(),
        names_per_chunk: request.names_per_chunk,
        map_version: state.version,
        targets: state.alive_targets().count() as u64,
        ..InventoryInfo::default()
    };
    let objects = objects.clone();
    Ok(async move {
        let stop = job.stop_token();
        let job = Arc::new(Mutex::new(Some(job)));
        let body = rows(objects.clone(), info, about, job.clone());
        let put = PutRequest::new(body.boxed());
        let outcome = tokio::select! {
            () = stop.cancelled() => Err(Error::new(ErrorCode::Conflict, "stopped")),
            done = objects.writes().put(&home, object.as_str(), put) => done.map(drop),
        };
        let job = job.locked().take();
        if let Some(job) = job {
            job.end(outcome);
        }
    })
}

type SharedJob = Arc<Mutex<Option<RequestJob>>>;

/// The remaining work of a write.
enum Left {
    Rows { writer: InventoryWriter, pages: Option<BoxStream<'static, Result<Vec<ListEntry>>>> },
    Nothing,
}

/// The bytes of an inventory, page by page as the backend returns them.
fn rows(
    objects: ObjectService,
    info: Arc<BucketInfo>,
    about: InventoryInfo,
    job: SharedJob,
) -> impl futures::Stream<Item = Result<Bytes>> + Send + 'static {
    let prefix = about.prefix.clone();
    let first = Left::Rows { writer: InventoryWriter::new(about), pages: None };
    futures::stream::try_unfold(first, move |left| {
        let (objects, info, prefix) = (objects.clone(), info.clone(), prefix.clone());
        let job = job.clone();
        async move {
            let Left::Rows { mut writer, pages } = left else { return Ok(None) };
            let mut pages = match pages {
                Some(pages) => pages,
                None => objects.listing().sweep(&info, &prefix, "").await?,
            };
            let Some(rows) = pages.try_next().await? else {
                return Ok(Some((Bytes::from(writer.finish(unix_ns())?), Left::Nothing)));
            };
            let bytes = writer.rows(&rows)?;
            if let Some(job) = job.locked().as_ref() {
                job.count(rows.len() as u64, bytes.len() as u64);
            }
            Ok(Some((Bytes::from(bytes), Left::Rows { writer, pages: Some(pages) })))
        }
    })
}

/// The description of an inventory.
pub(crate) async fn info(objects: &ObjectService, object: &str) -> Result<InventoryInfo> {
    let (footer, size) = footer(objects, object).await?;
    Ok(InventoryInfo { size, ..footer.info })
}

/// A page of its rows.
pub(crate) async fn page(objects: &ObjectService, query: &InventoryQuery) -> Result<ListPage> {
    let (footer, _) = footer(objects, &query.object).await?;
    let limit = page_limit(query.limit);
    let mut entries = Vec::new();
    let mut at = footer.start(&query.after, &query.prefix);
    loop {
        let (end, last) = footer.block_end(at);
        if end > at {
            let bytes = read(objects, &query.object, at, end).await?;
            let (rows, over) = select(&bytes, query)?;
            entries.extend(rows);
            if over && entries.len() <= limit {
                return Ok(ListPage { entries, more: false });
            }
        }
        let more = entries.len() > limit;
        if more || last {
            entries.truncate(limit);
            return Ok(ListPage { entries, more });
        }
        at = end;
    }
}

/// Deletes an inventory; a missing one is no error.
pub(crate) async fn destroy(objects: &ObjectService, object: &str) -> Result<()> {
    let home = objects.state().bucket(&home()?)?.clone();
    match objects.writes().delete(&home, object).await {
        Err(e) if e.code == ErrorCode::ObjectNotFound => Ok(()),
        other => other,
    }
}

/// The footer and the object's size.
async fn footer(objects: &ObjectService, object: &str) -> Result<(Footer, u64)> {
    let home = objects.state().bucket(&home()?)?.clone();
    let size = objects.reads().head(&home, object).await?.size;
    let trailer = read(objects, object, size.saturating_sub(TRAILER), size).await?;
    let end = size.saturating_sub(TRAILER);
    let len = footer_len(&trailer, size)?;
    Ok((Footer::parse(&read(objects, object, end - len, end).await?)?, size))
}

async fn read(objects: &ObjectService, object: &str, start: u64, end: u64) -> Result<Bytes> {
    let home = objects.state().bucket(&home()?)?.clone();
    if start >= end {
        return Ok(Bytes::new());
    }
    let range = RangeSpec::From(start, Some(end - 1));
    let found = objects.reads().get_range(&home, object, Some(range)).await?;
    let pieces = found.stream(ByteRange { start, end });
    let bytes = pieces.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    bytes.await.map(Bytes::from)
}
