//! Reads of less than a block: a block that was checked recently is not checked again, and damaged
//! bytes are never returned.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use forebay_node::fast_http::Piece;
use futures::TryStreamExt;

use super::format::BLOCK;
use super::tests::{open, owned, payload, the_file};
use super::*;
use crate::skip;

const LEN: usize = 5 * BLOCK as usize + 100;
const PART: ByteRange = ByteRange { start: 2 * BLOCK + 7, end: 2 * BLOCK + 900 };

async fn with_object(dir: &Path) -> (Store, Bytes) {
    let (store, data) = (open(dir).await.unwrap(), payload(LEN, 5));
    store.put(1, "o", data.clone(), owned()).await.unwrap();
    (store, data)
}

async fn reader(store: &Store) -> ObjectReader {
    store.open_object(1, "o").await.unwrap().unwrap()
}

fn cut(data: &Bytes, range: ByteRange) -> Bytes {
    data.slice(range.start as usize..range.end as usize)
}

#[tokio::test]
async fn a_part_of_a_block_that_was_checked_is_read_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, data) = with_object(dir.path()).await;
    let first = reader(&store).await;
    assert!(first.read_recent(PART).is_none(), "nobody checked it");
    assert_eq!(first.read(PART).await.unwrap(), cut(&data, PART));
    for range in [
        PART,
        ByteRange { start: 2 * BLOCK, end: 2 * BLOCK + 1 },
        ByteRange { start: 3 * BLOCK - 1, end: 3 * BLOCK },
    ] {
        assert_eq!(reader(&store).await.read_recent(range).unwrap(), cut(&data, range));
    }
    for range in [
        ByteRange { start: 3 * BLOCK - 1, end: 3 * BLOCK + 1 },
        ByteRange { start: 2 * BLOCK - 1, end: 2 * BLOCK + 1 },
        ByteRange { start: 2 * BLOCK, end: 3 * BLOCK },
        ByteRange { start: 2 * BLOCK, end: 2 * BLOCK },
        ByteRange { start: LEN as u64 - 1, end: LEN as u64 + 1 },
    ] {
        assert!(first.read_recent(range).is_none(), "{range:?}");
    }
}

#[tokio::test]
async fn a_read_of_many_blocks_checks_all_of_them_for_later() {
    let dir = tempfile::tempdir().unwrap();
    let (store, data) = with_object(dir.path()).await;
    let most = ByteRange { start: 3, end: 4 * BLOCK };
    assert_eq!(reader(&store).await.read(most).await.unwrap(), cut(&data, most));
    let opened = reader(&store).await;
    let across = ByteRange { start: 2 * BLOCK - 50, end: 2 * BLOCK + 50 };
    assert_eq!(opened.read_recent(across).unwrap(), cut(&data, across));
    assert!(opened.read_recent(ByteRange { start: 4 * BLOCK, end: 4 * BLOCK + 9 }).is_none());
}

#[tokio::test]
async fn a_file_that_was_changed_is_checked_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, data) = with_object(dir.path()).await;
    reader(&store).await.read(PART).await.unwrap();
    let path = the_file(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    // File systems keep times in steps of some milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(30));
    bytes[PART.start as usize] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let changed = reader(&store).await;
    assert!(changed.read_recent(PART).is_none());
    assert!(is_corrupt(&changed.read(PART).await.unwrap_err()));
    assert!(changed.read_recent(PART).is_none(), "a failed check is none");
    bytes[PART.start as usize] ^= 4;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(reader(&store).await.read(PART).await.unwrap(), cut(&data, PART));
}

#[tokio::test]
async fn an_object_that_was_written_again_is_checked_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = with_object(dir.path()).await;
    reader(&store).await.read(PART).await.unwrap();
    let data = payload(LEN, 6);
    store.put(1, "o", data.clone(), owned()).await.unwrap();
    let opened = reader(&store).await;
    assert!(opened.read_recent(PART).is_none());
    assert_eq!(opened.read(PART).await.unwrap(), cut(&data, PART));
}

#[tokio::test]
async fn what_left_the_page_cache_is_checked_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, data) = with_object(dir.path()).await;
    let file = fs::File::open(the_file(dir.path())).unwrap();
    file.sync_all().unwrap();
    let opened = reader(&store).await;
    opened.read(PART).await.unwrap();
    page_cache::forget_cached(&file);
    if opened.read_recent(PART).is_some() {
        return skip::skipped("the temporary folder is on a file system in memory");
    }
    // When another process brings the pages back, the check before does not count any more.
    fs::read(the_file(dir.path())).unwrap();
    assert!(opened.read_recent(PART).is_none());
    assert_eq!(opened.read(PART).await.unwrap(), cut(&data, PART));
}

/// The bytes of a range as a connection gets them, and how many of them were sent unread.
async fn sent(reader: &ObjectReader, range: ByteRange) -> (Vec<u8>, u64) {
    let pieces: Vec<Piece> = reader.pieces(range).try_collect().await.unwrap();
    let (mut all, mut unchecked) = (Vec::new(), 0);
    for piece in pieces {
        let len = piece.len();
        match piece {
            Piece::Bytes(bytes) => all.extend_from_slice(&bytes),
            Piece::File(part) => {
                let file = fs::File::from(
                    std::os::fd::AsFd::as_fd(&part.file).try_clone_to_owned().unwrap(),
                );
                let mut bytes = vec![0; len as usize];
                file.read_exact_at(&mut bytes, part.start).unwrap();
                all.extend(bytes);
                unchecked += len;
            }
        }
    }
    (all, unchecked)
}

#[tokio::test]
async fn what_was_checked_a_moment_ago_is_sent_as_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let (store, data) = with_object(dir.path()).await;
    let whole = ByteRange::whole(LEN as u64);
    let first = reader(&store).await;
    let (all, unchecked) = sent(&first, ByteRange { start: 5, end: 4 * BLOCK }).await;
    assert!(all == data[5..4 * BLOCK as usize] && unchecked == 0, "nobody checked it");
    let (all, unchecked) = sent(&reader(&store).await, whole).await;
    assert!(all == data);
    if unchecked == 0 {
        return skip::skipped("this kernel does not report what is cached");
    }
    assert_eq!(unchecked, 4 * BLOCK, "the rest was never read");
    for range in [whole, PART, ByteRange { start: 3, end: LEN as u64 - 1 }] {
        let (all, unchecked) = sent(&first, range).await;
        assert!(all == cut(&data, range) && unchecked == range.len());
    }
    let file = fs::File::open(the_file(dir.path())).unwrap();
    file.sync_all().unwrap();
    page_cache::forget_cached(&file);
    let (all, unchecked) = sent(&first, whole).await;
    assert!(all == data);
    // A file system in memory drops nothing.
    assert!(unchecked == 0 || unchecked == whole.len(), "{unchecked}");
}

#[tokio::test]
async fn a_changed_file_is_not_sent_as_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let (store, data) = with_object(dir.path()).await;
    let whole = ByteRange::whole(LEN as u64);
    sent(&reader(&store).await, whole).await;
    let path = the_file(dir.path());
    std::thread::sleep(std::time::Duration::from_millis(30));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[data[9] ^ 1], 9).unwrap();
    let pieces = reader(&store).await.pieces(whole).try_collect::<Vec<Piece>>().await;
    assert!(is_corrupt(&pieces.err().unwrap()));
}
