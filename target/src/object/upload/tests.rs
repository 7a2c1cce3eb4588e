//! Tests of multipart uploads, over a real store and a real folder backend.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::checksum::ChecksumKind;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::upload::{ChosenPart, UploadsRequest};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Completion, PartRequest, UploadOptions};
use crate::object::tests::{Bench, pattern, put};

pub(in crate::object) const LARGE: usize = 3 << 20;

pub(in crate::object) fn body(bytes: &[u8]) -> BoxStream<'static, Result<Bytes>> {
    let pieces: Vec<_> = bytes.chunks(100_000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
    futures::stream::iter(pieces).boxed()
}

fn part(bytes: &[u8]) -> PartRequest {
    PartRequest { body: body(bytes), len: Some(bytes.len() as u64), announced: None, at_end: None }
}

fn named(numbers: &[u32]) -> Completion {
    let parts = numbers.iter().map(|n| ChosenPart { number: *n, etag: String::new() });
    Completion { parts: parts.collect(), all: true, ..Completion::default() }
}

/// A bench and one object's uploads.
pub(in crate::object) struct Case {
    pub(in crate::object) bench: Bench,
    pub(in crate::object) info: BucketInfo,
}

impl Case {
    pub(in crate::object) async fn new(folder: bool) -> Self {
        let bench = Bench::new(256 << 20).await;
        let info = bench.bucket("b", folder, Freshness::default());
        Self { bench, info }
    }

    async fn begin(&self) -> String {
        let options = UploadOptions::default();
        self.bench.service.uploads().begin(&self.info, "o", options).await.unwrap()
    }

    async fn send(&self, id: &str, number: u32, bytes: &[u8]) {
        self.bench
            .service
            .uploads()
            .put_part(&self.info, "o", id, number, part(bytes))
            .await
            .unwrap();
    }

    async fn complete(&self, id: &str, numbers: &[u32]) -> Result<ObjectMeta> {
        self.bench.service.uploads().complete(&self.info, "o", id, named(numbers)).await
    }

    pub(in crate::object) async fn contents(&self) -> Bytes {
        self.bench.read(&self.info, "o").await.unwrap().0
    }

    pub(in crate::object) fn leftovers(&self) -> usize {
        let list = |dir: &str| {
            let dir = self.bench.dir.path().join("disk").join(dir);
            std::fs::read_dir(dir).map_or(0, |entries| entries.count())
        };
        list("uploads") + list("work")
    }
}

#[tokio::test]
async fn parts_in_any_order_become_one_object() {
    let case = Case::new(false).await;
    // In the log; in one file; in a file for each; and a mixture.
    let small = [10usize, 20, 30];
    let many = [50_000usize; 5];
    let large = [LARGE, LARGE, 100];
    let mixed = [100, LARGE, 0, 300_000, 300_000, LARGE];
    for (n, sizes) in [&small[..], &many, &large, &mixed].into_iter().enumerate() {
        let id = case.begin().await;
        let data: Vec<Vec<u8>> = sizes.iter().map(|len| pattern(*len)).collect();
        let numbers: Vec<u32> = (1..=data.len() as u32).collect();
        for number in numbers.iter().rev() {
            case.send(&id, *number, &data[*number as usize - 1]).await;
        }
        let meta = case.complete(&id, &numbers).await.unwrap();
        let whole = data.concat();
        assert_eq!(case.contents().await, whole, "case {n}");
        let mut hasher = ChecksumKind::Xxhash2.hasher();
        hasher.update(&whole);
        assert_eq!(meta.checksum, hasher.finish());
        assert_eq!(meta.version, (n + 1).to_string());
        assert_eq!(meta.parts.count(), sizes.len() as u64);
        assert_eq!(meta.parts.largest(), *sizes.iter().max().unwrap() as u64);
        assert_eq!(case.leftovers(), 0);
        // Some ranges cross the boundaries of parts.
        let range = ByteRange { start: 5, end: whole.len() as u64 - 3 };
        let found = case.bench.service.reads().get(&case.info, "o").await.unwrap();
        let parts: Vec<Bytes> =
            futures::TryStreamExt::try_collect(found.stream(range)).await.unwrap();
        assert_eq!(parts.concat(), whole[5..whole.len() - 3]);
    }
}

