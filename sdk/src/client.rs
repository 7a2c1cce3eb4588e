//! `_core.Client`: every call of the Python package to the cluster. Values that are not bytes are
//! passed as JSON texts, which the Python side converts to its own types.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use forebay_client::{
    Body, Client as Native, ClientConfig, Contact, Naming, Ranges, Result as ClientResult,
    ShardOptions,
};
use forebay_core::archive::ArchiveFormat;
use forebay_core::bucket::{BackendKind, BackendSpec};
use forebay_core::job::{JobKind, Selection};
use forebay_core::list_columns::Columns;
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, Error, ObjectName};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList};
use serde::Serialize;

use crate::batch::{self, BatchStream, Content, PendingBatch};
use crate::buffer::{Buffer, Destination};
use crate::each::{Pinned, pinned};
use crate::error::raise;
use crate::listing;
use crate::object::{self, ObjectStream, PendingObject};
use crate::part_buffer::PartBuffer;
use crate::runtime::{self, Owned};
use crate::shard::{self, ShardStream};
use crate::upload::Upload;

/// A client that is created anew in each process that uses it.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct Client {
    config: ClientConfig,
    /// Without a lock, because a fork could copy it in the locked state.
    current: ArcSwapOption<Owned<Native>>,
}

impl Client {
    /// The Rust client of this process.
    pub(crate) fn native(&self, py: Python<'_>) -> PyResult<Native> {
        let current = self.current.load_full();
        if let Some(native) = current.as_deref().and_then(Owned::get) {
            return Ok(native.clone());
        }
        let _context = runtime::runtime(py)?.enter();
        let native = Native::new(self.config.clone()).map_err(|e| raise(py, e))?;
        // Another thread may have created one too; then that one is used from now on.
        self.current.compare_and_swap(&current, Some(Arc::new(Owned::new(native.clone()))));
        Ok(native)
    }

    /// Runs one call and waits for its result without the GIL.
    pub(crate) fn call<T: Send, F>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(Native) -> F,
    ) -> PyResult<T>
    where
        F: Future<Output = ClientResult<T>> + Send,
    {
        let future = make(self.native(py)?);
        runtime::block_on(py, future)?.map_err(|e| raise(py, e))
    }
}

pub(crate) fn parse_bucket(py: Python<'_>, uri: &str) -> PyResult<Bucket> {
    Ok(Bucket::parse_uri(uri).map_err(|e| raise(py, e))?.0)
}

/// The objects of a job: these names, or all with this prefix.
fn selection(names: Option<Vec<String>>, prefix: String) -> Selection {
    names.map_or(Selection::Prefix(prefix), Selection::Names)
}

fn member_call(
    py: Python<'_>,
    bucket: &str,
    byte_range: Option<&str>,
) -> PyResult<(Bucket, Option<RangeSpec>)> {
    let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
    Ok((parse_bucket(py, bucket)?, range))
}

fn json(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|e| raise(py, Error::internal(format!("cannot show an answer: {e}"))))
}

#[pymethods]
impl Client {
    /// `retry` is the value of the header `forebay-cloud-retry`. `has_contact`: the cluster was
    /// reached before, so that the client waits for a restart.
    #[new]
    #[pyo3(signature = (endpoint, timeout_s, retry=None, has_contact=false))]
    fn new(
        endpoint: String,
        timeout_s: f64,
        retry: Option<String>,
        has_contact: bool,
    ) -> PyResult<Self> {
        let deadline = Duration::try_from_secs_f64(timeout_s)
            .map_err(|e| pyo3::exceptions::PyValueError::new_err(format!("timeout: {e}")))?;
        let usual = ClientConfig::new(endpoint);
        let config = ClientConfig {
            cloud_retry: retry,
            contact: if has_contact { Contact::made() } else { Contact::default() },
            deadline,
            connect_timeout: usual.connect_timeout.min(deadline),
            idle_timeout: usual.idle_timeout.min(deadline),
            ..usual
        };
        Ok(Self { config, current: ArcSwapOption::empty() })
    }

    /// Whether any connection was not refused, here or in the parent process.
    fn has_contact(&self) -> bool {
        self.config.contact.is_made()
    }

    fn cluster_map(&self, py: Python<'_>) -> PyResult<String> {
        let reply = self.call(py, |c| async move { c.refresh_map().await })?;
        json(py, &reply.state)
    }

    fn cluster_info(&self, py: Python<'_>) -> PyResult<String> {
        json(py, &self.call(py, |c| async move { c.cluster_info().await })?)
    }

