//! Completion of an upload: its parts become one object; large parts are not copied.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_clouds::{BodyStream, OpenBody};
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::checksum::ChecksumKind;
use forebay_core::object::{ObjectMeta, PartSizes};
use forebay_core::size::ByteRange;
use forebay_core::upload::Part;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::{Piece, Record, RecordMeta, Store, UploadDir, WorkFile, is_corrupt};
use futures::{StreamExt, TryStreamExt};

use super::registry::Live;
use super::{ChosenPart, Completion, Uploads};
use crate::object::attrs::ObjectAttrs;
use crate::object::learn::Learner;
use crate::object::ownership::Ownership;
use crate::object::writes::{Hashes, NewContent};

/// Smaller parts are merged: one file each would make reads slow.
const SMALL_PART: u64 = 1 << 20;
/// An object up to this size is stored in the log.
const SMALL_OBJECT: u64 = 128 << 10;
/// Approximate maximum number of files per object: every reader opens all of them.
const MOST_FILES: u64 = 1000;

/// A chosen part, and its file.
#[derive(Clone)]
struct Chosen {
    part: Part,
    file: u64,
}

/// The bytes of the object, all verified against their checksums.
enum Whole {
    Memory(Bytes),
    Pieces(Vec<Piece>),
}

/// The parts of an object, for its write.
struct JoinedParts<'a> {
    uploads: &'a Uploads,
    live: &'a Live,
    info: &'a BucketInfo,
    chosen: Arc<[Chosen]>,
    whole: Whole,
}

impl Uploads {
    /// Makes an object of the parts, at its backend too, and ends the upload. After an error the
    /// upload still exists, unless its disk failed. Continues if the future is dropped, so that a
    /// client's disconnect does not undo it.
    pub(crate) async fn complete(
        &self,
        info: &BucketInfo,
        name: &str,
        id: &str,
        completion: Completion,
    ) -> Result<ObjectMeta> {
        info.check_access(BucketChange::Put)?;
        let live = self.find(info, name, id).await?;
        let (uploads, info) = (self.clone(), info.clone());
        let done = self.local().lifecycle.spawn(async move {
            let _turn = live.turn.write().await;
            live.check_open(&info)?;
            uploads.make_object(&live, &info, completion).await
        });
        done.await.unwrap_or_else(|e| Err(Error::internal(format!("completion failed: {e}"))))
    }

    async fn make_object(
        &self,
        live: &Arc<Live>,
        info: &BucketInfo,
        completion: Completion,
    ) -> Result<ObjectMeta> {
        let name = live.upload.name.as_str();
        let ownership = Ownership::of(self.local(), info, name);
        let chosen = choose(live, &completion)?;
        let parts: Vec<Part> = chosen.iter().map(|c| c.part.clone()).collect();
        let mut hashes = Hashes::new(info.checksum, None, false);
        let mut learner = Learner::new(name);
        let whole = self.read_parts(live, info, &chosen, |bytes| {
            hashes.update(bytes);
            learner.update(bytes);
        });
        let whole = whole.await?;
        let mut attrs = ObjectAttrs {
            checksum: hashes.finish(name)?.checksum,
            etag: if live.upload.md5 { s3_etag(&parts)? } else { String::new() },
            custom: live.upload.custom.clone(),
            parts: parts.iter().map(|p| p.size).collect::<PartSizes>(),
        };
        if let Some(at_end) = completion.at_end {
            attrs.add(at_end(&parts)?);
        }

        let content = JoinedParts { uploads: self, live, info, chosen: chosen.into(), whole };
        let record = self.writes().write(&ownership, content, attrs, completion.only_if).await?;
        self.local().keep_learned(learner, &record);
        Ok(record.object_meta())
    }

