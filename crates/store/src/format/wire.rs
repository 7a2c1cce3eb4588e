//! Encoding of numbers, texts and bytes in records.

use forebay_core::Result;

use super::damaged;

/// Bytes that a text may claim: no record is longer, and a shift cannot overflow.
const MAX_TEXT: u64 = super::MAX_RECORD as u64;

/// Appends values to a buffer.
pub(super) struct Writer<'a> {
    pub(super) out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    pub(super) fn u8(&mut self, v: u8) {
        self.out.push(v);
    }

    pub(super) fn u64(&mut self, v: u64) {
        self.out.extend_from_slice(&v.to_le_bytes());
    }

    /// Unsigned LEB128.
    pub(super) fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.out.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.out.push(v as u8);
    }

    /// The difference of `v` and `base`, with the sign in the lowest bit.
    pub(super) fn delta(&mut self, v: u64, base: u64) {
        let d = v.wrapping_sub(base) as i64;
        self.varint(((d << 1) ^ (d >> 63)) as u64);
    }

    /// Bytes, with their number before them.
    pub(super) fn sized_bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// A text: twice its length, plus one if the bytes are stored for their lower-case hexadecimal
    /// digits; then the bytes.
    pub(super) fn text(&mut self, s: &str) {
        if let Some(len) = hex_len(s) {
            self.varint((len as u64) << 1 | 1);
            let start = self.out.len();
            self.out.resize(start + len, 0);
            let fits = hex::decode_to_slice(s, &mut self.out[start..]);
            debug_assert!(fits.is_ok());
        } else {
            self.varint((s.len() as u64) << 1);
            self.out.extend_from_slice(s.as_bytes());
        }
    }
}

/// Number of bytes that `s` encodes in hexadecimal, if that form is worth it.
fn hex_len(s: &str) -> Option<usize> {
    let digits = s.len() >= 4
        && s.len().is_multiple_of(2)
        && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    digits.then_some(s.len() / 2)
}

/// Takes values from the front of a slice. For any bytes it returns a value or `Corrupt`.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.take::<1>().map(|[b]| b)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            let bits = u64::from(b & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            v |= bits << shift;
            if b & 0x80 == 0 {
                return Ok(v);
            }
        }
        Err(damaged("a record holds a number of more than 64 bits"))
    }

    pub(super) fn delta(&mut self, base: u64) -> Result<u64> {
        let z = self.varint()?;
        let d = (z >> 1) as i64 ^ -((z & 1) as i64);
        Ok(base.wrapping_add(d as u64))
    }

    pub(super) fn sized_bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        self.bytes(usize::try_from(len).map_err(|_| cut_off())?)
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let (bytes, is_hex) = self.text_bytes()?;
        if is_hex { hex_text(bytes) } else { utf8(bytes) }
    }

    /// Skips a text. Returns whether it equals `text`.
    pub(super) fn text_is(&mut self, text: &str) -> Result<bool> {
        let (bytes, is_hex) = self.text_bytes()?;
        if !is_hex {
            return Ok(bytes == text.as_bytes());
        }
        let mut pair = [0; 2];
        Ok(text.len() == bytes.len() * 2
            && bytes.iter().zip(text.as_bytes().chunks_exact(2)).all(|(byte, digits)| {
                hex::encode_to_slice([*byte], &mut pair).is_ok() && pair == digits
            }))
    }

    /// Skips a text.
    pub(super) fn skip_text(&mut self) -> Result<()> {
        self.text_bytes().map(drop)
    }

    /// The bytes of a text, and whether its text is their hexadecimal digits.
    fn text_bytes(&mut self) -> Result<(&'a [u8], bool)> {
        let n = self.varint()?;
        if n >> 1 > MAX_TEXT {
            return Err(cut_off());
        }
        Ok((self.bytes((n >> 1) as usize)?, n & 1 == 1))
    }

    /// A text of format 1: its length in four bytes before it.
    pub(super) fn long_text(&mut self) -> Result<String> {
        let len = self.u32()? as usize;
        utf8(self.bytes(len)?)
    }
}

/// In one step, because every look-up of an object reads a checksum.
fn hex_text(bytes: &[u8]) -> Result<String> {
    let mut text = vec![0; bytes.len() * 2];
    let coded = hex::encode_to_slice(bytes, &mut text).ok().and(String::from_utf8(text).ok());
    coded.ok_or_else(|| damaged("a record holds a number that cannot be written"))
}

fn utf8(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|_| damaged("a record holds text not in UTF-8"))
}

fn cut_off() -> forebay_core::Error {
    damaged("a record is cut off")
}
