//! Reading zip archives: the directory at their end, and members stored or deflated.

mod directory;
mod member;
mod naming;
#[cfg(test)]
mod tests;

pub(crate) use directory::read_directory;
pub use member::{data_range, is_stored, unpack};

use forebay_core::error::{Error, Result};

use crate::damaged;

/// Signature of the header in front of a member's data.
const LOCAL: &[u8; 4] = b"PK\x03\x04";

/// Reads a number at an offset that is known to be in bounds.
fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    field(bytes, at).map(u64::from_le_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(cut_off)
}

fn cut_off() -> Error {
    damaged("the zip archive's directory is cut off")
}
