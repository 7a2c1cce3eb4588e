//! Extensions of a record: the last fields of its metadata, if it has any.
//!
//! ```text
//! extensions:  number of them, at least 1; then for each: id, number of bytes, bytes
//! ```
//! Ids increase. The numbers are varints.

use forebay_core::Result;

use super::damaged;
use super::wire::{Reader, Writer};
use crate::extensions::{Extension, Extensions};

pub(super) fn encode_extensions(w: &mut Writer<'_>, extensions: &Extensions) {
    if extensions.is_empty() {
        return;
    }
    w.varint(extensions.fields().len() as u64);
    for field in extensions.fields() {
        w.varint(field.id);
        w.sized_bytes(&field.value);
    }
}

/// Reads what [`encode_extensions`] wrote, if there are any.
pub(super) fn decode_extensions(r: &mut Reader<'_>) -> Result<Extensions> {
    let mut fields = Vec::new();
    for _ in 0..r.varint()? {
        fields.push(Extension { id: r.varint()?, value: r.sized_bytes()?.into() });
    }
    let extensions = Extensions::in_order(fields).filter(|extensions| !extensions.is_empty());
    extensions.ok_or_else(|| damaged("the extensions of a record are missing or out of order"))
}

/// Skips what [`decode_extensions`] reads.
pub(super) fn skip_extensions(r: &mut Reader<'_>) -> Result<()> {
    for _ in 0..r.varint()? {
        r.varint()?;
        r.sized_bytes()?;
    }
    Ok(())
}