#[tokio::test]
async fn a_part_that_is_sent_again_replaces_the_first() {
    let case = Case::new(false).await;
    let id = case.begin().await;
    case.send(&id, 1, &pattern(LARGE)).await;
    case.send(&id, 1, b"again").await;
    let (_, parts) = case.bench.service.uploads().get(&case.info, "o", &id).await.unwrap();
    assert_eq!(parts.iter().map(|p| (p.number, p.size)).collect::<Vec<_>>(), [(1, 5)]);
    case.complete(&id, &[1]).await.unwrap();
    assert_eq!(case.contents().await, "again");
}

#[tokio::test]
async fn a_completion_must_name_what_was_uploaded() {
    let case = Case::new(false).await;
    let id = case.begin().await;
    let refused = async |numbers: &[u32]| case.complete(&id, numbers).await.unwrap_err();
    assert!(refused(&[]).await.message.contains("no chunks"));
    case.send(&id, 1, b"one").await;
    case.send(&id, 3, b"three").await;
    for (numbers, text) in [
        (&[][..], "requested 0 parts, have 2"),
        (&[1], "partial completion is not allowed: requested 1 parts, have 2"),
        (&[1, 1, 3], "requested 3 parts, have 2"),
        (&[1, 1], "part 1 is named twice"),
        (&[1, 2], "part 2 was not uploaded"),
    ] {
        let e = refused(numbers).await;
        assert!(e.message.contains(text), "{}", e.message);
        assert_eq!(e.code.status(), 400);
    }
    assert_eq!(case.bench.read(&case.info, "o").await.unwrap_err().code, ErrorCode::ObjectNotFound);
    // None of these errors did harm.
    case.complete(&id, &[3, 1]).await.unwrap();
    assert_eq!(case.contents().await, "onethree");
}

#[tokio::test]
async fn the_front_of_s3_may_leave_parts_out_and_gets_its_etag() {
    let case = Case::new(false).await;
    let service = &case.bench.service;
    let custom = [("colour".to_owned(), "red".to_owned())].into();
    let options = UploadOptions { custom: Some(custom), md5: true, ..UploadOptions::default() };
    let id = service.uploads().begin(&case.info, "o", options).await.unwrap();
    let hello = service.uploads().put_part(&case.info, "o", &id, 1, part(b"hello")).await.unwrap();
    assert_eq!(hello.md5, "5d41402abc4b2a76b9719d911017c592");
    service.uploads().put_part(&case.info, "o", &id, 2, part(b"unwanted")).await.unwrap();
    let wrong = ChosenPart { number: 1, etag: "0000".into() };
    let completion = Completion { parts: vec![wrong], ..Completion::default() };
    let e = service.uploads().complete(&case.info, "o", &id, completion).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::InvalidPart);
    let right = ChosenPart { number: 1, etag: format!("\"{}\"", hello.md5) };
    let completion = Completion { parts: vec![right], ..Completion::default() };
    let meta = service.uploads().complete(&case.info, "o", &id, completion).await.unwrap();
    assert_eq!(meta.etag, "62109206880d38a4010a98e11243924a-1");
    assert_eq!(meta.custom["colour"], "red");
    assert_eq!(case.contents().await, "hello");
}

#[tokio::test]
async fn a_condition_holds_while_the_object_is_made() {
    let case = Case::new(false).await;
    let service = &case.bench.service;
    service.writes().put(&case.info, "o", put(vec![Ok("there".into())])).await.unwrap();
    let id = case.begin().await;
    case.send(&id, 1, b"new").await;
    let only_if = || -> crate::object::OnlyIf {
        Box::new(|now| match now {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorCode::ObjectChanged, "it is there")),
        })
    };
    let completion = Completion { only_if: Some(only_if()), ..named(&[1]) };
    let e = service.uploads().complete(&case.info, "o", &id, completion).await.unwrap_err();
    assert_eq!((e.code, case.contents().await.as_ref()), (ErrorCode::ObjectChanged, &b"there"[..]));
    service.writes().delete(&case.info, "o").await.unwrap();
    let completion = Completion { only_if: Some(only_if()), ..named(&[1]) };
    service.uploads().complete(&case.info, "o", &id, completion).await.unwrap();
    assert_eq!(case.contents().await, "new");
}

