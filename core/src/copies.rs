//! Messages between targets about copies of native objects: a copy's description, the order of
//! copies, and [`requests`].

pub mod requests;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::erasure::{Form, Slice};
use crate::error::{Error, Result};
use crate::name::NodeId;
use crate::object::ObjectMeta;

/// Header with the [`CopyHead`] of a copy in transfer: JSON in base64, because metadata may be any
/// text.
pub const COPY_HEADER: &str = "forebay-copy";

/// Orders the states of one native object across all writers: first by the version of the cluster's
/// state under which its owner wrote, then by the object's own version. Owners change only with the
/// state, so the writes of a former owner are older than those of its successor, whatever the
/// clocks show.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp {
    pub epoch: u64,
    pub version: u64,
}

impl Stamp {
    /// The stamp of an object that was written under `epoch` with this version.
    pub fn new(epoch: u64, version: &str) -> Self {
        Self { epoch, version: version.parse().unwrap_or(0) }
    }

    /// The stamp of a change to the object under `epoch`.
    #[must_use]
    pub fn next(self, epoch: u64) -> Self {
        Self { epoch: self.epoch.max(epoch), version: self.version + 1 }
    }

    /// The greatest stamp below this one.
    #[must_use]
    pub fn before(self) -> Self {
        match self.version.checked_sub(1) {
            Some(version) => Self { version, ..self },
            None => Self { epoch: self.epoch.saturating_sub(1), version: u64::MAX },
        }
    }
}

/// A copy without its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHead {
    pub meta: ObjectMeta,
    /// Version of the cluster's state under which it was written.
    pub epoch: u64,
    /// The target that sends the copy.
    pub from: Option<NodeId>,
    /// The sender is writing it at this moment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub written: bool,
    /// The transferred bytes are this slice of the object, followed by its checksum; `meta`
    /// describes the whole object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Slice>,
    /// Checksum of the slice, if known in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_sum: Option<Checksum>,
}

impl CopyHead {
    pub fn stamp(&self) -> Stamp {
        Stamp::new(self.epoch, &self.meta.version)
    }

    /// Encodes the head for [`COPY_HEADER`].
    pub fn to_header(&self) -> Result<String> {
        let json = serde_json::to_vec(self)
            .map_err(|e| Error::internal(format!("a copy's metadata cannot be sent: {e}")))?;
        Ok(BASE64_STANDARD.encode(json))
    }

    pub fn from_header(value: &[u8]) -> Result<Self> {
        let json = BASE64_STANDARD.decode(value).ok();
        json.and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| Error::invalid(format!("{COPY_HEADER} is missing or cannot be read")))
    }
}

/// The state of an object on a target; the target does not change the object while it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyLook {
    pub there: Option<Stamp>,
    /// The stamp of its removal, if the target has a tombstone.
    pub removed: Option<Stamp>,
    /// The copy there is damaged, and is being repaired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// A disk was lost, and not all of its objects were restored yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_lack: bool,
    /// The slices of the object on the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceLook>,
}

/// A slice that a target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceLook {
    pub slice: Slice,
    /// The stamp of the object that the slice belongs to.
    pub stamp: Stamp,
}

impl CopyLook {
    /// The newest state of the object of which the target has any part.
    pub fn newest(&self) -> Option<Stamp> {
        self.slices.iter().map(|slice| slice.stamp).max().max(self.there)
    }

    /// Whether the target does not need this form of the object: it has the form with this stamp or
    /// a later one, or a tombstone of a later removal.
    pub fn knows_form(&self, form: Form, stamp: Stamp) -> bool {
        match form {
            Form::Whole => self.knows(stamp),
            Form::Slice(slice) => {
                let there = |s: &SliceLook| s.slice == slice && s.stamp >= stamp;
                self.slices.iter().any(there) || self.removed >= Some(stamp)
            }
        }
    }

    /// Like [`Self::has`], for this form of the object.
    pub fn has_form(&self, form: Form, stamp: Stamp) -> bool {
        match form {
            Form::Whole => self.has(stamp),
            Form::Slice(_) => self.removed.is_none() && self.knows_form(form, stamp),
        }
    }

    /// Whether the target does not need a copy of this stamp: it has the copy, or something later.
    pub fn knows(&self, stamp: Stamp) -> bool {
        let there =
            self.there.is_some_and(|there| there > stamp || there == stamp && !self.damaged);
        there || self.removed >= Some(stamp)
    }

