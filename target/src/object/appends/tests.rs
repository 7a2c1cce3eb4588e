//! Tests of appends, over a real store and a real folder backend.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use forebay_core::checksum::ChecksumKind;
use forebay_core::{Error, ErrorCode};
use futures::StreamExt;

use crate::object::tests::{pattern, put};
use crate::object::upload::tests::{Case, LARGE, body};

#[tokio::test]
async fn nobody_sees_what_is_appended_before_it_is_flushed() {
    for folder in [false, true] {
        for old in [0, 1000, LARGE] {
            let case = Case::new(folder).await;
            let service = &case.bench.service;
            let before = pattern(old);
            if old > 0 {
                let first = put(vec![Ok(before.clone().into())]);
                service.writes().put(&case.info, "o", first).await.unwrap();
            }
            let handle =
                service.appends().append(&case.info, "o", None, body(b"one ")).await.unwrap();
            let again =
                service.appends().append(&case.info, "o", Some(&handle), body(&pattern(300_000)));
            assert_eq!(again.await.unwrap(), handle);
            match old {
                0 => assert!(case.bench.read(&case.info, "o").await.is_err()),
                _ => assert_eq!(case.contents().await, before),
            }
            let meta = service.appends().flush(&case.info, "o", &handle, None).await.unwrap();
            let whole = [before.as_slice(), b"one ", &pattern(300_000)].concat();
            assert_eq!(case.contents().await, whole, "folder {folder}, {old} bytes before");
            let mut hasher = ChecksumKind::Xxhash2.hasher();
            hasher.update(&whole);
            assert_eq!((meta.size, meta.checksum), (whole.len() as u64, hasher.finish()));
            assert_eq!(case.leftovers(), 0);
            let e = service.appends().flush(&case.info, "o", &handle, None).await.unwrap_err();
            assert_eq!(e.code, ErrorCode::UploadNotFound);
        }
    }
}

#[tokio::test]
async fn two_who_append_lose_nothing() {
    for old in [0, LARGE] {
        let case = &Case::new(false).await;
        let service = &case.bench.service;
        let first = put(vec![Ok(pattern(old).into())]);
        service.writes().put(&case.info, "o", first).await.unwrap();
        let a = service.appends().append(&case.info, "o", None, body(b"aaa")).await.unwrap();
        let b = service.appends().append(&case.info, "o", None, body(b"bbb")).await.unwrap();
        let flush = |handle: String| async move {
            service.appends().flush(&case.info, "o", &handle, None).await.unwrap();
        };
        tokio::join!(flush(a), flush(b));
        let all = case.contents().await;
        let tail = &all[old..];
        assert!(tail == b"aaabbb" || tail == b"bbbaaa", "{tail:?}");
    }
}

#[tokio::test]
async fn an_append_that_breaks_off_takes_its_handle_along() {
    let case = Case::new(false).await;
    let service = &case.bench.service;
    let handle = service.appends().append(&case.info, "o", None, body(b"whole")).await.unwrap();
    let broken = vec![Ok(Bytes::from("half")), Err(Error::invalid("gone"))];
    let broken = futures::stream::iter(broken).boxed();
    assert!(service.appends().append(&case.info, "o", Some(&handle), broken).await.is_err());
    let e = service.appends().flush(&case.info, "o", &handle, None).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::UploadNotFound);
    assert_eq!(case.leftovers(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_disk_left_service_is_refused_once_and_frees_what_it_held() {
    for old in [0, LARGE] {
        let case = Case::new(false).await;
        let service = &case.bench.service;
        if old > 0 {
            let first = put(vec![Ok(pattern(old).into())]);
            service.writes().put(&case.info, "o", first).await.unwrap();
        }
        let (watched, token) =
            (service.store().clone(), tokio_util::sync::CancellationToken::new());
        let (_end, tended) = (token.clone().drop_guard(), service.clone());
        tokio::spawn(async move { watched.watch_disks(&token).await });
        let mut handles = Vec::new();
        for _ in 0..3 {
            let handle = service.appends().append(&case.info, "o", None, body(&pattern(300_000)));
            handles.push(handle.await.unwrap());
        }
        let mut turns = service.disk_turns();
        turns.mark_unchanged();
        forebay_store::testing::fail_disk(&service.store().volumes()[0]);
        let back = async {
            while service.store().volumes().is_empty()
                || !forebay_store::testing::accepts_writes(&service.store().volumes()[0])
            {
                turns.changed().await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(5), back).await.expect("back in use");
        tended.appends().void_those_of_left_disks();

        let more =
            service.appends().append(&case.info, "o", Some(&handles[0]), body(b"more")).await;
        let flushed = service.appends().flush(&case.info, "o", &handles[1], None).await;
        for e in [more.unwrap_err(), flushed.unwrap_err()] {
            assert_eq!((e.code, e.retry_after_s.is_some()), (ErrorCode::Unavailable, true), "{e}");
        }
        for handle in &handles[..2] {
            let e = service.appends().flush(&case.info, "o", handle, None).await.unwrap_err();
            assert_eq!(e.code, ErrorCode::UploadNotFound, "{e}");
        }
        // A new one does not repeat the old one's content.
        let handle = service.appends().append(&case.info, "o", None, body(b"again")).await.unwrap();
        service.appends().flush(&case.info, "o", &handle, None).await.unwrap();
        assert_eq!(case.contents().await, [pattern(old).as_slice(), b"again"].concat());
    }
}
