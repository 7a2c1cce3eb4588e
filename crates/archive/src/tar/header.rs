//! One TAR header block, decoded; and the records of a PAX header.

use forebay_core::error::Result;
use forebay_core::shard::Stat;

use super::BLOCK;
use crate::damaged;

/// The kind of entry that a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    /// Has data, but is not a regular file.
    Other,
    /// A link, device, directory or similar: no data, whatever its size field contains.
    Bare,
    /// PAX records for the next entry.
    Pax,
    /// GNU: the name of the next entry.
    LongName,
    Sparse,
    /// The continuation of a file that begins in another archive.
    Continued,
}

/// The fields of a header, before extension headers override them.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
    /// Old format: a slash at the end of the name means a directory.
    pub(super) old: bool,
    /// GNU: blocks of a sparse file's map follow.
    pub(super) has_sparse_map: bool,
}

/// Decodes a block that is not all zeros; `at` is its offset.
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
    // GNU's own format has other fields at the position of POSIX's prefix.
    if block[257..263] == *b"ustar\0" && block[345] != 0 {
        let mut whole = until_nul(&block[345..500]).to_vec();
        whole.push(b'/');
        whole.append(&mut name);
        name = whole;
    }
    let has_sparse_map = kind == Kind::Sparse && block[482] != 0;
    Ok(Header { kind, size, name, stat: stat(block), old: block[156] == 0, has_sparse_map })
}

/// Whether another block follows this block of a sparse file's map.
pub(super) fn sparse_map_goes_on(block: &[u8]) -> bool {
    block.get(504).is_some_and(|flag| *flag != 0)
}

/// Time and mode of a header. Invalid fields are not an error: an invalid time, or one before 1970,
/// becomes 1970; an invalid mode becomes 0644.
fn stat(block: &[u8; BLOCK]) -> Stat {
    let mtime = number(&block[136..148]).and_then(|at| i64::try_from(at).ok());
    let mode = &block[100..108];
    let is_set = mode.iter().any(|b| !matches!(b, 0 | b' '));
    let mode = number(mode).filter(|_| is_set).and_then(|mode| u32::try_from(mode).ok());
    Stat::new(mtime.unwrap_or(0), mode.unwrap_or(u32::from(Stat::default().mode)))
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
        // All values beyond 63 bits are refused: they are not sizes.
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

/// Maximum digits of a PAX record's length, with the space after it.
const LENGTH_DIGITS: usize = 20;

/// Bytes that are scanned from the first to the last, with a count of the bytes examined.
struct Scanner<'a> {
    rest: &'a [u8],
    /// Bytes examined: the work done, which tests compare with the input's length.
    examined: u64,
}

impl<'a> Scanner<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest, examined: 0 }
    }

    /// The bytes before the next `end`, which has to be among the next `within`; continues after
    /// it.
    fn until(&mut self, end: u8, within: usize) -> Option<&'a [u8]> {
        let within = &self.rest[..within.min(self.rest.len())];
        let found = within.iter().position(|b| *b == end);
        self.examined += found.map_or(within.len(), |at| at + 1) as u64;
        let at = found?;
        let (head, rest) = self.rest.split_at(at);
        self.rest = &rest[1..];
        Some(head)
    }

    /// The next `len` bytes.
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }
}

/// The relevant values of PAX records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// Whole seconds since 1970.
    pub(super) mtime: Option<i64>,
    /// The real name of a sparse file, or an empty one.
    pub(super) sparse: Option<Vec<u8>>,
}

impl Pax {
    /// Reads the records of one header: `LENGTH KEY=VALUE
    /// `, where LENGTH is the length of the record. More than `max_records` are an error.
    pub(super) fn read(&mut self, records: &[u8], max_records: u64, at: u64) -> Result<()> {
        self.read_from(&mut Scanner::new(records), max_records, at)
    }

    fn read_from(&mut self, from: &mut Scanner<'_>, max_records: u64, at: u64) -> Result<()> {
        let bad = || damaged(format!("the PAX records at byte {at} are damaged"));
        let mut records = 0;
        // NULs fill the rest. A value may contain NULs too, so only the first byte of a record is
        // tested.
        while from.rest.first().is_some_and(|b| *b != 0) {
            records += 1;
            if records > max_records {
                return Err(damaged(format!(
                    "the PAX header at byte {at} has more than {max_records} records"
                ))
                .hint("write the archive with fewer attributes for each member"));
            }
            let before = from.rest.len();
            let digits = from.until(b' ', LENGTH_DIGITS).ok_or_else(bad)?;
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
            let len: usize = digits.parse().map_err(|_| bad())?;
            let len = len.checked_sub(before - from.rest.len()).ok_or_else(bad)?;
            let record = from.bytes(len).ok_or_else(bad)?;
            let mut record = Scanner::new(record.strip_suffix(b"\n").ok_or_else(bad)?);
            let key = record.until(b'=', usize::MAX).ok_or_else(bad)?;
            self.take(key, record.rest).ok_or_else(bad)?;
            // A value is copied at most once.
            from.examined += record.examined + record.rest.len() as u64;
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
            b"mtime" => self.mtime = seconds(value),
            b"GNU.sparse.name" => self.sparse = Some(value.to_vec()),
            key if key.starts_with(b"GNU.sparse.") => {
                self.sparse.get_or_insert_default();
            }
            _ => {}
        }
        Some(())
    }
}

