//! Caches the locations of small objects: one probe of memory replaces a search in the index.
//!
//! A location is cached after the object was read by the index, and dropped before a batch changes
//! the object in the index. While that batch runs, no location of the object is cached. So the
//! cache agrees with the index at every moment.

mod slot;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard};

use forebay_core::locks::MutexExt;

pub(crate) use self::slot::Known;

use self::slot::{Slot, is_empty, is_of};
use super::observer::key_digest;

/// Memory of the cache of a store: two million objects.
const BYTES: usize = 64 << 20;
/// Stripes, so that threads that look up different objects rarely contend.
const STRIPES: usize = 64;
/// Slots for one object in its stripe; further objects replace one another.
const WAYS: usize = 4;

/// Cached locations of objects, by [`key_digest`]. Look-ups take no lock.
pub(crate) struct LocationCache {
    /// The slots of all stripes, one stripe after the other. Pages that were never written take no
    /// memory.
    slots: Box<[[AtomicU64; 4]]>,
    stripes: Box<[Stripe]>,
}

/// Aligned, so that threads do not share cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    /// Seqlock: odd while slots are written.
    turn: AtomicU64,
    /// Counts starts and ends of batches, so that a reader of the index caches nothing after a
    /// batch that started or ended since.
    version: AtomicU64,
    writer: Mutex<Writer>,
}

#[derive(Default)]
struct Writer {
    /// Running batches that change objects of this stripe.
    changing: u32,
    /// Slot to replace next.
    hand: usize,
}

/// Permission to cache a location. It is taken before the look-up in the index.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    digest: u64,
    version: u64,
    /// A free slot exists: no other object has to be replaced.
    pub(crate) room: bool,
}

/// Blocks caching of the objects that a batch changes, until it is dropped.
pub(crate) struct Closed<'a> {
    location_cache: &'a LocationCache,
    digests: Vec<u64>,
}

impl Closed<'_> {
    /// Ends a batch that was made; caches the locations of objects that it wrote, by their digests.
    pub(crate) fn written(self, written: Vec<(u64, Known)>) {
        for (digest, known) in written {
            if let Some(slot) = known.pack(digest) {
                self.location_cache.lock(digest).put(digest, slot);
            }
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        for digest in &self.digests {
            let mut stripe = self.location_cache.lock(*digest);
            stripe.writer.changing -= 1;
            stripe.count();
        }
    }
}

impl Default for LocationCache {
    fn default() -> Self {
        Self::with_bytes(BYTES)
    }
}

impl LocationCache {
    fn with_bytes(bytes: usize) -> Self {
        let ways = STRIPES * WAYS;
        let count = (bytes / size_of::<Slot>() / ways).max(1) * ways;
        Self { slots: zeroed(count), stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    /// The location of an object if it is cached, and a ticket to cache it after a look-up in the
    /// index.
    pub(crate) fn find(&self, bucket_id: u64, name: &str) -> (Option<Known>, Ticket) {
        let digest = key_digest(bucket_id, name);
        let stripe = self.stripe(digest);
        let turn = stripe.turn.load(Ordering::Acquire);
        let mut ticket =
            Ticket { digest, version: stripe.version.load(Ordering::Acquire), room: false };
        let mut known = None;
        for way in &self.slots[self.set(digest)] {
            let slot: Slot = std::array::from_fn(|n| way[n].load(Ordering::Relaxed));
            if is_of(&slot, digest) {
                known = Some(Known::unpack(slot));
                break;
            }
            ticket.room |= is_empty(&slot);
        }
        fence(Ordering::Acquire);
        let is_whole = turn.is_multiple_of(2) && stripe.turn.load(Ordering::Relaxed) == turn;
        (known.filter(|_| is_whole), ticket)
    }

    /// Prefetches the memory that [`Self::find`] is going to read.
    pub(crate) fn expect(&self, bucket_id: u64, name: &str) {
        for way in self.slots[self.set(key_digest(bucket_id, name))].iter().step_by(2) {
            prefetch(way);
        }
    }

    /// Caches the location of the object that the ticket is for, unless the object was changed
    /// meanwhile.
    pub(crate) fn note(&self, ticket: Ticket, known: Known) {
        let Some(slot) = known.pack(ticket.digest) else { return };
        let mut stripe = self.lock(ticket.digest);
        let version = stripe.of.version.load(Ordering::Relaxed);
        if stripe.writer.changing == 0 && version == ticket.version {
            stripe.put(ticket.digest, slot);
        }
    }

    /// Drops the locations of objects that a batch is about to change, given by their digests.
    pub(crate) fn close(&self, digests: Vec<u64>) -> Closed<'_> {
        for digest in &digests {
            let mut stripe = self.lock(*digest);
            stripe.writer.changing += 1;
            stripe.count();
            stripe.write(*digest, |ways, _| {
                ways.iter_mut().filter(|slot| is_of(slot, *digest)).for_each(|slot| {
                    *slot = Slot::default();
                });
            });
        }
        Closed { location_cache: self, digests }
    }

    /// Updates the access time of an object, if its location is cached.
    pub(crate) fn accessed(&self, digest: u64, atime_ns: u64) {
        self.lock(digest).write(digest, |ways, _| {
            if let Some(slot) = ways.iter_mut().find(|slot| is_of(slot, digest)) {
                slot[3] = slot[3].max(atime_ns);
            }
        });
    }

    /// Drops everything: the set of disks changed.
    pub(crate) fn clear(&self) {
        for number in 0..STRIPES {
            // Every digest with these low bits belongs to this stripe.
            let mut stripe = self.lock(number as u64);
            stripe.count();
            let share = self.slots.len() / STRIPES;
            stripe.in_turn(|location_cache| {
                for slot in &location_cache.slots[number * share..(number + 1) * share] {
                    // Slots that were never written stay without memory.
                    if slot[1].load(Ordering::Relaxed) != 0 {
                        slot.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                    }
                }
            });
        }
    }

    fn stripe(&self, digest: u64) -> &Stripe {
        &self.stripes[digest as usize % STRIPES]
    }

    /// Locks the stripe of an object for writing.
    fn lock(&self, digest: u64) -> Writing<'_> {
        let of = self.stripe(digest);
        let writer = of.writer.locked();
        Writing { location_cache: self, of, writer }
    }