    /// Reads all bytes once, in order, and decides which of them are rewritten: those of small
    /// parts, and of so many parts that the object would have too many files.
    async fn read_parts(
        &self,
        live: &Arc<Live>,
        info: &BucketInfo,
        chosen: &[Chosen],
        mut see: impl FnMut(&Bytes) + Send,
    ) -> Result<Whole> {
        let total: u64 = chosen.iter().map(|c| c.part.size).sum();
        if total <= SMALL_OBJECT {
            let mut all = BytesMut::with_capacity(total as usize);
            for part in chosen {
                let mut stream = self.part_stream(live, part).await?;
                while let Some(bytes) = stream.try_next().await? {
                    see(&bytes);
                    all.extend_from_slice(&bytes);
                }
            }
            return Ok(Whole::Memory(all.freeze()));
        }
        let filled: Vec<Chosen> = chosen.iter().filter(|c| c.part.size > 0).cloned().collect();
        let mut pieces = Vec::new();
        for group in groups(&filled, SMALL_PART.max(total.div_ceil(MOST_FILES))) {
            if let [only] = group {
                let mut stream = self.part_stream(live, only).await?;
                while let Some(bytes) = stream.try_next().await? {
                    see(&bytes);
                }
                pieces.push(Piece::Kept(only.file, only.part.size));
                continue;
            }
            let size = group.iter().map(|c| c.part.size).sum();
            let (id, name) = (info.id, live.upload.name.as_str());
            let started = self.store().begin_upload_part(&live.dir, id, name, Some(size));
            let mut work: WorkFile = started.await?;
            for part in group {
                let mut stream = self.part_stream(live, part).await?;
                while let Some(bytes) = stream.try_next().await? {
                    see(&bytes);
                    work.write(bytes).await?;
                }
            }
            pieces.push(Piece::Fresh(work));
        }
        Ok(Whole::Pieces(pieces))
    }

    /// The bytes of a part. A damaged part (after a power cut before its sync) is dropped, so that
    /// it can be sent again.
    async fn part_stream(&self, live: &Arc<Live>, chosen: &Chosen) -> Result<BodyStream> {
        let (live, number, size) = (live.clone(), chosen.part.number, chosen.part.size);
        let reader = self.store().read_upload_part(&live.dir, chosen.file, size).await?;
        let damaged = move |e: Error| {
            if !is_corrupt(&e) {
                return e;
            }
            live.forget(number);
            invalid(number, "was lost: send it again")
        };
        Ok(reader.stream(ByteRange::whole(size)).map_err(damaged).boxed())
    }
}

impl NewContent for JoinedParts<'_> {
    fn size(&self) -> u64 {
        self.chosen.iter().map(|c| c.part.size).sum()
    }

    fn open(&self) -> OpenBody {
        reopen(self.uploads.store().clone(), self.live.dir.clone(), self.chosen.clone())
    }

    /// Commits the object, and ends the upload unless nothing of it was changed.
    async fn commit(self, meta: RecordMeta) -> Result<Record> {
        let Self { uploads, live, info, whole, .. } = self;
        let (store, name) = (uploads.store(), live.upload.name.as_str());
        let record = match whole {
            Whole::Memory(bytes) => store.put(info.id, name, bytes, meta).await,
            Whole::Pieces(pieces) => {
                // From here on the parts belong to the object.
                live.end();
                store.commit_upload(&live.dir, info.id, name, pieces, meta).await
            }
        };
        if record.is_ok() || !live.is_open() {
            uploads.end(live).await;
        }
        record
    }
}

/// The parts that a client names, in ascending order, if they match the uploaded ones.
fn choose(live: &Live, completion: &Completion) -> Result<Vec<Chosen>> {
    let there = live.parts().len();
    let upload = format!("upload \"{}\"", live.upload.id);
    if there == 0 {
        return Err(Error::new(ErrorCode::InvalidPart, format!("{upload}: no chunks")));
    }
    let mut named: Vec<&ChosenPart> = completion.parts.iter().collect();
    if completion.all && named.len() != there {
        return Err(Error::new(
            ErrorCode::InvalidPart,
            format!(
                "{upload}: partial completion is not allowed: requested {} parts, have {there}",
                named.len()
            ),
        ));
    }
    if named.is_empty() {
        return Err(Error::invalid(format!("{upload}: no parts are named")));
    }
    named.sort_by_key(|p| p.number);
    if let Some(twice) = named.windows(2).find(|w| w[0].number == w[1].number) {
        return Err(invalid(twice[0].number, "is named twice"));
    }
    let found = named.into_iter().map(|wanted| {
        let (part, file) =
            live.part(wanted.number).ok_or_else(|| invalid(wanted.number, "was not uploaded"))?;
        let etag = wanted.etag.trim_matches('"');
        if !etag.is_empty() && live.upload.md5 && !etag.eq_ignore_ascii_case(&part.md5) {
            return Err(invalid(wanted.number, "has another ETag"));
        }
        Ok(Chosen { part, file })
    });
    found.collect()
}

