//! One TAR header block, decoded; and the records of a PAX header.

use super::BLOCK;
use crate::archive::damaged;
use crate::error::Result;

/// What kind of entry a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    /// Has data, but is not a file that anybody asked for.
    Other,
    /// A link, device, directory or the like: no data, whatever the size says.
    Bare,
    /// PAX records for the next entry.
    Pax,
    /// GNU: the name of the next entry.
    LongName,
    Sparse,
    /// The rest of a file whose beginning is in another archive.
    Continued,
}

/// A header's own words, before extension headers overrule them.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) name: Vec<u8>,
    /// The old way to say "directory" is a slash at the end of the name.
    pub(super) old: bool,
}

/// Decodes a block that is not all zeros; `at` is where it lies.
pub(super) fn decode(block: &[u8; BLOCK], at: u64) -> Result<Header> {
    if !checksum_fits(block) {
        return Err(damaged(format!("the TAR header at byte {at} fails its checksum"))
            .hint("the archive is damaged, or it is not a TAR"));
    }
    let kind = match block[156] {
        0 | b'0' | b'7' => Kind::Regular,
        b'1'..=b'6' => Kind::Bare,
        b'x' | b'X' => Kind::Pax,
        b'L' => Kind::LongName,
        b'S' => Kind::Sparse,
        b'M' => Kind::Continued,
        _ => Kind::Other,
    };
    let size = number(&block[124..136])
        .ok_or_else(|| damaged(format!("the TAR header at byte {at} has no valid size")))?;
    let mut name = until_nul(&block[..100]).to_vec();
    // GNU's own format keeps other things where POSIX has the prefix.
    if block[257..263] == *b"ustar\0" && block[345] != 0 {
        let mut whole = until_nul(&block[345..500]).to_vec();
        whole.push(b'/');
        whole.append(&mut name);
        name = whole;
    }
    Ok(Header { kind, size, name, old: block[156] == 0 })
}

/// Whether the block's checksum is that of its bytes, taken as unsigned or (by old tars) signed.
pub(super) fn checksum_fits(block: &[u8; BLOCK]) -> bool {
    let Some(wanted) = number(&block[148..156]) else { return false };
    let (mut unsigned, mut signed) = (0i64, 0i64);
    for (i, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&i) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte as i8);
    }
    i64::try_from(wanted).is_ok_and(|w| w == unsigned || w == signed)
}

/// A number in octal digits, or in base 256 when its first bit is set. `None`: neither, or negative.
fn number(field: &[u8]) -> Option<u64> {
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        // All of these beyond 63 bits are refused: they are no sizes.
        let mut value = u64::from(first & 0x7f);
        for byte in rest {
            value = value.checked_mul(256)?.checked_add(u64::from(*byte))?;
        }
        return i64::try_from(value).ok().map(|v| v as u64);
    }
    let text = until_nul(field).trim_ascii();
    text.iter().try_fold(0u64, |value, byte| {
        let digit = matches!(byte, b'0'..=b'7').then(|| u64::from(byte - b'0'))?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

/// The text of a field that ends at its first NUL, or fills it.
pub(super) fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    &field[..end]
}

/// What PAX records say that matters here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// The real name of a sparse file, or an empty one.
    pub(super) sparse: Option<Vec<u8>>,
}

impl Pax {
    /// Takes in the records of one header: `LENGTH KEY=VALUE\n`, LENGTH being that of the record.
    pub(super) fn read(&mut self, mut records: &[u8], at: u64) -> Result<()> {
        let bad = || damaged(format!("the PAX records at byte {at} are damaged"));
        while !until_nul(records).is_empty() {
            let space = records.iter().take(20).position(|b| *b == b' ').ok_or_else(bad)?;
            let digits = std::str::from_utf8(&records[..space]).map_err(|_| bad())?;
            let len: usize = digits.parse().map_err(|_| bad())?;
            let record = records.get(space + 1..len).ok_or_else(bad)?;
            let record = record.strip_suffix(b"\n").ok_or_else(bad)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            self.take(key, value).ok_or_else(bad)?;
            records = &records[len..];
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"path" => self.path = Some(until_nul(value).to_vec()),
            b"size" => {
                let size: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
                self.size = Some(u64::try_from(size).ok()?);
            }
            b"GNU.sparse.name" => self.sparse = Some(value.to_vec()),
            key if key.starts_with(b"GNU.sparse.") => {
                self.sparse.get_or_insert_default();
            }
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"00000000017\0"), Some(15));
        assert_eq!(number(b"     17 \0\0\0\0"), Some(15));
        assert_eq!(number(b"777777777777"), Some((1 << 36) - 1));
        assert_eq!(number(&[0; 12]), Some(0));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]), Some((2 << 32) + 1));
        assert_eq!(number(&[0xff; 12]), None);
        assert_eq!(number(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(number(b"12x\0"), None);
        assert_eq!(number(b"000000000018"), None);
    }

    #[test]
    fn pax_records_are_read_and_broken_ones_refused() {
        let mut pax = Pax::default();
        pax.read(b"30 mtime=1350244992.023960108\n16 path=a b=c\xc3\xbc\n13 size=1000\n", 0)
            .unwrap();
        assert_eq!(pax.path.as_deref(), Some("a b=cü".as_bytes()));
        assert_eq!(pax.size, Some(1000));
        pax.read(b"26 GNU.sparse.name=a/real\n", 0).unwrap();
        assert_eq!(pax.sparse.as_deref(), Some(b"a/real".as_slice()));
        for bad in ["x", "5 a=b\n", "99 a=b\n", "0 a=b\n", "3 a=b\n", "9 size=-1\n", "7 a b c\n"] {
            let error = Pax::default().read(bad.as_bytes(), 512).unwrap_err();
            assert!(error.message.contains("byte 512"), "{bad}: {error}");
        }
    }
}