    fn create_bucket(&self, py: Python<'_>, bucket: &str, folder: Option<String>) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        let backend = folder.map(|root| BackendSpec {
            kind: BackendKind::Folder,
            bucket: String::new(),
            endpoint: None,
            root: Some(root),
        });
        self.call(py, |c| async move { c.create_bucket(&bucket, backend).await })?;
        Ok(())
    }

    fn destroy_bucket(&self, py: Python<'_>, bucket: &str) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        self.call(py, |c| async move { c.destroy_bucket(&bucket).await })
    }

    fn head_bucket(&self, py: Python<'_>, bucket: &str) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.head_bucket(&bucket).await })?)
    }

    fn bucket_bill(&self, py: Python<'_>, bucket: &str) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.bucket_bill(&bucket).await })?)
    }

    fn bucket_access(&self, py: Python<'_>, bucket: &str, prefix: String) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.bucket_access(&bucket, &prefix).await })?)
    }

    fn list_buckets(&self, py: Python<'_>, provider: Option<&str>) -> PyResult<Vec<String>> {
        let provider = provider.map(str::parse).transpose().map_err(|e: Error| raise(py, e))?;
        let buckets = self.call(py, |c| async move { c.list_buckets(provider).await })?;
        Ok(buckets.iter().map(Bucket::to_string).collect())
    }

    #[pyo3(signature = (bucket, prefix, token, page_size, recursive=true))]
    fn list_page(
        &self,
        py: Python<'_>,
        bucket: &str,
        prefix: String,
        token: String,
        page_size: usize,
        recursive: bool,
    ) -> PyResult<(Vec<listing::Row>, String)> {
        let bucket = parse_bucket(py, bucket)?;
        let wanted = listing::request(prefix, token, page_size, recursive);
        let page = self.call(py, |c| async move { c.list_page(&bucket, &wanted).await })?;
        Ok(listing::rows(page))
    }

    fn list_all<'py>(
        &self,
        py: Python<'py>,
        bucket: &str,
        prefix: String,
    ) -> PyResult<[Bound<'py, PyBytes>; 3]> {
        let bucket = parse_bucket(py, bucket)?;
        let buffers = self.call(py, |c| async move {
            let mut buffers = listing::Buffers::new();
            let keep = |rows: Columns| {
                buffers.push(&rows);
                Ok(())
            };
            c.list_blocks(&bucket, &prefix, keep).await?;
            Ok(buffers)
        })?;
        Ok(buffers.into_parts().map(|buffer| PyBytes::new(py, &buffer)))
    }

    fn get(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
    ) -> PyResult<Buffer> {
        let bucket = parse_bucket(py, bucket)?;
        let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
        let bytes = self.call(py, |c| async move { c.get_bytes(&bucket, &name, range).await })?;
        Ok(bytes.into())
    }

    /// The same as a `bytes` object, which the bytes are received into.
    fn read<'py>(
        &self,
        py: Python<'py>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bucket = parse_bucket(py, bucket)?;
        let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
        let reply = self.call(py, |c| {
            let (bucket, name) = (&bucket, &name);
            async move { c.read(bucket, name, range).await }
        })?;
        object::received(py, reply, (&bucket, &name))
    }

    /// Starts a read of a whole object, with an expected size, in the background.
    fn begin_read(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        size: u64,
    ) -> PyResult<PendingObject> {
        PendingObject::begin(py, self.native(py)?, parse_bucket(py, bucket)?, name, size)
    }

    /// Reads a range of an object, or all of it, by several concurrent ranges; with a pin (size,
    /// version, checksum) only that content.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (bucket, name, byte_range, part_size, parallel, pin=None))]
    fn get_in_ranges(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
        part_size: u64,
        parallel: usize,
        pin: Option<Pinned>,
    ) -> PyResult<Buffer> {
        let (bucket, range) = member_call(py, bucket, byte_range)?;
        let how = Ranges { size: part_size, parallel };
        let pin = pin.map(pinned);
        let bytes = self.call(py, |c| async move {
            c.get_in_ranges((&bucket, &name), range, how, pin.as_ref()).await
        })?;
        Ok(bytes.into())
    }

    /// The same, into the memory of a Python object; returns the number of bytes.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (bucket, name, byte_range, dest, offset, part_size, parallel, pin=None))]
    fn get_into(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
        dest: PyBuffer<u8>,
        offset: usize,
        part_size: u64,
        parallel: usize,
        pin: Option<Pinned>,
    ) -> PyResult<usize> {
        let (bucket, range) = member_call(py, bucket, byte_range)?;
        let how = Ranges { size: part_size, parallel };
        let pin = pin.map(pinned);
        let mut dest = Destination::new(dest, offset)?;
        let bytes = dest.bytes();
        self.call(py, |c| async move {
            c.get_into((&bucket, &name), range, how, pin.as_ref(), bytes).await
        })
    }

    fn open(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        byte_range: Option<&str>,
    ) -> PyResult<ObjectStream> {
        let bucket = parse_bucket(py, bucket)?;
        let range = object::parse_range(byte_range).map_err(|e| raise(py, e))?;
        let reply = self.call(py, |c| async move { c.get(&bucket, &name, range).await })?;
        Ok(reply.stream.into())
    }

    fn put(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        data: PyBackedBytes,
    ) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        let body = Body::Bytes(object::share(data));
        let meta = self.call(py, |c| async move { c.put(&bucket, &name, body, None).await })?;
        json(py, &meta)
    }

    /// Writes an object from the content of a part buffer.
    fn put_gathered(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        content: &PartBuffer,
    ) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        let body = Body::Bytes(content.take());
        self.call(py, |c| async move { c.put(&bucket, &name, body, None).await }).map(drop)
    }

    fn put_file(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        path: String,
    ) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        let body = runtime::block_on(py, Body::file(&path))?.map_err(|e| {
            PyOSError::new_err((e.raw_os_error().unwrap_or(0), e.to_string(), path))
        })?;
        let meta = self.call(py, |c| async move { c.put(&bucket, &name, body, None).await })?;
        json(py, &meta)
    }

    /// Starts an upload of an object in parts.
    fn upload(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        parallel: usize,
    ) -> PyResult<Upload> {
        let bucket = parse_bucket(py, bucket)?;
        let native = self.call(py, |c| async move { c.upload(&bucket, &name, parallel).await })?;
        Ok(native.into())
    }

    fn put_many(
        &self,
        py: Python<'_>,
        bucket: &str,
        items: Vec<(String, PyBackedBytes)>,
        concurrency: usize,
    ) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        let items: Vec<_> =
            items.into_iter().map(|(name, data)| (name, object::share(data))).collect();
        self.call(py, |c| object::put_many(c, bucket, items, concurrency))
    }

    fn head(&self, py: Python<'_>, bucket: &str, name: String) -> PyResult<String> {
        let bucket = parse_bucket(py, bucket)?;
        json(py, &self.call(py, |c| async move { c.head(&bucket, &name).await })?)
    }

    fn delete(&self, py: Python<'_>, bucket: &str, name: String) -> PyResult<()> {
        let bucket = parse_bucket(py, bucket)?;
        self.call(py, |c| async move { c.delete(&bucket, &name).await })
    }

    fn copy(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        to_bucket: &str,
        to_name: String,
    ) -> PyResult<()> {
        let (bucket, to) = (parse_bucket(py, bucket)?, parse_bucket(py, to_bucket)?);
        self.call(py, |c| async move { c.copy((&bucket, &name), (&to, &to_name)).await })
    }

    /// Reads a batch: each result in the order of `names` as a `Buffer` (or `bytes`, if requested),
    /// or an exception, which is raised only if requested. Without `bucket_of` all are in the first
    /// bucket.
    #[pyo3(signature = (buckets, bucket_of, names, parts=None, as_bytes=false, raises=false))]
    fn batch_all<'py>(
        &self,
        py: Python<'py>,
        buckets: Vec<String>,
        bucket_of: Option<Vec<u32>>,
        names: Vec<PyBackedStr>,
        parts: Option<Vec<batch::Part>>,
        as_bytes: bool,
        raises: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let request = batch::request(py, &buckets, bucket_of.as_deref(), &names, parts)?;
        let content = if as_bytes { Content::Bytes } else { Content::Shared };
        batch::read_all(py, self.native(py)?, request, content, raises)
    }

    /// The same, started now and taken later.
    #[pyo3(signature = (buckets, bucket_of, names, as_bytes=false, raises=false))]
    fn begin_batch(
        &self,
        py: Python<'_>,
        buckets: Vec<String>,
        bucket_of: Option<Vec<u32>>,
        names: Vec<PyBackedStr>,
        as_bytes: bool,
        raises: bool,
    ) -> PyResult<PendingBatch> {
        let request = batch::request(py, &buckets, bucket_of.as_deref(), &names, None)?;
        let content = if as_bytes { Content::Bytes } else { Content::Shared };
        PendingBatch::begin(py, self.native(py)?, request, content, raises)
    }

    /// The same as they arrive, each with its position; in the order of `names` or not.
    #[pyo3(signature = (buckets, bucket_of, names, parts=None, ordered=true))]
    fn batch(
        &self,
        py: Python<'_>,
        buckets: Vec<String>,
        bucket_of: Option<Vec<u32>>,
        names: Vec<PyBackedStr>,
        parts: Option<Vec<batch::Part>>,
        ordered: bool,
    ) -> PyResult<BatchStream> {
        let mut request = batch::request(py, &buckets, bucket_of.as_deref(), &names, parts)?;
        request.ordered = ordered;
        let native = self.native(py)?;
        let _context = runtime::runtime(py)?.enter();
        Ok(native.batch(&request).map_err(|e| raise(py, e))?.into())
    }

    /// Reads a member of a shard, whole or a range of it.
    fn get_member(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        archpath: String,
        mime: Option<String>,
        byte_range: Option<&str>,
    ) -> PyResult<Buffer> {
        let (bucket, range) = member_call(py, bucket, byte_range)?;
        let bytes = self.call(py, |c| async move {
            let reply = c.get_member(&bucket, &name, &archpath, mime.as_deref(), range).await?;
            reply.bytes().await
        })?;
        Ok(bytes.into())
    }

    /// The same, in chunks as they arrive.
    fn open_member(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        archpath: String,
        mime: Option<String>,
        byte_range: Option<&str>,
    ) -> PyResult<ObjectStream> {
        let (bucket, range) = member_call(py, bucket, byte_range)?;
        let reply = self.call(py, |c| async move {
            c.get_member(&bucket, &name, &archpath, mime.as_deref(), range).await
        })?;
        Ok(reply.stream.into())
    }

    /// The samples of a shard, or without `keys` its members.
    fn open_shard(
        &self,
        py: Python<'_>,
        bucket: &str,
        name: String,
        mime: Option<&str>,
        keys: Option<&str>,
        lowercase: bool,
        read_ahead: usize,
    ) -> PyResult<ShardStream> {
        let bucket = parse_bucket(py, bucket)?;
        let name = ObjectName::new(name).map_err(|e| raise(py, e))?;
        let naming = keys.map(|keys| Naming::parse(keys, lowercase)).transpose();
        let naming = naming.map_err(|e| raise(py, e))?;
        let format = mime.map(|mime| {
            ArchiveFormat::from_mime(mime).ok_or_else(|| {
                Error::invalid(format!("\"{mime}\" is no format of archives"))
                    .hint("one of tar, tar.gz, tar.lz4, tar.zst, zip")
            })
        });
        let format = format.transpose().map_err(|e| raise(py, e))?;
        let native = self.native(py)?;
        let _context = runtime::runtime(py)?.enter();
        let options = ShardOptions { format, naming, read_ahead };
        let flat = options.naming.is_none();
        Ok(ShardStream::new(native.read_shard(&bucket, &name, options), flat))
    }

    /// The index of each shard, or an exception that is not raised.
    fn shard_indexes<'py>(
        &self,
        py: Python<'py>,
        buckets: Vec<String>,
        bucket_of: Vec<usize>,
        names: Vec<String>,
        concurrency: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let buckets =
            buckets.iter().map(|uri| parse_bucket(py, uri)).collect::<PyResult<Vec<_>>>()?;
        let shards = names.into_iter().zip(bucket_of).map(|(name, bucket)| {
            let no_bucket = || Error::invalid("a shard names a bucket that is not given");
            let bucket = buckets.get(bucket).cloned().ok_or_else(no_bucket)?;
            Ok((bucket, ObjectName::new(name)?))
        });
        let shards = shards.collect::<forebay_core::Result<_>>().map_err(|e| raise(py, e))?;
        let indexes = self.call(py, |c| shard::fetch(c, shards, concurrency))?;
        indexes.into_iter().map(|index| shard::answer(py, index)).collect()
    }

    fn start_job(
        &self,
        py: Python<'_>,
        kind: &str,
        bucket: &str,
        names: Option<Vec<String>>,
        prefix: String,
    ) -> PyResult<String> {
        let kind: JobKind = kind.parse().map_err(|e: Error| raise(py, e))?;
        let bucket = parse_bucket(py, bucket)?;
        let selection = selection(names, prefix);
        self.call(py, |c| async move { c.start_job(kind, &bucket, &selection).await })
    }

    #[allow(clippy::too_many_arguments)]
    fn start_write_back(
        &self,
        py: Python<'_>,
        bucket: &str,
        names: Option<Vec<String>>,
        prefix: String,
        to: &str,
        folder: String,
        remove: bool,
    ) -> PyResult<String> {
        let (bucket, to) = (parse_bucket(py, bucket)?, parse_bucket(py, to)?);
        let chosen = selection(names, prefix);
        self.call(py, |c| async move {
            c.start_write_back(&bucket, &chosen, (&to, &folder), remove).await
        })
    }

    /// Starts a job that sorts shards; `spec` is JSON.
    fn start_dsort(&self, py: Python<'_>, spec: String) -> PyResult<String> {
        self.call(py, |c| async move { c.start_dsort(spec.into_bytes()).await })
    }

    fn job(&self, py: Python<'_>, id: String) -> PyResult<String> {
        json(py, &self.call(py, |c| async move { c.job(&id).await })?)
    }

    fn stop_job(&self, py: Python<'_>, id: String) -> PyResult<()> {
        self.call(py, |c| async move { c.stop_job(&id).await })?;
        Ok(())
    }
}