/// The whole seconds of a time with a fraction; `None` if it is invalid, which keeps the header's
/// time.
fn seconds(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let (digits, is_negative) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let whole = digits.split_once('.').map_or(digits, |(whole, _)| whole);
    if whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // A number of only digits fails to parse only if it is too large.
    let whole = whole.parse().unwrap_or(i64::MAX);
    Some(if is_negative { -whole } else { whole })
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
        let records = b"30 mtime=1350244992.023960108\n16 path=a b=c\xc3\xbc\n13 size=1000\n";
        pax.read(records, 3, 0).unwrap();
        assert_eq!(pax.path.as_deref(), Some("a b=cü".as_bytes()));
        assert_eq!(pax.size, Some(1000));
        assert_eq!(pax.mtime, Some(1_350_244_992));
        pax.read(b"26 GNU.sparse.name=a/real\n", 1, 0).unwrap();
        assert_eq!(pax.sparse.as_deref(), Some(b"a/real".as_slice()));
        for bad in ["x", "5 a=b\n", "99 a=b\n", "0 a=b\n", "3 a=b\n", "9 size=-1\n", "7 a b c\n"] {
            let error = Pax::default().read(bad.as_bytes(), 9, 512).unwrap_err();
            assert!(error.message.contains("byte 512"), "{bad}: {error}");
        }
        let error = Pax::default().read(records, 2, 512).unwrap_err();
        assert!(error.message.contains("byte 512 has more than 2 records"), "{error}");
    }

    #[test]
    fn nuls_end_the_records_but_not_a_value() {
        let mut pax = Pax::default();
        let records = b"23 SCHILY.xattr.a=\0\0\0\0\n9 path=b\n\0\0\0\09 path=c\n";
        pax.read(records, 9, 0).unwrap();
        assert_eq!(pax.path.as_deref(), Some(b"b".as_slice()));
    }

    #[test]
    fn work_on_pax_records_grows_with_their_bytes_and_no_faster() {
        // The shortest records, long keys, long values, and keys that never end.
        let shapes: [(&str, bool); 4] = [
            ("4 =\n", true),
            ("14 keykeykey=\n", true),
            ("11 path=/b\n", true),
            ("9 abcdef\n", false),
        ];
        for (record, is_valid) in shapes {
            for records in [1_000, 10_000, 100_000] {
                let bytes = record.repeat(records);
                let mut scanner = Scanner::new(bytes.as_bytes());
                let read = Pax::default().read_from(&mut scanner, u64::MAX, 0);
                assert_eq!(read.is_ok(), is_valid, "{record}");
                assert!(scanner.examined <= 2 * bytes.len() as u64, "{record}: {records}");
            }
        }
        let one = format!("1048576 path={}\n", "x".repeat((1 << 20) - 14));
        let mut scanner = Scanner::new(one.as_bytes());
        Pax::default().read_from(&mut scanner, 1, 0).unwrap();
        assert!(scanner.examined <= 2 << 20);
    }

    #[test]
    fn seconds_lose_their_fraction_and_what_is_no_time_is_passed_over() {
        for (text, whole) in [
            ("7", Some(7)),
            ("7.99", Some(7)),
            ("-7.5", Some(-7)),
            ("-0.5", Some(0)),
            ("99999999999999999999.5", Some(i64::MAX)),
            ("-99999999999999999999", Some(-i64::MAX)),
            ("", None),
            ("-", None),
            (".5", None),
            ("1e9", None),
            ("+1", None),
            ("1-1", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), whole, "{text}");
        }
        assert_eq!(seconds(b"\xff"), None);
    }

    #[test]
    fn times_and_modes_of_headers_are_bounded_and_never_an_error() {
        let of = |mtime: &[u8; 12], mode: &[u8; 8]| {
            let mut block = [0; BLOCK];
            block[136..148].copy_from_slice(mtime);
            block[100..108].copy_from_slice(mode);
            let stat = stat(&block);
            (stat.mtime, stat.mode, stat.local)
        };
        assert_eq!(of(b"14524770402\0", b"0000755\0"), (1_700_000_002, 0o755, false));
        // With the type of the file, as old archivers wrote it.
        assert_eq!(of(b"00000000001\0", b"0104711\0"), (1, 0o4711, false));
        assert_eq!(of(b"77777777777\0", b"0000000\0"), (u32::MAX, 0, false));
        assert_eq!(of(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 8]), (256, 0o644, false));
        assert_eq!(of(&[0xff; 12], &[0xff; 8]), (0, 0o644, false));
        assert_eq!(of(b"rubbish     ", b"        "), (0, 0o644, false));
        assert_eq!(of(&[0; 12], &[0; 8]), (0, 0o644, false));
    }
}
