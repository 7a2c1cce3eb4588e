//! Readers of compressed TARs that stand where the last member ended, so that members which are read
//! one after another are unpacked once.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_core::archive::from_io;
use forebay_core::{Error, Result};
use tokio::sync::OwnedMutexGuard;

use super::ShardKey;

/// Decoders that wait for a next member; each holds its file open and some MiB of memory.
const PARKED: usize = 8;
/// How long one waits.
pub(super) const IDLE: Duration = Duration::from_secs(20);
/// Bytes skipped at once.
const STEP: usize = 128 << 10;

type Turn = tokio::sync::Mutex<()>;

/// The decoders that wait, and whose turn it is at which shard.
#[derive(Default)]
pub(super) struct Decoders {
    parked: Mutex<Lot>,
    turns: Mutex<HashMap<ShardKey, Weak<Turn>>>,
}

#[derive(Default)]
struct Lot {
    waiting: Vec<Parked>,
    /// Somebody looks after those that wait too long.
    watched: bool,
}

struct Parked {
    key: ShardKey,
    decoder: Decoder,
    since: Instant,
}

/// The unpacked bytes of a shard from `at` on.
pub(super) struct Decoder {
    pub(super) at: u64,
    input: Box<dyn Read + Send>,
}

impl Decoder {
    pub(super) fn new(input: Box<dyn Read + Send>) -> Self {
        Self { at: 0, input }
    }

    /// Goes on to `offset`, which must not lie behind.
    pub(super) fn skip_to(&mut self, offset: u64) -> Result<()> {
        let mut scratch = vec![0; (offset - self.at).min(STEP as u64) as usize];
        while self.at < offset {
            let step = (offset - self.at).min(STEP as u64) as usize;
            self.read_exact(&mut scratch[..step])?;
        }
        Ok(())
    }

    pub(super) fn read_exact(&mut self, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            match self.input.read(buf) {
                Ok(0) => {
                    let text = format!("unpacked, the shard ends at byte {}", self.at);
                    return Err(Error::invalid(text));
                }
                Ok(n) => {
                    self.at += n as u64;
                    buf = &mut buf[n..];
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(from_io(e)),
            }
        }
        Ok(())
    }
}

impl Decoders {
    fn lot(&self) -> MutexGuard<'_, Lot> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The waiting decoder of this shard that has the shortest way to `offset`.
    pub(super) fn take(&self, key: ShardKey, offset: u64) -> Option<Decoder> {
        let mut lot = self.lot();
        let (best, _) = lot
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, p)| p.key == key && p.decoder.at <= offset)
            .max_by_key(|(_, p)| p.decoder.at)?;
        Some(lot.waiting.swap_remove(best).decoder)
    }

    /// Keeps a decoder for the next member. True when the caller must see to it that
    /// [`Self::expire`] is called from now on.
    pub(super) fn park(&self, key: ShardKey, decoder: Decoder) -> bool {
        let mut lot = self.lot();
        if lot.waiting.len() >= PARKED {
            let oldest = lot.waiting.iter().enumerate().min_by_key(|(_, p)| p.since);
            if let Some((i, _)) = oldest {
                lot.waiting.swap_remove(i);
            }
        }
        lot.waiting.push(Parked { key, decoder, since: Instant::now() });
        !std::mem::replace(&mut lot.watched, true)
    }

    /// Drops those that waited long enough. False when none is left, and so nobody need call again.
    pub(super) fn expire(&self) -> bool {
        let mut lot = self.lot();
        lot.waiting.retain(|p| p.since.elapsed() < IDLE);
        lot.watched = !lot.waiting.is_empty();
        lot.watched
    }

    /// Waits until nobody else unpacks small members of this shard: they come in the order asked
    /// for, which is the archive's more often than not.
    pub(super) async fn turn(&self, key: ShardKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
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
