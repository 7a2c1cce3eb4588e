//! Reads of small objects that need not wait: the object is in the log and in the page cache, and
//! its location is cached or in the index.

use bytes::Bytes;
use forebay_core::Result;

use super::Store;
use super::location_cache::{Known, Ticket};
use super::log::{Frame, Taken};
use super::record::Record;

/// An object that was looked up, to be read together with others.
#[derive(Debug)]
pub struct Located {
    pub bucket_id: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Known(Known),
    /// As the index has it.
    Found(Box<Record>, Ticket),
}

impl Located {
    /// Number of its disk.
    pub fn disk(&self) -> usize {
        match &self.place {
            Place::Known(known) => known.disk,
            Place::Found(record, _) => record.disk,
        }
    }

    /// Its position on its disk, as the record has it.
    pub fn position(&self) -> (u64, u32) {
        match &self.place {
            Place::Known(known) => (known.segment, known.offset),
            Place::Found(record, _) => (record.spot().segment, record.spot().offset),
        }
    }

    /// An upper bound for its bytes, close to the real size.
    pub fn bytes(&self) -> u64 {
        match &self.place {
            Place::Known(known) => u64::from(known.len),
            Place::Found(record, _) => record.size,
        }
    }

    /// When it was last compared with its backend: version of the cluster's state, and time.
    pub fn validated(&self) -> (u64, u64) {
        match &self.place {
            Place::Known(known) => (known.epoch, known.validated_ns),
            Place::Found(record, _) => (record.meta.epoch, record.meta.validated_ns),
        }
    }

    /// `None` if it is in files.
    fn frame<'a>(&'a self, name: &'a str) -> Option<Frame<'a>> {
        match &self.place {
            Place::Known(known) => Some(frame_of(known, self.bucket_id, name)),
            // The record is needed to cache the location. If another entry would be replaced, that
            // is not worth the work: a batch may well read more objects than the cache holds.
            Place::Found(record, ticket) => {
                Frame::of(record).map(|frame| Frame { with_record: ticket.room, ..frame })
            }
        }
    }
}

fn frame_of<'a>(known: &Known, bucket_id: u64, name: &'a str) -> Frame<'a> {
    Frame {
        segment: known.segment,
        offset: known.offset,
        len: u64::from(known.len),
        bucket_id,
        name,
        generation: None,
        with_record: false,
    }
}

impl Store {
    /// Record and payload of an object whose location is cached and whose frame is in the page
    /// cache. Otherwise returns a ticket: the caller looks in the index, and may then cache the
    /// location.
    pub fn known_now(
        &self,
        bucket_id: u64,
        name: &str,
    ) -> std::result::Result<(Record, Bytes), Ticket> {
        let (known, ticket) = self.disks.location_cache().find(bucket_id, name);
        let read = || {
            let known = known?;
            let volume = self.disks.number(known.disk).ok()?;
            let shared = volume.shared();
            let (mut record, payload) = shared.log.read_now(&frame_of(&known, bucket_id, name))?;
            let meta = &mut record.meta;
            (meta.epoch, meta.validated_ns) = (known.epoch, known.validated_ns);
            meta.atime_ns = known.atime_ns;
            record.disk = known.disk;
            shared.recency.refresh(&mut record);
            Some((record, payload))
        };
        read().ok_or(ticket)
    }

    /// The payload of exactly this commit if it is in the log and in the page cache, without
    /// waiting for a disk or a thread. `None`: use the slower path. `ticket`: taken before the
    /// look-up in the index.
    pub fn read_now(&self, record: &Record, ticket: Option<Ticket>) -> Option<Bytes> {
        let volume = self.volume(record).ok()?;
        let (logged, payload) = volume.shared().log.read_now(&Frame::of(record)?)?;
        if let Some(ticket) = ticket {
            self.note(ticket, record, &logged);
        }
        Some(payload)
    }

    /// Announces that [`Self::locate`] will be called for this object soon.
    pub fn expect(&self, bucket_id: u64, name: &str) {
        self.disks.location_cache().expect(bucket_id, name);
    }

    /// Finds an object that is to be read together with others.
    pub fn locate(&self, bucket_id: u64, name: &str) -> Result<Option<Located>> {
        let (known, ticket) = self.disks.location_cache().find(bucket_id, name);
        let place = match known {
            Some(known) => Place::Known(known),
            None => match self.find(bucket_id, name)? {
                Some(record) => Place::Found(Box::new(record), ticket),
                None => return Ok(None),
            },
        };
        Ok(Some(Located { bucket_id, place }))
    }

    /// The payloads of objects of one disk, with their commits. The objects are given with their
    /// names in the order of their positions. `None`: as from [`Self::read_now`].
    pub fn payloads_now(&self, located: &[(&Located, &str)]) -> Vec<Option<Taken>> {
        let volume = located.first().and_then(|(first, _)| self.disks.number(first.disk()).ok());
        let Some(volume) = volume else { return vec![None; located.len()] };
        let frames: Vec<Frame<'_>> =
            located.iter().filter_map(|(one, name)| one.frame(name)).collect();
        let mut taken = volume.shared().log.payloads_now(&frames).into_iter();
        let taken = located.iter().map(|(one, name)| {
            let taken = one.frame(name).and_then(|_| taken.next()?)?;
            if let (Place::Found(record, ticket), Some(logged)) = (&one.place, &taken.record) {
                self.note(*ticket, record, logged);
            }
            Some(taken)
        });
        taken.collect()
    }

    /// The record of an object that was located by this name.
    pub fn record_of(&self, located: Located, name: &str) -> Result<Option<Record>> {
        match located.place {
            Place::Found(record, _) => Ok(Some(*record)),
            Place::Known(_) => self.find(located.bucket_id, name),
        }
    }

    /// Caches the location of an object, if its frame has the same metadata as the index.
    fn note(&self, ticket: Ticket, record: &Record, logged: &Record) {
        if record.generation == logged.generation
            && record.meta.same_lasting(&logged.meta)
            && let Some(known) = Known::of(record)
        {
            self.disks.location_cache().note(ticket, known);
        }
    }
}
