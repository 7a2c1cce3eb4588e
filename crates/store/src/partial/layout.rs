//! The layout of partial objects; no other module knows it.
//!
//! ```text
//! DISK/partial/<id>      the object's payload, each byte at its own place; a sparse file
//! DISK/partial/<id>.map  head | entry | entry | ...
//!
//! head:   magic "FBPARTAL", format u16, granule shift u8, 0 u8, length of the head u32,
//!         id u64, bucket id u64, size u64, mtime u64 (ns), begun u64 (ns),
//!         name, version, etag, MD5 (each: length u32, bytes), pairs u32, key and value of each,
//!         CRC-32C u32 of all before it
//! entry:  granule u32, CRC-32C u32 of each of its 64 KiB blocks (0 where it has fewer),
//!         CRC-32C u32 of the id and all before it
//! ```
//! Numbers are little-endian. The head never changes. A granule's bytes are written first, then its
//! entry at the end of the map: a granule torn by a crash is missing. Of several entries of one
//! granule the last counts.

use std::collections::BTreeMap;

use forebay_core::checksum::crc32c;
use forebay_core::{Error, ErrorCode, Result};

use crate::format::BLOCK;

/// Bytes of a granule, the unit of fetching and storing.
///
/// It is small, so that random reads fetch little more than they need: a range of 1 MiB touches
/// five granules at most (a quarter more), one of 512 KiB or more at most twice its bytes. One
/// request fetches all missing neighbours, so small granules do not mean small requests.
pub const GRANULE: u64 = 1 << GRANULE_SHIFT;
const GRANULE_SHIFT: u8 = 18;
/// Blocks of one granule.
const SUMS: usize = (GRANULE / BLOCK) as usize;
/// Bytes of an entry.
pub(crate) const ENTRY: u64 = 8 + 4 * SUMS as u64;
/// Longest head: bounds what a reader of a damaged file allocates.
pub(crate) const MAX_HEAD: usize = 256 << 10;
/// The head up to its length.
pub(crate) const HEAD_START: usize = 16;

const FORMAT: u16 = 1;
const MAGIC: &[u8; 8] = b"FBPARTAL";

/// The metadata of a partial object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialHead {
    pub bucket_id: u64,
    pub name: String,
    /// Bytes of the whole object.
    pub size: u64,
    /// The backend's version. All granules are of this version.
    pub version: String,
    pub etag: String,
    /// MD5 of the whole object in lower-case hexadecimal, if the backend guarantees it.
    pub md5: Option<String>,
    pub mtime_ns: u64,
    /// When the partial object was created.
    pub made_ns: u64,
    pub custom: BTreeMap<String, String>,
}

impl PartialHead {
    /// Number of granules.
    pub fn granules(&self) -> u32 {
        self.size.div_ceil(GRANULE) as u32
    }

    /// Bytes of a granule; only the last may be short.
    pub fn granule_len(&self, granule: u32) -> u64 {
        let start = u64::from(granule) * GRANULE;
        self.size.saturating_sub(start).min(GRANULE)
    }
}

/// CRC-32C of each block of a granule.
pub(crate) type Sums = [u32; SUMS];

/// The sums of a granule's bytes.
pub(crate) fn sums(bytes: &[u8]) -> Sums {
    let mut sums = Sums::default();
    for (sum, block) in sums.iter_mut().zip(bytes.chunks(BLOCK as usize)) {
        *sum = crc32c(block);
    }
    sums
}

