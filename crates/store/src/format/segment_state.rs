//! The state of a segment, as its header holds it.
//!
//! ```text
//! features:  bits u16, end of the frames u32 (0 unless bit 1 is set)
//! bit 0:     the header holds the state; in older segments the length of the file has it
//! bit 1:     sealed
//! bit 2:     open, and the file is that of a removed segment
//! ```

const STATED: u16 = 1;
const SEALED: u16 = 2;
const RECYCLED: u16 = 4;

/// The bytes that may be behind the last frame of a segment in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailContent {
    /// Nothing, or zeros.
    Zeros,
    /// Bytes of a removed segment whose file is used again.
    Recycled,
}

/// The state of a segment. The length of its file has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// The segment is in use, or was when its process ended.
    Open(TailContent),
    /// The frames end at this offset. Bytes behind it have no meaning.
    Sealed { end: u32 },
}

impl SegmentState {
    /// Where the frames end, as the header stores it: 0 if it does not say.
    pub(super) fn end(self) -> u32 {
        match self {
            Self::Open(_) => 0,
            Self::Sealed { end } => end,
        }
    }

    /// All states that a header may have whose copies of the end are `ends`.
    pub(super) fn candidates(ends: [u32; 2]) -> [Self; 4] {
        let [first, second] = ends.map(|end| Self::Sealed { end });
        [Self::Open(TailContent::Zeros), Self::Open(TailContent::Recycled), first, second]
    }
}

/// The features of a header. `None`: a segment from before headers had a state.
pub(super) fn encode_features(state: Option<SegmentState>) -> [u8; 6] {
    let bits = match state {
        None => 0,
        Some(SegmentState::Open(TailContent::Zeros)) => STATED,
        Some(SegmentState::Open(TailContent::Recycled)) => STATED | RECYCLED,
        Some(SegmentState::Sealed { .. }) => STATED | SEALED,
    };
    let mut out = [0; 6];
    out[..2].copy_from_slice(&bits.to_le_bytes());
    out[2..].copy_from_slice(&state.map_or(0, SegmentState::end).to_le_bytes());
    out
}

/// Whether this version knows these features of a header of the present format.
pub(super) fn knows_features(features: [u8; 6]) -> bool {
    let [_, _, end @ ..] = features;
    let states = SegmentState::candidates([u32::from_le_bytes(end); 2]);
    states.map(Some).into_iter().chain([None]).any(|state| encode_features(state) == features)
}
