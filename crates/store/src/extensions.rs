//! Extensions of a record: fields that later versions of Forebay add to it.
//!
//! This version knows none and writes none. It keeps those that it finds, and does not serve the
//! payload of an object with a required one.

/// Extensions with lower ids are required: a reader that does not know one does not know what the
/// bytes of the payload mean. A reader ignores the other ones that it does not know.
const FIRST_OPTIONAL: u64 = 128;

/// One field that a record may have or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extension {
    pub(crate) id: u64,
    pub(crate) value: Box<[u8]>,
}

/// The extensions of one record, by increasing ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions(Box<[Extension]>);

impl Extensions {
    /// `None` unless the ids increase.
    pub(crate) fn in_order(fields: Vec<Extension>) -> Option<Self> {
        fields.is_sorted_by(|a, b| a.id < b.id).then(|| Self(fields.into()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn fields(&self) -> &[Extension] {
        &self.0
    }

    /// Extensions with these ids.
    pub(crate) fn for_test(ids: &[u64]) -> Self {
        Self(ids.iter().map(|id| Extension { id: *id, value: id.to_le_bytes().into() }).collect())
    }

    /// The id of a required extension that this version does not know.
    pub(crate) fn unknown_required(&self) -> Option<u64> {
        self.0.iter().map(|field| field.id).find(|id| *id < FIRST_OPTIONAL)
    }
}