    /// The latest change of the object that the target knows of: a write or a removal.
    pub fn last_change(&self) -> Option<Stamp> {
        self.newest().max(self.removed)
    }

    /// Whether the target has or had something newer than this stamp.
    pub fn is_after(&self, stamp: Stamp) -> bool {
        self.last_change() > Some(stamp)
    }

    /// Whether the target has any part of an older state of the object.
    pub fn has_older(&self, stamp: Stamp) -> bool {
        self.there.is_some_and(|there| there < stamp)
            || self.slices.iter().any(|slice| slice.stamp < stamp)
    }

    /// Whether the target has an undamaged copy with this stamp or a later one, and no tombstone.
    pub fn has(&self, stamp: Stamp) -> bool {
        self.there >= Some(stamp) && !self.damaged && self.removed.is_none()
    }
}

/// The answer to an [`EnsureRequest`](requests::EnsureRequest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ensured {
    /// The state of the object that is replicated now; none if there is no such object.
    pub stamp: Option<Stamp>,
    /// All targets that should have a part of it are reachable, and have it.
    pub all: bool,
    /// Its last removal, if there is no such object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Stamp>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_copy_is_wanted_anew_and_an_older_one_is_not() {
        let stamp = |epoch| Stamp::new(epoch, "1");
        let look =
            CopyLook { there: Some(stamp(5)), removed: Some(stamp(2)), ..CopyLook::default() };
        assert!(look.knows(stamp(5)) && look.knows(stamp(4)) && !look.knows(stamp(6)));
        assert!(look.is_after(stamp(4)) && !look.is_after(stamp(5)));
        let damaged = CopyLook { damaged: true, ..look.clone() };
        assert!(!damaged.knows(stamp(5)) && damaged.knows(stamp(4)));
        let removed = CopyLook { removed: Some(stamp(5)), ..damaged.clone() };
        assert!(removed.knows(stamp(5)) && !CopyLook::default().knows(stamp(0)));
        let sound = CopyLook { removed: None, ..look.clone() };
        assert!(sound.has(stamp(5)) && sound.has(stamp(4)) && !sound.has(stamp(6)));
        assert!(!look.has(stamp(4)) && !CopyLook { damaged: true, ..sound }.has(stamp(4)));
    }

    #[test]
    fn slices_count_by_what_they_are_and_by_the_object_they_are_of() {
        let (slice, stamp) = (Slice { data: 2, parity: 1, number: 1 }, Stamp::new(5, "2"));
        let look = CopyLook { slices: vec![SliceLook { slice, stamp }], ..CopyLook::default() };
        let (form, older) = (Form::Slice(slice), Stamp::new(5, "1"));
        assert_eq!(look.newest(), Some(stamp));
        assert!(look.has_form(form, stamp) && look.has_form(form, older));
        assert!(!look.has_form(form, Stamp::new(6, "1")) && !look.knows_form(Form::Whole, stamp));
        for other in [Slice { number: 2, ..slice }, Slice { data: 3, ..slice }] {
            assert!(!look.knows_form(Form::Slice(other), stamp));
        }
        let beside = CopyLook { there: Some(older), ..look.clone() };
        assert!(beside.has_older(stamp) && !beside.has_older(older) && !look.has_older(stamp));
        let removed = CopyLook { removed: Some(stamp), ..CopyLook::default() };
        assert!(removed.knows_form(form, stamp) && !removed.has_form(form, stamp));
    }

    #[test]
    fn a_later_owner_is_newer_whatever_the_versions_of_the_former_one() {
        let former = Stamp::new(7, "12");
        assert!(Stamp::new(9, "1") > former);
        assert!(Stamp::new(7, "13") > former);
        assert_eq!(former.next(7), Stamp::new(7, "13"));
        assert_eq!(former.next(9), Stamp::new(9, "13"));
        assert!(former.next(3) > former, "a change is newer even under a state that lags");
    }

    #[test]
    fn a_head_survives_its_way_and_a_bad_one_is_refused() {
        let custom = [("k".to_owned(), "ü\n,=".to_owned())].into();
        let meta = ObjectMeta { size: 5, version: "3".into(), custom, ..Default::default() };
        let head = CopyHead { meta, epoch: 8, written: true, ..CopyHead::default() };
        let read = CopyHead::from_header(head.to_header().unwrap().as_bytes()).unwrap();
        assert_eq!((read.stamp(), &read), (Stamp { epoch: 8, version: 3 }, &head));
        for bad in ["", "bm8ganNvbg==", "%"] {
            assert!(CopyHead::from_header(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
