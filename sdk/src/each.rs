//! Many concurrent single reads: of transformed objects, or of objects pinned to their listed
//! version.

use forebay_client::{Pin, Result as ClientResult};
use forebay_core::etl::EtlCall;
use forebay_core::{Bucket, Error, ObjectName};
use futures::StreamExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::{Content, answer};
use crate::client::{Client, parse_bucket};
use crate::error::raise;
use crate::waits;

/// Size, version and checksum of an object when it was listed.
pub(crate) type Pinned = (u64, String, String);

pub(crate) fn pinned((size, version, checksum): Pinned) -> Pin {
    Pin { size, version, checksum }
}

/// Each result in the order of `names`: a `Buffer`, or an exception that is not raised. `etl` is
/// the name of a transform and its arguments; `pins` has one entry per name.
#[pyfunction]
#[pyo3(signature = (client, buckets, bucket_of, names, concurrency, etl=None, pins=None))]
pub(crate) fn get_each<'py>(
    py: Python<'py>,
    client: &Client,
    buckets: Vec<String>,
    bucket_of: Vec<usize>,
    names: Vec<String>,
    concurrency: usize,
    etl: Option<(String, String)>,
    pins: Option<Vec<Pinned>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if etl.is_some() == pins.is_some() {
        return Err(raise(py, Error::invalid("get_each takes either a transform or pins")));
    }
    let buckets = buckets.iter().map(|uri| parse_bucket(py, uri)).collect::<PyResult<Vec<_>>>()?;
    let short = || raise(py, Error::invalid("get_each needs one bucket, and one pin, per name"));
    if bucket_of.len() != names.len() || pins.as_ref().is_some_and(|p| p.len() != names.len()) {
        return Err(short());
    }
    let how: Vec<How> = match (etl, pins) {
        (Some((name, args)), _) => {
            let call = EtlCall { name, args, ..EtlCall::default() };
            names.iter().map(|_| How::Transformed(call.clone())).collect()
        }
        (None, pins) => pins.into_iter().flatten().map(|one| How::Pinned(pinned(one))).collect(),
    };
    let mut wanted: Vec<(Bucket, String, How)> = Vec::with_capacity(names.len());
    for ((name, bucket), how) in names.into_iter().zip(bucket_of).zip(how) {
        ObjectName::new(name.as_str()).map_err(|e| raise(py, e))?;
        wanted.push((buckets.get(bucket).cloned().ok_or_else(short)?, name, how));
    }
    let answers = client.call(py, |c| async move {
        let c = &c;
        let reads = futures::stream::iter(wanted).map(|(bucket, name, how)| async move {
            let read: ClientResult<_> = match &how {
                How::Transformed(call) => c.get_transformed(&bucket, &name, call).await,
                How::Pinned(pin) => c.get_pinned(&bucket, &name, pin).await,
            };
            read.map_err(|e| naming(&bucket, &name, e.into_core()))
        });
        Ok(reads.buffered(concurrency.max(1)).collect::<Vec<_>>().await)
    })?;
    let bytes = answers.iter().map(|one| one.as_ref().map_or(0, |bytes| bytes.len())).sum();
    waits::worked(waits::work(), bytes);
    answers.into_iter().map(|one| answer(py, one, Content::Shared)).collect()
}

enum How {
    Transformed(EtlCall),
    Pinned(Pin),
}

/// Adds the object's name to a failure.
fn naming(bucket: &Bucket, name: &str, mut error: Error) -> Error {
    if !error.message.contains(name) {
        error.message = format!("{}: {}", bucket.object_uri(name), error.message);
    }
    error
}

/// A listing as flat buffers (names, their offsets, sizes), and its pins in the same form: a line
/// of version and checksum for each name.
#[pyfunction]
pub(crate) fn list_pinned<'py>(
    py: Python<'py>,
    client: &Client,
    bucket: &str,
    prefix: String,
) -> PyResult<[Bound<'py, PyBytes>; 5]> {
    let bucket = parse_bucket(py, bucket)?;
    let entries = client.call(py, |c| async move { c.list_pinned(&bucket, &prefix).await })?;
    let (mut names, mut pins, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ends, mut pin_ends) = (0u64.to_ne_bytes().to_vec(), 0u64.to_ne_bytes().to_vec());
    for entry in &entries {
        names.extend_from_slice(entry.name.as_bytes());
        ends.extend((names.len() as u64).to_ne_bytes());
        sizes.extend(entry.pin.size.to_ne_bytes());
        pins.extend_from_slice(entry.pin.version.as_bytes());
        pins.push(b'\n');
        pins.extend_from_slice(entry.pin.checksum.as_bytes());
        pin_ends.extend((pins.len() as u64).to_ne_bytes());
    }
    Ok([names, ends, sizes, pins, pin_ends].map(|buffer| PyBytes::new(py, &buffer)))
}

/// Raises an error if the cluster has no transform of this name.
#[pyfunction]
pub(crate) fn check_etl(py: Python<'_>, client: &Client, name: String) -> PyResult<()> {
    client.call(py, |c| async move { c.check_etl(&name).await })
}
