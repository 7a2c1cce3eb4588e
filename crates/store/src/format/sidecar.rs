//! Sidecars: data derived from an object's content, in a file of its own.
//!
//! ```text
//! sidecar:  magic "FBCOMPAN", format u16, 0 u16, CRC-32C u32 of all that follows,
//!           generation u64, payload
//! ```

use forebay_core::Result;
use forebay_core::checksum::crc32c;

use super::wire::Reader;
use super::{PAGE, damaged, unknown_format};

/// Version of the layout of sidecars. A sidecar of another version is ignored.
const SIDECAR_FORMAT: u16 = 1;
const SIDECAR_MAGIC: &[u8; 8] = b"FBCOMPAN";

/// Encodes the file of a sidecar of the object `generation`.
pub(crate) fn encode_sidecar(generation: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + payload.len());
    out.extend_from_slice(SIDECAR_MAGIC);
    out.extend_from_slice(&SIDECAR_FORMAT.to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(&generation.to_le_bytes());
    out.extend_from_slice(payload);
    let crc = crc32c(&out[16..]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The payload of a sidecar. An error if it is damaged, or belongs to another object.
pub(crate) fn decode_sidecar(mut bytes: Vec<u8>, generation: u64) -> Result<Vec<u8>> {
    let mut r = Reader { rest: &bytes };
    if r.take::<8>()? != *SIDECAR_MAGIC {
        return Err(damaged("a sidecar file has no magic"));
    }
    let format = r.u16()?;
    if format != SIDECAR_FORMAT {
        return Err(unknown_format("a sidecar file", format));
    }
    r.u16()?;
    if r.u32()? != crc32c(r.rest) {
        return Err(damaged("a sidecar file fails its checksum"));
    }
    if r.u64()? != generation {
        return Err(damaged("a sidecar file belongs to another object"));
    }
    let head = bytes.len() - r.rest.len();
    Ok(bytes.split_off(head))
}

/// Space on the disk of a sidecar of this size.
pub(crate) fn sidecar_space(size: u64) -> u64 {
    size.next_multiple_of(PAGE)
}
