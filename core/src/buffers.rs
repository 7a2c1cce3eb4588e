//! Reusable memory for payloads: a page that was written before costs nothing, a fresh one a page
//! fault. For payloads of 100 KiB, page faults cost more than copies.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;

/// Retained buffers have a multiple of this size, and at least twice this size: rounding costs a
/// payload at most half as much memory again.
const SIZE_CLASS_BYTES: usize = 4 << 10;
/// Larger buffers are not retained.
const MAX_BUFFER_BYTES: usize = 32 << 20;
/// Maximum bytes that a process retains for reuse.
const MAX_RETAINED_BYTES: usize = 32 << 20;
/// A buffer of another length is reused if the excess is at most this fraction of it: one part in
/// this many.
const TOO_MUCH: usize = 16;

/// Whether memory of this length is retained.
fn is_kept(len: usize) -> bool {
    (2 * SIZE_CLASS_BYTES..=MAX_BUFFER_BYTES).contains(&len)
}

/// Unused memory, by its length in size classes.
struct Free {
    by_steps: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

impl Free {
    const NOTHING: Self = Self { by_steps: BTreeMap::new(), bytes: 0 };

    fn take(&mut self, steps: usize) -> Option<Vec<u8>> {
        let (&found, free) = self.by_steps.range_mut(steps..=steps + steps / TOO_MUCH).next()?;
        let memory = free.pop();
        if free.is_empty() {
            self.by_steps.remove(&found);
        }
        self.bytes -= memory.as_ref().map_or(0, Vec::len);
        memory
    }

