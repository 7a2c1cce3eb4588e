//! The requests of a load: which objects they read or write, and how.

use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_client::{Client, ShardOptions};
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, Error, ErrorCode, ObjectName, Result};
use futures::{StreamExt, TryStreamExt, stream};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::failure::Failure;
use crate::session::Session;
use crate::uri;

/// Requests at once when the objects of a run are removed.
const REMOVALS: usize = 32;
/// Bytes that a shard reader fetches ahead.
const READ_AHEAD: usize = 8 << 20;

/// The objects that a load reads: names and sizes, at least one.
#[derive(Debug)]
pub(super) struct Names {
    bucket: Bucket,
    all: Vec<(ObjectName, u64)>,
}

/// A kind of request with its objects.
#[derive(Debug)]
pub(super) enum Work {
    /// Writes `count` objects in turn; each is a part of `payload` that begins elsewhere.
    Put { bucket: Bucket, prefix: String, count: u64, payload: Payload },
    /// Reads one object, or `range` bytes of it.
    Get { names: Names, range: Option<u64> },
    /// Reads `size` objects by one batch.
    Batch { names: Names, size: usize },
    /// Reads one shard, member by member.
    Shard { names: Names },
}

/// Random bytes: those of one object, and some more, so that two objects differ.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: Bytes,
    size: usize,
}

/// Objects and bytes of one request.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// Time to the answer's head, where the request shows it.
    pub(super) first: Option<Duration>,
}

/// The objects of a listing, at most `most` of them.
pub(super) async fn names(session: &Session, uri: &str, most: u32) -> Result<Names, Failure> {
    let (bucket, prefix) = uri::remote(uri)?;
    let mut all = Vec::new();
    let most = most as usize;
    let listed = session
        .client
        .list_each(&bucket, &prefix, |name, size| {
            if all.len() == most {
                return Err(Error::internal("enough"));
            }
            all.push((ObjectName::new(name)?, size));
            Ok(())
        })
        .await;
    if all.len() < most {
        listed?;
    }
    if all.is_empty() {
        let text = format!("{uri} names no objects");
        let hint = "write some, for example with `forebay bench put URI --keep`";
        return Err(Error::new(ErrorCode::ObjectNotFound, text).hint(hint).into());
    }
    Ok(Names { bucket, all })
}

/// Random bytes for objects of `size` bytes.
pub(super) fn payload(size: u64, seed: u64) -> Payload {
    /// Positions at which an object may begin.
    const POSITIONS: usize = 4096;
    // At most 1 GiB.
    let size = size as usize;
    let mut bytes = vec![0; size + POSITIONS];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    Payload { bytes: bytes.into(), size }
}

impl Payload {
    /// The bytes of the object with this number.
    fn of(&self, number: u64) -> Bytes {
        let positions = self.bytes.len() - self.size;
        let start = (number % positions as u64) as usize;
        self.bytes.slice(start..start + self.size)
    }
}

impl Names {
    fn any(&self, random: &mut SmallRng) -> &(ObjectName, u64) {
        &self.all[random.random_range(0..self.all.len())]
    }
}

impl Work {
    /// Sends the request with this number and reads its whole answer.
    pub(super) async fn once(
        &self,
        client: &Client,
        number: u64,
        random: &mut SmallRng,
    ) -> Result<Done> {
        match self {
            Self::Put { bucket, prefix, count, payload } => {
                let name = name_of(prefix, number % count);
                client.put(bucket, &name, payload.of(number), None).await?;
                Ok(Done { objects: 1, bytes: payload.size as u64, first: None })
            }
            Self::Get { names, range } => get(client, names, *range, random).await,
            Self::Batch { names, size } => batch(client, names, *size, random).await,
            Self::Shard { names } => shard(client, names, random).await,
        }
    }
}

fn name_of(prefix: &str, number: u64) -> String {
    format!("{prefix}{number:06}")
}

async fn get(
    client: &Client,
    names: &Names,
    range: Option<u64>,
    random: &mut SmallRng,
) -> Result<Done> {
    let (name, size) = names.any(random);
    // A shorter object is read whole.
    let range = range.filter(|length| length < size).map(|length| {
        let start = random.random_range(0..=size - length);
        RangeSpec::From(start, Some(start + length - 1))
    });
    let started = Instant::now();
    let mut answer = client.get(&names.bucket, name.as_str(), range).await?;
    let first = Some(started.elapsed());
    let mut bytes = 0;
    while let Some(piece) = answer.stream.try_next().await? {
        bytes += piece.len() as u64;
    }
    Ok(Done { objects: 1, bytes, first })
}

async fn batch(client: &Client, names: &Names, size: usize, random: &mut SmallRng) -> Result<Done> {
    let entries = (0..size).map(|_| BatchEntry::whole(0, names.any(random).0.clone())).collect();
    let request = BatchRequest { buckets: vec![names.bucket.clone()], entries, ordered: true };
    let mut answers = client.batch(&request)?;
    let mut done = Done::default();
    while let Some(item) = answers.next().await {
        done.bytes += item.result?.len() as u64;
        done.objects += 1;
    }
    Ok(done)
}

async fn shard(client: &Client, names: &Names, random: &mut SmallRng) -> Result<Done> {
    let (name, _) = names.any(random);
    let options = ShardOptions { format: None, naming: None, read_ahead: READ_AHEAD };
    let started = Instant::now();
    let mut members = client.read_shard(&names.bucket, name, options);
    let mut done = Done::default();
    while let Some(member) = members.next().await {
        done.first.get_or_insert_with(|| started.elapsed());
        let parts = member?.parts;
        done.bytes += parts.iter().map(|(_, data)| data.len() as u64).sum::<u64>();
        done.objects += 1;
    }
    Ok(done)
}

/// Removes what a `Put` wrote.
pub(super) async fn remove(session: &Session, work: &Work) -> Result<(), Failure> {
    let Work::Put { bucket, prefix, count, .. } = work else { return Ok(()) };
    stream::iter(0..*count)
        .map(|number| async move {
            match session.client.delete(bucket, &name_of(prefix, number)).await {
                // The load ended before it was written.
                Err(e) if e.code() == ErrorCode::ObjectNotFound => Ok(()),
                result => result,
            }
        })
        .buffer_unordered(REMOVALS)
        .try_collect::<()>()
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_payload_differ_and_have_the_size() {
        let payload = payload(1000, 7);
        assert_eq!(payload.of(0).len(), 1000);
        assert_ne!(payload.of(0), payload.of(1));
        assert_eq!(payload.of(1), payload.of(1));
    }
}
