//! Readers of compressed TARs, parked where the last member ended, so that a shard whose members
//! are read in sequence is decompressed once.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_archive::{from_io, is_behind_end};
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};
use tokio::sync::OwnedMutexGuard;

use super::ShardKey;

/// Most parked decoders; each holds its file open and some MiB of memory.
const PARKED: usize = 8;
/// How long one stays parked.
pub(super) const IDLE: Duration = Duration::from_secs(20);
/// Most parked decoders of one shard.
const PER_SHARD: usize = 2;
/// Bytes decompressed at once,
const UNPACK_CHUNK_BYTES: usize = 256 << 10;
/// and kept of the last decompressed bytes.
const HISTORY: u64 = 4 << 20;

type Turn = tokio::sync::Mutex<()>;

/// The parked decoders, and the permits of each shard.
#[derive(Default)]
pub(super) struct Decoders {
    parked: Mutex<Lot>,
    turns: Mutex<HashMap<ShardKey, Weak<Turn>>>,
}

#[derive(Default)]
struct Lot {
    waiting: Vec<Parked>,
    /// A task removes those that are parked for too long.
    watched: bool,
}

struct Parked {
    key: ShardKey,
    decoder: Decoder,
    since: Instant,
}

/// The decompressed bytes of a shard, as far as they were requested. The last bytes are still held,
/// because members that are requested together rarely arrive exactly in the archive's order.
pub(super) struct Decoder {
    input: Box<dyn Read + Send>,
    /// Bytes decompressed so far.
    end: u64,
    /// The last of them, in chunks,
    pieces: VecDeque<Bytes>,
    /// and their number.
    held: u64,
}

impl Decoder {
    pub(super) fn new(input: Box<dyn Read + Send>) -> Self {
        Self { input, end: 0, pieces: VecDeque::new(), held: 0 }
    }

    /// Offset of the first byte that is still held.
    fn start(&self) -> u64 {
        self.end - self.held
    }

    /// At least one byte at `offset`, not before [`Self::start`], and at most `most`.
    pub(super) fn read(&mut self, offset: u64, most: u64) -> Result<Bytes> {
        while self.end <= offset {
            self.unpack()?;
        }
        let mut start = self.start();
        for piece in &self.pieces {
            let end = start + piece.len() as u64;
            if (start..end).contains(&offset) {
                let from = (offset - start) as usize;
                let upto = (end - start).min(offset - start + most) as usize;
                return Ok(piece.slice(from..upto));
            }
            start = end;
        }
        Err(Error::internal("a decoder was asked for bytes that it has forgotten"))
    }

    fn unpack(&mut self) -> Result<()> {
        let mut piece = vec![0; UNPACK_CHUNK_BYTES];
        let mut len = 0;
        while len < UNPACK_CHUNK_BYTES {
            match self.input.read(&mut piece[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if is_behind_end(&e) => break,
                Err(e) => return Err(from_io(e)),
            }
        }
        if len == 0 {
            return Err(Error::invalid(format!("unpacked, the shard ends at byte {}", self.end)));
        }
        piece.truncate(len);
        self.end += len as u64;
        self.held += len as u64;
        self.pieces.push_back(piece.into());
        while self.held > HISTORY
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.held -= oldest.len() as u64;
        }
        Ok(())
    }
}

impl Decoders {
    fn lot(&self) -> MutexGuard<'_, Lot> {
        self.parked.locked()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lot().waiting.len()
    }

    /// The parked decoder of this shard with the shortest distance to `offset`.
    pub(super) fn take(&self, key: ShardKey, offset: u64) -> Option<Decoder> {
        let mut lot = self.lot();
        let (best, _) = lot
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, p)| p.key == key && p.decoder.start() <= offset)
            .max_by_key(|(_, p)| p.decoder.end.min(offset))?;
        Some(lot.waiting.swap_remove(best).decoder)
    }

    /// Parks a decoder for the next member. Returns true if the caller must call [`Self::expire`]
    /// regularly from now on.
    pub(super) fn park(&self, key: ShardKey, decoder: Decoder) -> bool {
        let mut lot = self.lot();
        let same = lot.waiting.iter().filter(|p| p.key == key).count();
        if lot.waiting.len() >= PARKED || same >= PER_SHARD {
            let all = lot.waiting.iter().enumerate();
            let in_question = all.filter(|(_, p)| same < PER_SHARD || p.key == key);
            if let Some((i, _)) = in_question.min_by_key(|(_, p)| p.since) {
                lot.waiting.swap_remove(i);
            }
        }
        lot.waiting.push(Parked { key, decoder, since: Instant::now() });
        !std::mem::replace(&mut lot.watched, true)
    }

    /// Drops those that were parked for long enough. False if none is left, so that no further call
    /// is needed.
    pub(super) fn expire(&self) -> bool {
        let mut lot = self.lot();
        lot.waiting.retain(|p| p.since.elapsed() < IDLE);
        lot.watched = !lot.waiting.is_empty();
        lot.watched
    }

    /// Waits until no other reader decompresses small members of this shard. Readers are served in
    /// the order of their requests, which is mostly the archive's.
    pub(super) async fn turn(&self, key: ShardKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.locked();
            turns.retain(|_, turn| turn.strong_count() > 0);
            match turns.get(&key).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    let turn = Arc::new(Turn::default());
                    turns.insert(key, Arc::downgrade(&turn));
                    turn
                }
            }
        };
        turn.lock_owned().await
    }
}