    fn put(&mut self, memory: Vec<u8>) {
        let steps = memory.len() / SIZE_CLASS_BYTES;
        if self.bytes + memory.len() > MAX_RETAINED_BYTES {
            if self.by_steps.contains_key(&steps) {
                return;
            }
            // The retained buffers have other lengths than those in use now.
            *self = Self::NOTHING;
        }
        self.bytes += memory.len();
        self.by_steps.entry(steps).or_default().push(memory);
    }
}

/// Only locked with `try_lock`: a forked child may have copied the lock in its locked state, and
/// then works without it.
static FREE: Mutex<Free> = Mutex::new(Free::NOTHING);

/// A buffer to be filled, with arbitrary initial content. When it is dropped, also as [`Bytes`],
/// its memory is reused.
#[derive(Debug)]
pub struct Buffer {
    /// Rounded up to whole size classes if it is to be retained.
    memory: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` bytes.
    pub fn take(len: usize) -> Self {
        if !is_kept(len) {
            return Self { memory: vec![0; len], len };
        }
        let steps = len.div_ceil(SIZE_CLASS_BYTES);
        let kept = FREE.try_lock().ok().and_then(|mut free| free.take(steps));
        Self { memory: kept.unwrap_or_else(|| vec![0; steps * SIZE_CLASS_BYTES]), len }
    }

    /// A buffer of a length that another party announced; `None` if the memory is not available.
    pub fn try_take(len: usize) -> Option<Self> {
        // Memory that is reserved and not written costs nothing.
        if len as u64 > BELIEVED && Vec::<u8>::new().try_reserve_exact(len).is_err() {
            return None;
        }
        Some(Self::take(len))
    }

    /// The whole buffer, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }

    /// Ends the writing.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

/// Maximum bytes that are allocated because of an announced length alone.
pub const BELIEVED: u64 = 64 << 20;

/// Collects bytes chunk by chunk, in a [`Buffer`] as long as they fit.
#[derive(Debug)]
pub struct GrowingBuffer {
    buffer: Buffer,
    filled: usize,
}

impl GrowingBuffer {
    /// Allocates for the announced number of bytes, at most [`BELIEVED`]; grows if more arrive.
    pub fn new(announced: u64) -> Self {
        Self { buffer: Buffer::take(announced.min(BELIEVED) as usize), filled: 0 }
    }

    /// Appends bytes.
    pub fn append(&mut self, piece: &[u8]) {
        let end = self.filled + piece.len();
        let memory = &mut self.buffer.memory;
        if let Some(room) = memory.get_mut(self.filled..end) {
            room.copy_from_slice(piece);
        } else {
            memory.truncate(self.filled);
            memory.extend_from_slice(piece);
        }
        self.filled = end;
    }

    /// Returns the bytes that were written.
    pub fn freeze(mut self) -> Bytes {
        self.buffer.len = self.filled;
        self.buffer.freeze()
    }
}

impl AsRef<[u8]> for GrowingBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.memory[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        // A grown buffer may have any length.
        if is_kept(memory.len())
            && memory.len().is_multiple_of(SIZE_CLASS_BYTES)
            && let Ok(mut free) = FREE.try_lock()
        {
            free.put(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_length_for_which_there_is_no_memory_is_refused() {
        assert!(Buffer::try_take(9_000_000_000_000_000_000).is_none());
        assert_eq!(
            Buffer::try_take(3 * MIB).map(|mut buffer| buffer.bytes_mut().len()),
            Some(3 * MIB)
        );
    }

    #[test]
    fn memory_is_kept_for_the_same_length_up_to_a_bound() {
        let mut free = Free::NOTHING;
        for _ in 0..40 {
            free.put(vec![0; MIB]);
        }
        assert_eq!(free.bytes, MAX_RETAINED_BYTES);
        assert!(free.take(3).is_none());
        assert_eq!(free.take(MIB / SIZE_CLASS_BYTES).map(|memory| memory.len()), Some(MIB));
        assert_eq!(free.bytes, MAX_RETAINED_BYTES - MIB);
    }

    #[test]
    fn memory_of_a_length_that_is_hardly_larger_is_used_again() {
        let mut free = Free::NOTHING;
        free.put(vec![0; MIB]);
        assert!(free.take(MIB / SIZE_CLASS_BYTES * 15 / 16 - 1).is_none(), "too large");
        assert!(free.take(MIB / SIZE_CLASS_BYTES + 1).is_none(), "too small");
        assert_eq!(free.take(MIB / SIZE_CLASS_BYTES - 7).map(|memory| memory.len()), Some(MIB));
        assert_eq!(free.bytes, 0);
    }

    #[test]
    fn lengths_that_nobody_asks_for_any_more_make_room() {
        let mut free = Free::NOTHING;
        for _ in 0..MAX_RETAINED_BYTES / MIB {
            free.put(vec![0; MIB]);
        }
        free.put(vec![0; 3 * SIZE_CLASS_BYTES]);
        assert_eq!(free.bytes, 3 * SIZE_CLASS_BYTES);
        assert!(free.take(3).is_some() && free.take(MIB / SIZE_CLASS_BYTES).is_none());
    }

    #[test]
    fn what_comes_in_pieces_is_whole_whether_its_length_was_known_or_not() {
        let whole: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        for announced in [0, 1, 50_000, 299_999, 300_000, 1_000_000] {
            let mut filling = GrowingBuffer::new(announced);
            whole.chunks(7001).for_each(|piece| filling.append(piece));
            assert_eq!(filling.as_ref(), whole, "{announced}");
            assert_eq!(filling.freeze(), whole, "{announced}");
        }
    }

    #[test]
    fn a_buffer_has_the_asked_length_and_small_ones_no_more_memory_than_that() {
        for len in [
            0,
            1,
            2 * SIZE_CLASS_BYTES - 1,
            2 * SIZE_CLASS_BYTES,
            5 * SIZE_CLASS_BYTES + 1,
            MAX_BUFFER_BYTES,
            MAX_BUFFER_BYTES + 1,
        ] {
            let mut buffer = Buffer::take(len);
            assert_eq!(buffer.bytes_mut().len(), len);
            assert!(buffer.memory.len() <= len + len / 2, "{len}");
            buffer.bytes_mut().fill(7);
            assert!(buffer.freeze().iter().all(|byte| *byte == 7));
        }
    }
}
