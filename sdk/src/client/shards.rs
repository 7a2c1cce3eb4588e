//! Calls that read shards: one member, all samples, or the indexes of many.

use forebay_client::{Naming, ShardOptions};
use forebay_core::shard::ArchiveFormat;
use forebay_core::{Error, ObjectName};
use pyo3::prelude::*;

use super::{Client, parse_bucket, parse_ranged};
use crate::buffer::Buffer;
use crate::call_scope::CallScope;
use crate::error::raise;
use crate::object::ObjectStream;
use crate::runtime;
use crate::shard::{self, ShardStream};
use crate::waits;

#[pymethods]
impl Client {
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
        let (bucket, range) = parse_ranged(py, bucket, byte_range)?;
        let bytes = self.call(py, |c| async move {
            let reply = c.get_member(&bucket, &name, &archpath, mime.as_deref(), range).await?;
            reply.bytes().await
        })?;
        waits::worked(waits::work(), bytes.len());
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
        let (bucket, range) = parse_ranged(py, bucket, byte_range)?;
        let opened = self.open_stream(py, |c| async move {
            c.get_member(&bucket, &name, &archpath, mime.as_deref(), range).await
        });
        let (reply, scope) = opened?;
        Ok(ObjectStream::new(reply.stream, scope))
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
        let scope = CallScope::of_thread();
        let stream = scope.start(|| native.read_shard(&bucket, &name, options));
        Ok(ShardStream::new(stream, scope, flat))
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
}