#[tokio::test]
async fn what_is_over_is_not_found() {
    let case = Case::new(false).await;
    let service = &case.bench.service;
    let aborted = case.begin().await;
    case.send(&aborted, 1, &pattern(LARGE)).await;
    service.uploads().abort(&case.info, "o", &aborted).await.unwrap();
    assert_eq!(case.leftovers(), 0);
    let completed = case.begin().await;
    case.send(&completed, 1, b"x").await;
    case.complete(&completed, &[1]).await.unwrap();
    for id in [aborted.as_str(), &completed, "nobody", "../../x", ""] {
        let sent = service.uploads().put_part(&case.info, "o", id, 1, part(b"x")).await.map(drop);
        let done = case.complete(id, &[1]).await.map(drop);
        let gone = service.uploads().abort(&case.info, "o", id).await;
        let looked_up = service.uploads().get(&case.info, "o", id).await.map(drop);
        for result in [sent, done, gone, looked_up] {
            let e = result.unwrap_err();
            assert_eq!(e.code, ErrorCode::UploadNotFound);
            assert!(e.message.contains("does not exist"));
        }
    }
    // An id belongs to one object.
    let id = case.begin().await;
    let other =
        service.uploads().put_part(&case.info, "other", &id, 1, part(b"x")).await.unwrap_err();
    assert_eq!(other.code, ErrorCode::UploadNotFound);
}

#[tokio::test]
async fn a_part_that_breaks_off_leaves_nothing() {
    let case = Case::new(false).await;
    let id = case.begin().await;
    let service = &case.bench.service;
    let broken = vec![Ok(Bytes::from(pattern(LARGE))), Err(Error::invalid("gone"))];
    let request = PartRequest { body: futures::stream::iter(broken).boxed(), ..part(b"") };
    let request = PartRequest { len: None, ..request };
    assert!(service.uploads().put_part(&case.info, "o", &id, 1, request).await.is_err());
    let short = PartRequest { len: Some(9), ..part(b"x") };
    assert!(service.uploads().put_part(&case.info, "o", &id, 1, short).await.is_err());
    let sum = forebay_core::checksum::Checksum { kind: ChecksumKind::Md5, value: "00".into() };
    let wrong = PartRequest { announced: Some(sum), ..part(b"x") };
    let e = service.uploads().put_part(&case.info, "o", &id, 1, wrong).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::ChecksumMismatch);
    let (_, parts) = service.uploads().get(&case.info, "o", &id).await.unwrap();
    assert!(parts.is_empty());
    service.uploads().abort(&case.info, "o", &id).await.unwrap();
    assert_eq!(case.leftovers(), 0);
}

#[tokio::test]
async fn uploads_are_listed_by_name_and_go_with_their_bucket() {
    let case = Case::new(false).await;
    let service = &case.bench.service;
    let mut started = Vec::new();
    for name in ["b/2", "a", "b/1", "b/1"] {
        let id = service.uploads().begin(&case.info, name, UploadOptions::default()).await.unwrap();
        started.push((name.to_owned(), id));
    }
    started.sort();
    let page = async |prefix: &str, after: &str, after_id: Option<&str>, limit| {
        let request = UploadsRequest {
            info: case.info.clone().into(),
            prefix: prefix.into(),
            after: after.into(),
            after_id: after_id.map(str::to_owned),
            limit,
        };
        let page = service.uploads().page(&request).await.unwrap();
        let rows: Vec<_> = page.uploads.into_iter().map(|u| (u.name, u.id)).collect();
        (rows, page.more)
    };
    assert_eq!(page("", "", None, 10).await, (started.clone(), false));
    assert_eq!(page("", "", None, 4).await, (started.clone(), false));
    assert_eq!(page("", "", None, 2).await, (started[..2].to_vec(), true));
    assert_eq!(page("b/", "", None, 10).await.0, started[1..]);
    assert_eq!(page("", "b/1", None, 10).await.0, started[3..]);
    assert_eq!(page("", "b/1", Some(&started[1].1), 10).await.0, started[2..]);
    assert_eq!(service.bucket_ids().await.unwrap(), [case.info.id]);
    service.drop_bucket(case.info.id).await.unwrap();
    assert_eq!((page("", "", None, 10).await.0.len(), case.leftovers()), (0, 0));
}

#[tokio::test]
async fn an_upload_that_nobody_touches_is_given_up() {
    let case = Case::new(false).await;
    let service = &case.bench.service;
    let old = case.begin().await;
    let touched = case.begin().await;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let now = unix_ns();
    case.send(&touched, 1, b"x").await;
    assert_eq!(service.uploads().drop_idle(now).await.unwrap(), 1);
    assert!(service.uploads().get(&case.info, "o", &old).await.is_err());
    assert!(service.uploads().get(&case.info, "o", &touched).await.is_ok());
}

