//! Indexes of shards in the form that Python keeps: flat buffers, no object per member.

use forebay_archive::ShardIndexReply;
use forebay_client::{Client, Error as ClientError, Naming, Result as ClientResult};
use forebay_core::shard::ArchiveFormat;
use forebay_core::{Bucket, Error, ObjectName, Result};
use futures::{StreamExt, stream};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde::Serialize;

use crate::error::{exception, raise};

/// The index of each shard in the given order, `concurrency` at a time.
pub(crate) async fn fetch(
    client: Client,
    shards: Vec<(Bucket, ObjectName)>,
    concurrency: usize,
) -> ClientResult<Vec<Result<Packed>>> {
    let client = &client;
    let fetched = stream::iter(shards).map(|(bucket, name)| async move {
        let reply = client.shard_index(&bucket, &name).await.map_err(ClientError::into_core);
        reply.map(Packed::from).map_err(|mut e| {
            let uri = bucket.object_uri(name.as_str());
            if !e.message.contains(&uri) {
                e.message = format!("{uri}: {}", e.message);
            }
            e
        })
    });
    Ok(fetched.buffered(concurrency.max(1)).collect().await)
}

/// An index as buffers that Python takes over without a copy.
pub(crate) struct Packed {
    format: String,
    version: String,
    names: Vec<u8>,
    /// Offsets of the names: one more than there are names.
    ends: Vec<u8>,
    sizes: Vec<u8>,
    offsets: Vec<u8>,
}

impl From<ShardIndexReply> for Packed {
    fn from(reply: ShardIndexReply) -> Self {
        let count = reply.members.len();
        let mut packed = Self {
            format: format_name(reply.format),
            version: reply.version,
            names: Vec::with_capacity(reply.members.iter().map(|(name, ..)| name.len()).sum()),
            ends: Vec::with_capacity(8 * (count + 1)),
            sizes: Vec::with_capacity(8 * count),
            offsets: Vec::with_capacity(8 * count),
        };
        packed.ends.extend_from_slice(&0u64.to_ne_bytes());
        for (name, offset, size) in reply.members {
            packed.names.extend_from_slice(name.as_bytes());
            packed.ends.extend_from_slice(&(packed.names.len() as u64).to_ne_bytes());
            packed.sizes.extend_from_slice(&size.to_ne_bytes());
            packed.offsets.extend_from_slice(&offset.to_ne_bytes());
        }
        packed
    }
}

/// Format, version, and the four buffers; or an exception that is not raised.
pub(crate) fn answer(py: Python<'_>, packed: Result<Packed>) -> PyResult<Bound<'_, PyAny>> {
    let packed = match packed {
        Ok(packed) => packed,
        Err(e) => return exception(py, e),
    };
    let [names, ends, sizes, offsets] =
        [packed.names, packed.ends, packed.sizes, packed.offsets].map(|b| PyBytes::new(py, &b));
    let fields = (packed.format, packed.version, names, ends, sizes, offsets);
    Ok(fields.into_pyobject(py)?.into_any())
}

/// Numbers of members sorted by sample, the end of each sample among them, and the samples that are
/// invalid. `names` and `ends` are those of an index.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple is what Python gets")]
pub(crate) fn sample_layout<'py>(
    py: Python<'py>,
    names: PyBackedBytes,
    ends: PyBackedBytes,
    keys: &str,
    lowercase: bool,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<(u64, String)>)> {
    let naming = Naming::parse(keys, lowercase).map_err(|e| raise(py, e))?;
    let layout = py.detach(|| {
        let all = texts(&names, &ends)?;
        Ok(forebay_client::sample_layout(all.into_iter(), naming))
    });
    let layout = layout.map_err(|e: Error| raise(py, e))?;
    let bytes = |numbers: &[u64]| {
        let flat: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        PyBytes::new(py, &flat)
    };
    Ok((bytes(&layout.order), bytes(&layout.ends), layout.problems))
}

/// Key and extension of a member; `None` for a member that belongs to no sample.
#[pyfunction]
pub(crate) fn split_member(
    py: Python<'_>,
    name: &str,
    keys: &str,
    lowercase: bool,
) -> PyResult<Option<(String, String)>> {
    let naming = Naming::parse(keys, lowercase).map_err(|e| raise(py, e))?;
    Ok(naming.split(name).map(|(key, extension)| (key.to_owned(), extension.into_owned())))
}

/// The archive format by the object's name; `None` for other objects.
#[pyfunction]
pub(crate) fn archive_format(name: &str) -> Option<String> {
    ArchiveFormat::from_name(name).map(format_name)
}

/// The format's name on the wire: `tar-gz`.
fn format_name(format: ArchiveFormat) -> String {
    match format.serialize(serde_json::value::Serializer) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// The names between the offsets in `ends`.
fn texts<'a>(names: &'a [u8], ends: &[u8]) -> Result<Vec<&'a str>> {
    let bad = || Error::invalid("the buffers of an index do not fit together");
    let ends: Vec<usize> = ends
        .chunks_exact(8)
        .map(|n| n.try_into().map_or(usize::MAX, |n| u64::from_ne_bytes(n) as usize))
        .collect();
    ends.windows(2)
        .map(|pair| {
            let name = names.get(pair[0]..pair[1]).ok_or_else(bad)?;
            std::str::from_utf8(name).map_err(|_| bad())
        })
        .collect()
}
