//! The stream written and read again, whole, cut and damaged.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use super::decoder::SHARED;
use super::encoder::COPIED;
use super::*;
use crate::error::{ErrorCode, Result};
use crate::timing::StageTimes;

fn encode(rows: &[Row], every: usize) -> Vec<u8> {
    let mut out = Encoder::header(9).to_vec();
    let mut e = Encoder::default();
    for (i, row) in rows.iter().enumerate() {
        e.push(row.clone());
        if i % every == 0 {
            e.flush().iter().for_each(|b| out.extend_from_slice(b));
        }
    }
    e.flush().iter().for_each(|b| out.extend_from_slice(b));
    out.extend_from_slice(&e.end());
    out
}

fn decode(bytes: &[u8], step: usize) -> Result<(Vec<Row>, bool)> {
    let mut d = Decoder::new();
    let mut rows = VecDeque::new();
    for chunk in bytes.chunks(step) {
        d.decode(chunk, &mut rows)?;
    }
    Ok((rows.into(), d.is_complete()))
}

fn any_row() -> impl Strategy<Value = Row> {
    let numbers = (any::<u32>(), 0u16..600, any::<bool>(), any::<u64>());
    (numbers, prop::collection::vec(any::<u8>(), 0..200)).prop_map(
        |((index, status, more, total), p)| Row { index, status, more, total, payload: p.into() },
    )
}

proptest! {
    #[test]
    fn what_was_written_is_read_however_it_is_cut(
        rows in prop::collection::vec(any_row(), 0..40), every in 1usize..9, step in 1usize..97
    ) {
        let (back, complete) = decode(&encode(&rows, every), step).unwrap();
        prop_assert!(complete);
        prop_assert_eq!(back, rows);
    }

    #[test]
    fn entries_are_whole_however_they_were_cut_and_mixed(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 1..9),
        piece in 1usize..60, step in 1usize..97
    ) {
        let pieces = payloads.iter().map(|payload| payload.chunks(piece).count());
        let mut rows = Vec::new();
        for turn in 0..pieces.max().unwrap_or(0) {
            for (index, payload) in (0u32..).zip(&payloads) {
                let Some(now) = payload.chunks(piece).nth(turn) else { continue };
                let more = (turn + 1) * piece < payload.len();
                let (total, payload) = (payload.len() as u64, Bytes::copy_from_slice(now));
                rows.push(Row { index, status: 0, more, total, payload });
            }
        }
        let mut back = decoded(None, &rows, step).unwrap();
        back.sort_by_key(|row| row.index);
        let back: Vec<_> = back.into_iter().map(|row| row.payload).collect();
        prop_assert_eq!(back, payloads);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut framed = Encoder::header(1).to_vec();
        framed.extend_from_slice(&bytes);
        let _ = decode(&framed, 7);
        let _ = Decoder::of_entries(None).decode(&framed, &mut VecDeque::new());
    }

    #[test]
    fn a_cut_stream_is_never_complete(cut in 0usize..1000) {
        let row = Row { index: 1, status: 0, more: false, total: 300, payload: vec![7; 300].into() };
        let whole = encode(&[row.clone(), row], 1);
        let cut = cut % whole.len();
        prop_assert!(!decode(&whole[..cut], 50).unwrap().1);
    }
}

#[test]
fn small_payloads_travel_with_their_table_and_large_ones_as_they_are() {
    let row = |index: u32, size: usize| {
        let payload = Bytes::from(vec![index as u8; size]);
        Row { index, status: 0, more: false, total: size as u64, payload }
    };
    let sizes = [10, 0, COPIED + 1, COPIED, 7, MAX_PIECE, MAX_PIECE, 3];
    let rows: Vec<Row> = sizes.iter().zip(0..).map(|(size, i)| row(i, *size)).collect();
    let mut encoder = Encoder::default();
    rows.iter().cloned().for_each(|row| encoder.push(row));
    let parts = encoder.flush();
    // Table and 0, 1; 2; 3, 4; 5; 6; 7.
    assert_eq!(parts.len(), 6);
    assert_eq!(parts[1].as_ptr(), rows[2].payload.as_ptr(), "not copied");
    let mut bytes = Encoder::header(1).to_vec();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.extend_from_slice(&encoder.end());
    assert_eq!(decode(&bytes, 5000).unwrap(), (rows, true));
}

fn entry(index: u32, status: u16, more: bool, size: usize, total: usize) -> Row {
    let payload = Bytes::from(vec![index as u8; size]);
    Row { index, status, more, total: total as u64, payload }
}

fn decoded(rooms: Option<Rooms>, rows: &[Row], step: usize) -> Result<Vec<Row>> {
    let mut decoder = Decoder::of_entries(rooms);
    let mut back = VecDeque::new();
    for chunk in encode(rows, 3).chunks(step) {
        decoder.decode(chunk, &mut back)?;
    }
    assert!(decoder.is_complete());
    Ok(back.into())
}

