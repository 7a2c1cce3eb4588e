//! Reusable buffers for chunks of large objects that are being sent. Memory that is still in the
//! CPU's caches is cheaper to fill than fresh pages.

use std::cell::RefCell;

use bytes::Bytes;

/// Bytes of a buffer.
pub(crate) const BUFFER: usize = 128 << 10;
/// Buffers that a thread keeps.
const BUFFERS_PER_THREAD: usize = 16;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`BUFFER`] bytes with any content; goes back to the thread that drops it.
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn take() -> Self {
        let free = FREE.with_borrow_mut(Vec::pop);
        Self(free.unwrap_or_else(|| vec![0; BUFFER]))
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Ends the writing. The buffer is reused when all holders of the bytes have dropped them.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        // A thread that ends has no list any more: then the memory is freed.
        let _ended = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < BUFFERS_PER_THREAD {
                free.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_its_bytes_are_gone() {
        let mut first = Buffer::take();
        first.bytes_mut()[7] = 9;
        let at = first.bytes_mut().as_ptr();
        let part = first.freeze().slice(7..8);
        assert_ne!(Buffer::take().bytes_mut().as_ptr(), at, "still in use");
        assert_eq!(part[..], [9]);
        drop(part);
        assert_eq!(Buffer::take().bytes_mut().as_ptr(), at);
        assert_eq!(Buffer::take().bytes_mut().len(), BUFFER);
    }
}