#[tokio::test]
async fn an_upload_outlives_a_restart() {
    let mut case = Case::new(false).await;
    let id = case.begin().await;
    case.send(&id, 2, &pattern(LARGE)).await;
    case.send(&id, 1, b"first").await;
    case.send(&id, 1, b"first again").await;
    case.send(&id, 3, &pattern(700_000)).await;
    // The end of the journal was lost, and a part with it.
    let dir = case.bench.dir.path().join("disk/uploads").join(&id);
    let journal = dir.join("journal");
    let mut text = std::fs::read(&journal).unwrap();
    text.extend_from_slice(b"{\"part\":{\"file\":7,\"pa");
    std::fs::write(&journal, text).unwrap();
    std::fs::write(dir.join("00000000000000ff"), b"torn").unwrap();
    case.bench.restart().await;
    let service = &case.bench.service;
    let (_, parts) = service.uploads().get(&case.info, "o", &id).await.unwrap();
    assert_eq!(parts.iter().map(|p| p.size).collect::<Vec<_>>(), [11, LARGE as u64, 700_000]);
    // Damage by a power cut to the last part is detected, and the part can be sent again.
    let mut files = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path());
    let last = files.find(|p| p.metadata().unwrap().len() == 700_000 + 11 * 4).unwrap();
    let mut bytes = std::fs::read(&last).unwrap();
    bytes[500_000] ^= 1;
    std::fs::write(&last, bytes).unwrap();
    let e = case.complete(&id, &[1, 2, 3]).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::InvalidPart, "{e}");
    case.send(&id, 3, &pattern(700_000)).await;
    case.complete(&id, &[1, 2, 3]).await.unwrap();
    let whole = [b"first again".as_slice(), &pattern(LARGE), &pattern(700_000)].concat();
    assert_eq!(case.contents().await, whole);
    assert_eq!(case.leftovers(), 0);
    case.bench.restart().await;
    assert_eq!(case.contents().await, whole);
}

/// A process may be killed between any two steps of creating and of dropping an upload.
#[tokio::test]
async fn what_a_kill_leaves_of_an_upload_that_nobody_knows_is_gone_after_a_restart() {
    let mut case = Case::new(false).await;
    let uploads = case.bench.dir.path().join("disk/uploads");
    for (id, journal) in [("0a", None), ("0b", Some("")), ("0c", Some("{\"upload\":{\"buck"))] {
        std::fs::create_dir_all(uploads.join(id)).unwrap();
        if let Some(text) = journal {
            std::fs::write(uploads.join(id).join("journal"), text).unwrap();
        }
    }
    case.bench.restart().await;
    let kept = case.begin().await;
    assert_eq!(case.leftovers(), 1, "only the one that began now");
    // Acknowledged parts are not thrown away because the journal is damaged.
    case.send(&kept, 1, b"part").await;
    std::fs::write(uploads.join(&kept).join("journal"), "damaged").unwrap();
    case.bench.restart().await;
    case.begin().await;
    assert_eq!(case.leftovers(), 2);
}

#[tokio::test]
async fn a_drop_that_breaks_off_leaves_an_upload_that_can_be_dropped() {
    let mut case = Case::new(false).await;
    let id = case.begin().await;
    case.send(&id, 1, b"part").await;
    // A file cannot be removed, as if the process had ended there.
    let dir = case.bench.dir.path().join("disk/uploads").join(&id);
    std::fs::create_dir(dir.join("0")).unwrap();
    case.bench.service.uploads().abort(&case.info, "o", &id).await.unwrap();
    std::fs::remove_dir(dir.join("0")).unwrap();
    case.bench.restart().await;
    case.bench.service.uploads().abort(&case.info, "o", &id).await.unwrap();
    assert_eq!(case.leftovers(), 0);
}

#[tokio::test]
async fn with_a_backend_the_object_is_there_when_the_upload_is_complete() {
    let case = Case::new(true).await;
    let id = case.begin().await;
    case.send(&id, 2, &pattern(LARGE)).await;
    case.send(&id, 1, &pattern(LARGE)).await;
    assert!(!case.bench.folder().join("o").exists());
    case.complete(&id, &[1, 2]).await.unwrap();
    let whole = [pattern(LARGE), pattern(LARGE)].concat();
    assert_eq!(std::fs::read(case.bench.folder().join("o")).unwrap(), whole);
    let (bytes, how) = case.bench.read(&case.info, "o").await.unwrap();
    assert_eq!((bytes.as_ref(), how), (whole.as_slice(), "hit"));
    assert_eq!(case.leftovers(), 0);
}
