//! Small objects that are read without a wait: in the log, in the page cache, and at a place that is
//! known or that the index tells.

use bytes::Bytes;
use forebay_core::Result;

use super::Store;
use super::location_cache::{Known, Ticket};
use super::log::{Frame, Taken};
use super::record::Record;

/// An object that was looked up, to be read with others.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) bucket_id: u64,
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
    pub(crate) fn disk(&self) -> usize {
        match &self.place {
            Place::Known(known) => known.disk,
            Place::Found(record, _) => record.disk,
        }
    }

    /// Where it lies on its disk, as far as its record goes.
    pub(crate) fn position(&self) -> (u64, u32) {
        match &self.place {
            Place::Known(known) => (known.segment, known.offset),
            Place::Found(record, _) => (record.spot().segment, record.spot().offset),
        }
    }

    /// No less than its bytes, and little more.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.place {
            Place::Known(known) => u64::from(known.len),
            Place::Found(record, _) => record.size,
        }
    }

    /// When it was last compared with its backend: version of the cluster's state, and time.
    pub(crate) fn validated(&self) -> (u64, u64) {
        match &self.place {
            Place::Known(known) => (known.epoch, known.validated_ns),
            Place::Found(record, _) => (record.meta.epoch, record.meta.validated_ns),
        }
    }

    /// `None`: it lies in files.
    fn frame<'a>(&'a self, name: &'a str) -> Option<Frame<'a>> {
        match &self.place {
            Place::Known(known) => Some(frame_of(known, self.bucket_id, name)),
            // Its record tells whether the place may be noted. Where another had to go for it, that
            // is not worth the work: who reads many may well read more than there is room for.
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
    /// Record and payload of an object whose place is known and in the page cache. The other case:
    /// the index has to be asked, and what it tells may be noted.
    pub(crate) fn known_now(
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

    /// The payload of this very commit if it lies in the page cache and in the log, without waiting
    /// for a disk or a thread. `None`: take another way. `ticket`: of before the index was asked.
    pub(crate) fn read_now(&self, record: &Record, ticket: Option<Ticket>) -> Option<Bytes> {
        let volume = self.volume(record).ok()?;
        let (logged, payload) = volume.shared().log.read_now(&Frame::of(record)?)?;
        if let Some(ticket) = ticket {
            self.note(ticket, record, &logged);
        }
        Some(payload)
    }

    /// Tells that [`Self::locate`] is going to be asked for this object soon.
    pub(crate) fn expect(&self, bucket_id: u64, name: &str) {
        self.disks.location_cache().expect(bucket_id, name);
    }

    /// Finds an object that is to be read with others.
    pub(crate) fn locate(&self, bucket_id: u64, name: &str) -> Result<Option<Located>> {
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

    /// The payloads of objects of one disk, given with their names in the order in which they lie
    /// there, and of which commits they are. `None`: as from [`Self::read_now`].
    pub(crate) fn payloads_now(&self, located: &[(&Located, &str)]) -> Vec<Option<Taken>> {
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

    /// The record of an object that was found by this name.
    pub(crate) fn record_of(&self, located: Located, name: &str) -> Result<Option<Record>> {
        match located.place {
            Place::Found(record, _) => Ok(Some(*record)),
            Place::Known(_) => self.find(located.bucket_id, name),
        }
    }

    /// Notes where an object lies, if its frame tells all that the index does.
    fn note(&self, ticket: Ticket, record: &Record, logged: &Record) {
        if record.generation == logged.generation
            && record.meta.same_lasting(&logged.meta)
            && let Some(known) = Known::of(record)
        {
            self.disks.location_cache().note(ticket, known);
        }
    }
}
