//! Encodings of the names of a zip archive's members.

use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::shard::names;

use crate::index::Member;

/// Extra field with a UTF-8 name, in addition to one in another encoding (Info-ZIP's Unicode path).
const EXTRA_UNICODE_NAME: u16 = 0x7075;
const FLAG_UTF8: u16 = 1 << 11;

/// The encoding that an entry declares for its name.
#[derive(Debug)]
pub(super) enum NameEncoding {
    /// UTF-8, because the entry declares it or because the name is ASCII.
    Known,
    Legacy {
        is_utf8: bool,
    },
}

/// Decodes a member's name by its flag or its Unicode field. Any other name stays the text of its
/// bytes until all names are known.
pub(super) fn decode_name(name: &[u8], flags: u16, extra: &[u8]) -> (String, NameEncoding) {
    let utf8 = std::str::from_utf8(name);
    if let Ok(plain) = utf8
        && (name.is_ascii() || flags & FLAG_UTF8 != 0)
    {
        return (plain.to_owned(), NameEncoding::Known);
    }
    if let Some(unicode) = unicode_name(name, extra) {
        return (unicode, NameEncoding::Known);
    }
    let encoding = match flags & FLAG_UTF8 {
        0 => NameEncoding::Legacy { is_utf8: utf8.is_ok() },
        _ => NameEncoding::Known,
    };
    (names::text(name), encoding)
}

/// The name in the extra field for UTF-8, if it belongs to these bytes.
fn unicode_name(name: &[u8], extra: &[u8]) -> Option<String> {
    let (version, rest) = extra_field(extra, EXTRA_UNICODE_NAME)?.split_first()?;
    let (crc, unicode) = rest.split_first_chunk()?;
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    digest.update(name);
    let is_for_name = *version == 1 && digest.finalize() as u32 == u32::from_le_bytes(*crc);
    is_for_name.then(|| std::str::from_utf8(unicode).ok().map(str::to_owned)).flatten()
}

/// The data of the first extra field of this kind. Damaged fields are ignored.
pub(super) fn extra_field(mut extra: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (&[id, id_high, len, len_high], rest) = extra.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes([len, len_high]));
        let (data, rest) = rest.split_at_checked(len)?;
        if u16::from_le_bytes([id, id_high]) == wanted {
            return Some(data);
        }
        extra = rest;
    }
}

/// Names whose encoding the archive does not declare. The format's default is code page 437, but
/// many tools write UTF-8: the names are UTF-8 if all of them are valid UTF-8.
#[derive(Default)]
pub(super) struct LegacyNames {
    numbers: Vec<usize>,
    has_other: bool,
}

impl LegacyNames {
    /// Records the encoding of the name of this member.
    pub(super) fn note(&mut self, number: usize, encoding: &NameEncoding) {
        if let NameEncoding::Legacy { is_utf8 } = encoding {
            self.numbers.push(number);
            self.has_other |= !is_utf8;
        }
    }

    /// Gives the members their names, once all are known.
    pub(super) fn decode(self, members: &mut [Member]) {
        if !self.has_other {
            return;
        }
        for number in self.numbers {
            if let Some(member) = members.get_mut(number) {
                member.name = names::cp437(&names::raw(&member.name));
            }
        }
    }
}