    /// The slots that an object may be in.
    fn set(&self, digest: u64) -> Range<usize> {
        let share = self.slots.len() / STRIPES;
        let digest = digest as u32 as usize;
        let start = digest % STRIPES * share + digest / STRIPES % (share / WAYS) * WAYS;
        start..start + WAYS
    }
}

/// A stripe that one thread may write.
struct Writing<'a> {
    location_cache: &'a LocationCache,
    of: &'a Stripe,
    writer: MutexGuard<'a, Writer>,
}

impl Writing<'_> {
    fn count(&mut self) {
        self.of.version.fetch_add(1, Ordering::Release);
    }

    /// Writes slots so that no reader sees half of a write: see Boehm, "Can seqlocks get along with
    /// programming language memory models?", 2012.
    fn in_turn<T>(&mut self, write: impl FnOnce(&LocationCache) -> T) -> T {
        let turn = self.of.turn.load(Ordering::Relaxed);
        self.of.turn.store(turn + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let done = write(self.location_cache);
        self.of.turn.store(turn + 2, Ordering::Release);
        done
    }

    /// Changes the slots that an object may be in; `change` also gets the slot to replace.
    fn write(&mut self, digest: u64, change: impl FnOnce(&mut [Slot; WAYS], usize)) {
        self.writer.hand = (self.writer.hand + 1) % WAYS;
        let hand = self.writer.hand;
        self.in_turn(|location_cache| {
            let slots = &location_cache.slots[location_cache.set(digest)];
            let mut ways: [Slot; WAYS] = std::array::from_fn(|way| {
                std::array::from_fn(|n| slots[way][n].load(Ordering::Relaxed))
            });
            let before = ways;
            change(&mut ways, hand);
            for (way, slot) in ways.iter().enumerate().filter(|(way, slot)| before[*way] != **slot)
            {
                slots[way].iter().zip(slot).for_each(|(to, word)| {
                    to.store(*word, Ordering::Relaxed);
                });
            }
        });
    }

    fn put(&mut self, digest: u64, slot: Slot) {
        self.write(digest, |ways, hand| {
            let same = ways.iter().position(|slot| is_of(slot, digest));
            ways[same.or_else(|| ways.iter().position(is_empty)).unwrap_or(hand)] = slot;
        });
    }
}

/// Slots that take no memory before they are written.
#[allow(unsafe_code)]
fn zeroed(count: usize) -> Box<[[AtomicU64; 4]]> {
    // SAFETY: bytes of zeros are a number, and an atomic number has its layout.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

/// Prefetches a cache line.
#[allow(unsafe_code)]
fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it is a hint, which every processor of this kind takes, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