fn invalid(number: u32, what: &str) -> Error {
    Error::new(ErrorCode::InvalidPart, format!("part {number} {what}"))
}

/// Splits parts into groups of neighbours with at least `least` bytes; the last group may have
/// less.
fn groups(parts: &[Chosen], least: u64) -> Vec<&[Chosen]> {
    let mut groups = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (n, chosen) in parts.iter().enumerate() {
        // A large part stays as it is; the parts collected before it are a group of their own.
        if chosen.part.size >= least && bytes > 0 && first < n {
            groups.push(&parts[first..n]);
            (first, bytes) = (n, 0);
        }
        bytes += chosen.part.size;
        if bytes >= least {
            groups.push(&parts[first..=n]);
            (first, bytes) = (n + 1, 0);
        }
    }
    if first < parts.len() {
        groups.push(&parts[first..]);
    }
    groups
}

/// S3's ETag of an object in parts: the MD5 of the MD5s of the parts, and their number.
fn s3_etag(parts: &[Part]) -> Result<String> {
    let mut all = ChecksumKind::Md5.hasher();
    for part in parts {
        let md5 = hex::decode(&part.md5);
        all.update(&md5.map_err(|e| Error::internal(format!("MD5 of a part: {e}")))?);
    }
    let md5 = all.finish().map(|sum| sum.value).unwrap_or_default();
    Ok(format!("{md5}-{}", parts.len()))
}

/// Reads the object from its parts, from any offset and as often as a backend needs.
fn reopen(store: Store, dir: UploadDir, chosen: Arc<[Chosen]>) -> OpenBody {
    Arc::new(move |range| {
        let mut base = 0;
        let mut cuts = Vec::new();
        for part in chosen.iter() {
            let start = range.start.clamp(base, base + part.part.size) - base;
            let end = range.end.clamp(base, base + part.part.size) - base;
            if start < end {
                cuts.push((part.file, part.part.size, ByteRange { start, end }));
            }
            base += part.part.size;
        }
        let (store, dir) = (store.clone(), dir.clone());
        let opened = futures::stream::iter(cuts).then(move |(file, size, cut)| {
            let (store, dir) = (store.clone(), dir.clone());
            async move { store.read_upload_part(&dir, file, size).await.map(|r| r.stream(cut)) }
        });
        opened.try_flatten().boxed()
    })
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn parts(sizes: &[u64]) -> Vec<Chosen> {
        let part = |size: &u64| Chosen { part: Part { size: *size, ..Part::default() }, file: 0 };
        sizes.iter().map(part).collect()
    }

    #[test]
    fn small_parts_are_written_together_and_large_ones_stay_as_they_are() {
        let cut = |sizes: &[u64]| -> Vec<usize> {
            groups(&parts(sizes), 10).iter().map(|g| g.len()).collect()
        };
        assert_eq!(cut(&[10, 11, 12]), [1, 1, 1]);
        assert_eq!(cut(&[10, 11, 2]), [1, 1, 1]);
        assert_eq!(cut(&[1; 25]), [10, 10, 5]);
        assert_eq!(cut(&[1, 1, 50, 1, 50]), [2, 1, 1, 1]);
    }

    #[test]
    fn the_etag_is_that_of_s3() {
        let part = |md5: &str| Part { md5: md5.into(), ..Part::default() };
        let etag = s3_etag(&[part("5d41402abc4b2a76b9719d911017c592")]);
        assert_eq!(etag.as_deref(), Ok("62109206880d38a4010a98e11243924a-1"));
    }
}
