//! Converts names of members that are not UTF-8 to text and back.
//!
//! Names that Forebay lists, sends and compares are UTF-8; archives of old tools contain names in
//! Latin-1, GBK or Shift-JIS. Each byte B of such a name that is not part of valid UTF-8 becomes
//! the private-use character U+EF00 + B (U+EF80 to U+EFFF). Two names with different bytes never
//! become the same text, and [`raw`] returns the bytes. A TAR that is written from such names
//! contains the original bytes.
//!
//! Zip archives have a default encoding, code page 437; [`cp437`] decodes it.

use std::borrow::Cow;

/// The character for byte 0 if bytes below 0x80 needed one.
const BASE: u32 = 0xef00;

fn is_raw_byte(c: char) -> bool {
    matches!(c, '\u{ef80}'..='\u{efff}')
}

fn push_bytes(out: &mut String, bytes: &[u8]) {
    // All of U+EF80 to U+EFFF are characters.
    out.extend(bytes.iter().filter_map(|byte| char::from_u32(BASE + u32::from(*byte))));
}

/// The text of a name in an archive. Characters that stand for bytes are themselves replaced byte
/// by byte, so that two names never become the same text.
pub fn text(name: &[u8]) -> String {
    if let Ok(plain) = std::str::from_utf8(name)
        && !plain.contains(is_raw_byte)
    {
        return plain.to_owned();
    }
    let mut out = String::with_capacity(name.len() * 2);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_raw_byte(c) {
                true => push_bytes(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                false => out.push(c),
            }
        }
        push_bytes(&mut out, chunk.invalid());
    }
    out
}

/// The text of a name in a request: valid UTF-8 is a name as listed, anything else the bytes of the
/// archive.
pub fn requested(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(plain) => Cow::Borrowed(plain),
        Err(_) => Cow::Owned(text(name)),
    }
}

/// The bytes of a name: the reverse of [`text`].
pub fn raw(name: &str) -> Cow<'_, [u8]> {
    if !name.contains(is_raw_byte) {
        return Cow::Borrowed(name.as_bytes());
    }
    let mut out = Vec::with_capacity(name.len());
    for c in name.chars() {
        match is_raw_byte(c) {
            // The low byte of U+EF80 to U+EFFF.
            true => out.push(c as u8),
            false => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(out)
}

/// Characters of code page 437 from 0x80 on.
const CP437: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ',
    'ô', 'ö', 'ò', 'û', 'ù', 'ÿ', 'Ö', 'Ü', '¢', '£', '¥', '₧', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ',
    'ª', 'º', '¿', '⌐', '¬', '½', '¼', '¡', '«', '»', '░', '▒', '▓', '│', '┤', '╡', '╢', '╖', '╕',
    '╣', '║', '╗', '╝', '╜', '╛', '┐', '└', '┴', '┬', '├', '─', '┼', '╞', '╟', '╚', '╔', '╩', '╦',
    '╠', '═', '╬', '╧', '╨', '╤', '╥', '╙', '╘', '╒', '╓', '╫', '╪', '┘', '┌', '█', '▄', '▌', '▐',
    '▀', 'α', 'ß', 'Γ', 'π', 'Σ', 'σ', 'µ', 'τ', 'Φ', 'Θ', 'Ω', 'δ', '∞', 'φ', 'ε', '∩', '≡', '±',
    '≥', '≤', '⌠', '⌡', '÷', '≈', '°', '∙', '·', '√', 'ⁿ', '²', '■', '\u{a0}',
];

/// Text in code page 437.
pub fn cp437(name: &[u8]) -> String {
    let decode = |byte: &u8| match byte.checked_sub(0x80) {
        Some(high) => CP437[usize::from(high)],
        None => char::from(*byte),
    };
    name.iter().map(decode).collect()
}

/// The code page 437 text of a name that a request gave as bytes; `None` for any other name.
pub fn requested_cp437(name: &str) -> Option<String> {
    name.contains(is_raw_byte).then(|| cp437(&raw(name)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_in_utf_8_stay_and_other_bytes_become_private_characters() {
        assert_eq!(text("für/一.txt".as_bytes()), "für/一.txt");
        assert_eq!(text(b"caf\xe9.txt"), "caf\u{efe9}.txt");
        assert_eq!(text(b"caf\xe8.txt"), "caf\u{efe8}.txt");
        // GBK, and a truncated UTF-8 sequence.
        assert_eq!(text(b"\xc4\xe3.jpg"), "\u{efc4}\u{efe3}.jpg");
        assert_eq!(text(b"a\xe4\xb8"), "a\u{efe4}\u{efb8}");
        assert_eq!(raw("caf\u{efe9}.txt").as_ref(), b"caf\xe9.txt");
        assert_eq!(requested("caf\u{efe9}".as_bytes()), "caf\u{efe9}");
        assert_eq!(requested(b"caf\xe9"), "caf\u{efe9}");
        assert_eq!(requested_cp437("caf\u{ef82}").unwrap(), "café");
        assert_eq!(requested_cp437("café"), None);
    }

    #[test]
    fn code_page_437_has_256_different_characters() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(cp437(&all).chars().collect::<HashSet<_>>().len(), 256);
        assert_eq!(cp437(b"\x81\x82\x9c\xe1\xff a"), "üé£ß\u{a0} a");
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            let back = raw(&text(&name)).into_owned();
            prop_assert_eq!(back, name);
        }

        #[test]
        fn every_text_comes_back(parts in proptest::collection::vec("[a-zé一\u{ef80}-\u{efff}]", 0..12)) {
            let name = parts.concat().into_bytes();
            let back = raw(&text(&name)).into_owned();
            prop_assert_eq!(back, name);
        }
    }
}
