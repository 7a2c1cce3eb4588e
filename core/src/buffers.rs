//! Memory for payloads that is used again: a page that was written to before costs nothing, a fresh
//! one a fault, and payloads of 100 KiB cost more faults than copies.

use std::sync::Mutex;

use bytes::Bytes;

/// What is kept is of a multiple of so many bytes, from twice as many on: rounding costs a payload
/// at most half as much memory again.
const STEP: usize = 4 << 10;
/// Larger ones are not kept.
const MOST: usize = 2 << 20;
/// Bytes that a process keeps for later.
const KEPT: usize = 32 << 20;

/// Whether memory of this length is kept.
fn is_kept(len: usize) -> bool {
    (2 * STEP..=MOST).contains(&len)
}

/// Memory that nobody uses now, by its length in steps.
struct Free {
    by_steps: [Vec<Vec<u8>>; MOST / STEP + 1],
    bytes: usize,
}

impl Free {
    const NOTHING: Self = Self { by_steps: [const { Vec::new() }; MOST / STEP + 1], bytes: 0 };

    fn take(&mut self, steps: usize) -> Option<Vec<u8>> {
        let memory = self.by_steps[steps].pop()?;
        self.bytes -= memory.len();
        Some(memory)
    }

    fn put(&mut self, memory: Vec<u8>) {
        let steps = memory.len() / STEP;
        if self.bytes + memory.len() > KEPT {
            if !self.by_steps[steps].is_empty() {
                return;
            }
            // All that is kept is of other lengths than what is asked for now.
            *self = Self::NOTHING;
        }
        self.bytes += memory.len();
        self.by_steps[steps].push(memory);
    }
}

/// Never waited for: a forked child may have copied it locked, and then does without it.
static FREE: Mutex<Free> = Mutex::new(Free::NOTHING);

/// Bytes to be filled, at first of any content. Dropped, also as [`Bytes`], their memory is used
/// again.
#[derive(Debug)]
pub struct Buffer {
    /// Rounded up to whole steps if it is to be kept.
    memory: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` bytes.
    pub fn take(len: usize) -> Self {
        if !is_kept(len) {
            return Self { memory: vec![0; len], len };
        }
        let steps = len.div_ceil(STEP);
        let kept = FREE.try_lock().ok().and_then(|mut free| free.take(steps));
        Self { memory: kept.unwrap_or_else(|| vec![0; steps * STEP]), len }
    }

    /// All of it, to be written.
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

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if is_kept(self.len)
            && let Ok(mut free) = FREE.try_lock()
        {
            free.put(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_for_the_same_length_up_to_a_bound() {
        let mut free = Free::NOTHING;
        for _ in 0..40 {
            free.put(vec![0; MOST]);
        }
        assert_eq!(free.bytes, KEPT);
        assert!(free.take(3).is_none());
        assert_eq!(free.take(MOST / STEP).map(|memory| memory.len()), Some(MOST));
        assert_eq!(free.bytes, KEPT - MOST);
    }

    #[test]
    fn lengths_that_nobody_asks_for_any_more_make_room() {
        let mut free = Free::NOTHING;
        for _ in 0..KEPT / MOST {
            free.put(vec![0; MOST]);
        }
        free.put(vec![0; 3 * STEP]);
        assert_eq!(free.bytes, 3 * STEP);
        assert!(free.take(3).is_some() && free.take(MOST / STEP).is_none());
    }

    #[test]
    fn a_buffer_has_the_asked_length_and_small_ones_no_more_memory_than_that() {
        for len in [0, 1, 2 * STEP - 1, 2 * STEP, 5 * STEP + 1, MOST, MOST + 1] {
            let mut buffer = Buffer::take(len);
            assert_eq!(buffer.bytes_mut().len(), len);
            assert!(buffer.memory.len() <= len + len / 2, "{len}");
            buffer.bytes_mut().fill(7);
            assert!(buffer.freeze().iter().all(|byte| *byte == 7));
        }
    }
}