#[test]
fn large_entries_lie_in_the_callers_room() {
    struct Lent(Vec<u8>);
    impl AsRef<[u8]> for Lent {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Room for Lent {
        fn append(&mut self, piece: &[u8]) {
            self.0.extend_from_slice(piece);
        }
        fn finish(self: Box<Self>) -> Bytes {
            self.0.into()
        }
    }
    let large = SHARED + 1;
    let rows = [
        entry(0, 0, false, large, large),
        entry(1, 0, false, SHARED, SHARED),
        entry(2, 0, true, large, 2 * large),
        entry(3, 500, false, large, large),
        entry(2, 0, false, large, 2 * large),
        entry(4, 0, false, large + 5, large + 5),
    ];
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = asked.clone();
    let rooms: Rooms = Arc::new(move |size| {
        noted.lock().unwrap().push(size);
        // `None` leaves the allocation to the decoder.
        (size != large + 5).then(|| Box::new(Lent(Vec::with_capacity(size))) as Box<dyn Room>)
    });
    let joined = entry(2, 0, false, 2 * large, 2 * large);
    let wanted = [0, 1, 3, 4, 5].map(|at| match at {
        4 => joined.clone(),
        at => rows[at].clone(),
    });
    assert_eq!(decoded(Some(rooms), &rows, 1000).unwrap(), wanted);
    assert_eq!(*asked.lock().unwrap(), [large, 2 * large, large + 5]);
}

#[test]
fn pieces_of_several_entries_become_each_its_own() {
    let rows = [
        entry(0, 0, true, 5, 12),
        entry(1, 0, true, SHARED + 3, SHARED + 4),
        entry(2, 0, false, 4, 4),
        entry(0, 0, true, 0, 12),
        entry(1, 0, false, 1, SHARED + 4),
        entry(3, 0, true, 9, 10),
        entry(0, 0, false, 7, 12),
        // An entry that failed after its first piece.
        entry(3, 503, false, 6, 0),
    ];
    let wanted = [
        entry(2, 0, false, 4, 4),
        entry(1, 0, false, SHARED + 4, SHARED + 4),
        entry(0, 0, false, 12, 12),
        entry(3, 503, false, 6, 0),
    ];
    for step in [1, 7, 1000, 100_000] {
        assert_eq!(decoded(None, &rows, step).unwrap(), wanted, "{step}");
    }
}

#[test]
fn an_entry_that_is_longer_than_its_size_is_corrupt() {
    let rows = [entry(0, 0, true, SHARED, SHARED + 1), entry(0, 0, false, 2, SHARED + 1)];
    assert!(decoded(None, &rows, 1000).unwrap_err().message.contains("longer than its size"));
}

#[test]
fn an_entry_of_another_length_than_its_size_is_corrupt_however_its_bytes_come() {
    let short = [entry(0, 0, true, 5, 12), entry(0, 0, false, 6, 12)];
    for rows in [&short[..], &[entry(0, 0, false, 5, 6)], &[entry(0, 0, false, 5, 4)]] {
        for step in [1, 7, 40, 100_000] {
            let error = decoded(None, rows, step).unwrap_err();
            assert!(error.message.contains("its size"), "{step}: {error}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_later_piece_is_noticed() {
    let rows = [entry(0, 0, true, 40, 80), entry(0, 0, false, 40, 80)];
    let mut bytes = encode(&rows, 3);
    let at = bytes.len() - 25;
    bytes[at] ^= 1;
    let mut decoder = Decoder::of_entries(None);
    assert!(decoder.decode(&bytes, &mut VecDeque::new()).is_err());
}

#[test]
fn a_flipped_bit_in_a_payload_is_noticed() {
    let row = Row { index: 1, status: 0, more: false, total: 300, payload: vec![7; 300].into() };
    let mut bytes = encode(&[row], 1);
    bytes[100] ^= 1;
    assert_eq!(decode(&bytes, 64).unwrap_err().code, ErrorCode::Internal);
}

#[test]
fn a_failure_carries_its_status_and_message() {
    let row = Row::failure(4, &Error::new(ErrorCode::ObjectNotFound, "ais://b/o does not exist"));
    assert_eq!((row.status, &row.payload[..]), (404, &b"ais://b/o does not exist"[..]));
}

#[test]
fn frames_of_times_stand_between_frames_and_change_no_row() {
    let row = |index| Row { index, status: 0, more: false, total: 3, payload: "abc".into() };
    let mut encoder = Encoder::default();
    let (first, last) =
        (StageTimes::from_micros([1, 2, 3, 4]), StageTimes::from_micros([5, 6, 7, 8]));
    let mut parts = vec![Encoder::header(9)];
    encoder.push(row(0));
    parts.extend(encoder.flush());
    parts.push(Encoder::times(&first));
    encoder.push(row(1));
    parts.extend(encoder.flush());
    // A later version may know more times.
    let mut longer = Encoder::times(&last).to_vec();
    longer[4] = 5;
    longer.extend_from_slice(&[0xff; 8]);
    parts.push(longer.into());
    parts.push(encoder.end());
    let whole = parts.concat();
    for step in [1, 7, whole.len()] {
        let (mut decoder, mut rows) = (Decoder::new(), VecDeque::new());
        for chunk in whole.chunks(step) {
            decoder.decode(chunk, &mut rows).unwrap();
        }
        assert!(decoder.is_complete());
        assert_eq!((decoder.times(), rows.len()), (Some(last), 2));
    }
    let mut short = Encoder::times(&first).to_vec();
    short[4] = 3;
    let bytes = [Encoder::header(9).to_vec(), short].concat();
    assert!(Decoder::new().decode(&bytes, &mut VecDeque::new()).is_err());
}
