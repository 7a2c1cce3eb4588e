//! `_core.PartBuffer`: the bytes of an upload's next part, in memory that is reused for later
//! parts.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use forebay_core::locks::MutexExt;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::buffer::Source;

/// Up to this size, bytes are copied while holding the GIL.
const BRIEF: usize = 64 << 10;

/// Collects parts; each full one is taken out and sent. The memory of sent parts is filled again,
/// which saves page faults: there are as many buffers as parts in progress at once.
#[pyclass(module = "forebay._core", frozen)]
pub(crate) struct PartBuffer {
    part_size: usize,
    part: Mutex<Vec<u8>>,
    spare: Spare,
}

/// Free memory of sent parts.
#[derive(Clone, Default)]
struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.locked()
    }
}

/// A part that is being sent; its memory is returned for reuse on drop.
struct Part {
    bytes: Vec<u8>,
    spare: Spare,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.spare.lock().push(bytes);
    }
}

impl PartBuffer {
    fn part(&self) -> MutexGuard<'_, Vec<u8>> {
        self.part.locked()
    }

    /// Takes the collected bytes; the next part is empty.
    pub(crate) fn take(&self) -> Bytes {
        let next = self.spare.lock().pop().unwrap_or_default();
        let bytes = std::mem::replace(&mut *self.part(), next);
        Bytes::from_owner(Part { bytes, spare: self.spare.clone() })
    }

    fn append(&self, data: &[u8]) {
        let mut part = self.part();
        let wanted = part.len() + data.len();
        if wanted > part.capacity() {
            let room = (2 * part.capacity()).max(wanted).min(self.part_size.max(wanted));
            let more = room - part.len();
            part.reserve_exact(more);
        }
        part.extend_from_slice(data);
    }
}

#[pymethods]
impl PartBuffer {
    /// For parts of this size.
    #[new]
    fn new(part_size: usize) -> Self {
        Self { part_size, part: Mutex::default(), spare: Spare::default() }
    }

    /// Copies bytes of `data` from `start` on, as far as they fit into the part; returns their
    /// number.
    fn fill(&self, py: Python<'_>, data: PyBuffer<u8>, start: usize) -> PyResult<usize> {
        let source = Source::new(data)?;
        let rest = source.bytes().get(start..).unwrap_or_default();
        let length = rest.len().min(self.part_size.saturating_sub(self.part().len()));
        let piece = &rest[..length];
        if length < BRIEF {
            self.append(piece);
        } else {
            py.detach(|| self.append(piece));
        }
        Ok(length)
    }

    /// Discards the collected bytes.
    fn clear(&self) {
        *self.part() = Vec::new();
        self.spare.lock().clear();
    }

    fn __len__(&self) -> usize {
        self.part().len()
    }
}