pub(crate) fn encode_head(id: u64, head: &PartialHead) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(256 + head.name.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[GRANULE_SHIFT, 0, 0, 0, 0, 0]);
    for number in [id, head.bucket_id, head.size, head.mtime_ns, head.made_ns] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let mut text = |text: &str| {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    text(&head.name);
    text(&head.version);
    text(&head.etag);
    text(head.md5.as_deref().unwrap_or_default());
    out.extend_from_slice(&(head.custom.len() as u32).to_le_bytes());
    for part in head.custom.iter().flat_map(|(k, v)| [k, v]) {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    let len = out.len() + 4;
    if len > MAX_HEAD {
        return Err(Error::invalid(format!(
            "metadata of object \"{}\" takes {len} bytes, the limit is {MAX_HEAD}",
            head.name
        )));
    }
    out[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(out)
}

/// Length of the head by its first [`HEAD_START`] bytes.
pub(crate) fn head_len(start: &[u8; HEAD_START]) -> Result<usize> {
    let [magic @ .., _, _, _, _] = start;
    if !magic.starts_with(MAGIC) {
        return Err(damaged("it has no magic"));
    }
    if u16::from_le_bytes([start[8], start[9]]) != FORMAT || start[10] != GRANULE_SHIFT {
        return Err(damaged("its format is unknown"));
    }
    let len = u32::from_le_bytes([start[12], start[13], start[14], start[15]]) as usize;
    if !(HEAD_START + 4..=MAX_HEAD).contains(&len) {
        return Err(damaged("its head has an impossible length"));
    }
    Ok(len)
}

/// Reads what [`encode_head`] wrote; the id first.
pub(crate) fn decode_head(bytes: &[u8]) -> Result<(u64, PartialHead)> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(cut_off)?;
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(damaged("its head fails its checksum"));
    }
    let mut r = Reader(body.get(HEAD_START..).ok_or_else(cut_off)?);
    let (id, bucket_id, size) = (r.u64()?, r.u64()?, r.u64()?);
    let (mtime_ns, made_ns) = (r.u64()?, r.u64()?);
    let (name, version, etag, md5) = (r.text()?, r.text()?, r.text()?, r.text()?);
    let pairs = r.u32()?;
    let custom = (0..pairs).map(|_| Ok((r.text()?, r.text()?))).collect::<Result<_>>()?;
    let md5 = (!md5.is_empty()).then_some(md5);
    if size.div_ceil(GRANULE) > u64::from(u32::MAX) {
        return Err(damaged("it has too many granules"));
    }
    Ok((id, PartialHead { bucket_id, name, size, version, etag, md5, mtime_ns, made_ns, custom }))
}

pub(crate) fn encode_entry(id: u64, granule: u32, sums: &Sums) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENTRY as usize + 8);
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&granule.to_le_bytes());
    for sum in sums {
        out.extend_from_slice(&sum.to_le_bytes());
    }
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.drain(..8);
    out
}

/// Reads what [`encode_entry`] wrote for the same id. `None`: it is torn, or damaged.
pub(crate) fn decode_entry(id: u64, bytes: &[u8]) -> Option<(u32, Sums)> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    let mut checked = Vec::with_capacity(ENTRY as usize + 8);
    checked.extend_from_slice(&id.to_le_bytes());
    checked.extend_from_slice(body);
    if body.len() + 4 != ENTRY as usize || crc32c(&checked) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut r = Reader(body);
    let granule = r.u32().ok()?;
    let mut sums = Sums::default();
    for sum in &mut sums {
        *sum = r.u32().ok()?;
    }
    Some((granule, sums))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take(4)?.try_into().map(u32::from_le_bytes).map_err(|_| cut_off())
    }

    fn u64(&mut self) -> Result<u64> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| cut_off())
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u32()? as usize;
        let text = std::str::from_utf8(self.take(len)?);
        text.map(str::to_owned).map_err(|_| damaged("a text in it is not UTF-8"))
    }
}

fn cut_off() -> Error {
    damaged("it is cut off")
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorCode::Corrupt, format!("what is kept of an object in part is damaged: {what}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn head() -> PartialHead {
        PartialHead {
            bucket_id: 7,
            name: "a/größe.bin".into(),
            size: (10 << 30) + 3,
            version: "v".into(),
            etag: "e".into(),
            md5: Some("00ff".into()),
            mtime_ns: 99,
            made_ns: 100,
            custom: BTreeMap::from([("k".into(), "v".into())]),
        }
    }

    #[test]
    fn a_head_reads_as_written_and_no_flipped_byte_passes() {
        let bytes = encode_head(5, &head()).unwrap();
        assert_eq!(head_len(bytes.first_chunk().unwrap()).unwrap(), bytes.len());
        assert_eq!(decode_head(&bytes).unwrap(), (5, head()));
        for n in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[n] ^= 1;
            assert!(decode_head(&bad).is_err(), "byte {n}");
            assert!(decode_head(&bytes[..n]).is_err(), "cut to {n}");
        }
    }

    #[test]
    fn an_entry_reads_as_written_and_only_in_its_own_map() {
        let sums = sums(&vec![3; GRANULE as usize - 1]);
        let bytes = encode_entry(5, 40, &sums);
        assert_eq!(bytes.len() as u64, ENTRY);
        assert_eq!(decode_entry(5, &bytes), Some((40, sums)));
        assert_eq!(decode_entry(6, &bytes), None);
        assert_eq!(decode_entry(5, &[0; ENTRY as usize]), None);
        for n in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[n] ^= 128;
            assert_eq!(decode_entry(5, &bad), None);
            assert_eq!(decode_entry(5, &bytes[..n]), None);
        }
    }

    #[test]
    fn the_last_granule_is_short() {
        let head = head();
        assert_eq!(head.granules(), 40 * 1024 + 1);
        assert_eq!(head.granule_len(0), GRANULE);
        assert_eq!(head.granule_len(40 * 1024), 3);
        assert_eq!(PartialHead::default().granules(), 0);
    }
}
