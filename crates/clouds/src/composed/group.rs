//! Fetches one group: describe, compose, read once, check object by object, delete.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, checksum};
use forebay_core::cloud_rules::Compose;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use rand::RngExt;

use super::gather::{Gather, MAX_COMPOSED_OBJECTS, Waiting};
use super::{TEMPORARY, delete_leftovers};
use crate::{Backend, Described, RemoteObject};

/// Groups with fewer objects are read one by one: a composition is three calls.
const FEWEST: usize = 4;
/// Bytes of one composition.
const MAX_COMPOSED_BYTES: u64 = 100_000_000;
/// A larger object is read alone, in as many ranges as it needs.
const MAX_MEMBER_BYTES: u64 = 4 << 20;

/// An object of a group whose generation is known.
struct Part {
    described: Described,
    waiting: Waiting,
}

/// Replies to all waiting reads.
pub(super) async fn fetch(
    gather: &Arc<Gather>,
    inner: &Arc<dyn Backend>,
    mut group: Vec<Waiting>,
    how: Compose,
) {
    group.retain(|waiting| !waiting.answer.is_closed());
    let may = group.len() >= FEWEST && gather.pause.is_on();
    if !may || !gather.pause.allows(&**inner, how).await {
        return one_by_one(inner, group).await;
    }
    let names: Vec<&str> = group.iter().map(|waiting| waiting.name.as_str()).collect();
    let known = gather.known.of(&**inner, &names).await;
    let (mut parts, mut alone) = (Vec::new(), Vec::new());
    for (waiting, described) in group.into_iter().zip(known) {
        match described.filter(|d| (1..=MAX_MEMBER_BYTES).contains(&d.meta.size)) {
            Some(described) => parts.push(Part { described, waiting }),
            None => alone.push(waiting),
        }
    }
    let mut together = Vec::new();
    for parts in in_bounds(parts) {
        match parts.len() {
            0..FEWEST => alone.extend(parts.into_iter().map(|part| part.waiting)),
            _ => together.push(parts),
        }
    }
    if !together.is_empty() && gather.pause.is_to_be_swept() {
        let inner = Arc::clone(inner);
        tokio::spawn(async move { delete_leftovers(&*inner).await });
    }
    let composed = together.into_iter().map(|parts| compose(gather, inner, parts));
    tokio::join!(one_by_one(inner, alone), join_all(composed));
}

/// Splits where a composition would be too large.
fn in_bounds(parts: Vec<Part>) -> Vec<Vec<Part>> {
    let (mut all, mut bytes) = (vec![Vec::new()], 0);
    for part in parts {
        let size = part.described.meta.size;
        let full = all.last().is_some_and(|last: &Vec<_>| last.len() == MAX_COMPOSED_OBJECTS);
        if full || bytes + size > MAX_COMPOSED_BYTES {
            all.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(last) = all.last_mut() {
            last.push(part);
        }
    }
    all
}

async fn one_by_one(inner: &Arc<dyn Backend>, all: Vec<Waiting>) {
    join_all(all.into_iter().map(|Waiting { name, answer }| async move {
        // The caller may have gone away, and then needs no reply.
        let _ = answer.send(inner.get(&name, None, None).await);
    }))
    .await;
}

async fn compose(gather: &Gather, inner: &Arc<dyn Backend>, parts: Vec<Part>) {
    let described: Vec<&Described> = parts.iter().map(|part| &part.described).collect();
    let temporary = Temporary::new(inner);
    let composed = inner.compose(&temporary.name, &described).await;
    let composed = match composed {
        Ok(composed) => composed,
        Err(error) => {
            tracing::debug!(%error, "objects are not read together");
            gather.pause.refused(&error);
            // A call without a response may have created the object nevertheless.
            if !error.code.is_transient() {
                temporary.was_not_made();
            }
            return one_by_one(inner, parts.into_iter().map(|part| part.waiting).collect()).await;
        }
    };
    gather.pause.made();
    let total: u64 = parts.iter().map(|part| part.described.meta.size).sum();
    let mut left: VecDeque<Part> = parts.into();
    if composed.size == total {
        let version = Some(composed.version.as_str()).filter(|version| !version.is_empty());
        if let Err(error) = hand_out(inner, &temporary.name, version, &mut left).await {
            tracing::debug!(%error, "a composition could not be used to its end");
        }
    }
    // Objects that do not match their description are read alone.
    one_by_one(inner, left.into_iter().map(|part| part.waiting).collect()).await;
}

/// Reads the composition, and replies for each object as soon as all of it has arrived and is
/// correct.
async fn hand_out(
    inner: &Arc<dyn Backend>,
    name: &str,
    version: Option<&str>,
    left: &mut VecDeque<Part>,
) -> Result<()> {
    let mut body = inner.get(name, None, version).await?.stream;
    let mut bytes = BytesMut::new();
    while let Some(part) = left.front() {
        let size = usize::try_from(part.described.meta.size).unwrap_or(usize::MAX);
        while bytes.len() < size {
            match body.next().await {
                Some(chunk) => bytes.extend_from_slice(&chunk?),
                None => return Err(wrong(&part.described, "is cut short")),
            }
        }
        let content = bytes.split_to(size).freeze();
        if !is_right(&part.described, &content) {
            return Err(wrong(&part.described, "has other bytes"));
        }
        if let Some(Part { described, waiting }) = left.pop_front() {
            let _ = waiting.answer.send(Ok(whole(described, content)));
        }
    }
    Ok(())
}

/// Whether the bytes are those of the requested generation.
fn is_right(described: &Described, content: &Bytes) -> bool {
    let crc32c = checksum(CrcAlgorithm::Crc32Iscsi, content) as u32;
    described.crc32c == crc32c
}

fn wrong(described: &Described, how: &str) -> Error {
    let text = format!("{} {how} in a composition", described.name);
    Error::new(ErrorCode::ObjectChanged, text)
}

fn whole(described: Described, content: Bytes) -> RemoteObject {
    let range = ByteRange::whole(described.meta.size);
    // Copied, because this object is kept long after the others of its group.
    let content = Bytes::copy_from_slice(&content);
    RemoteObject { meta: described.meta, range, stream: stream::iter([Ok(content)]).boxed() }
}

/// An object that is deleted when this is dropped.
struct Temporary {
    inner: Arc<dyn Backend>,
    name: String,
    made: bool,
}

impl Temporary {
    /// The name contains the time of creation, for the removal of leftovers.
    fn new(inner: &Arc<dyn Backend>) -> Self {
        let random: u64 = rand::rng().random();
        let name = format!("{TEMPORARY}{}-{random:016x}", forebay_node::clock::unix_s());
        Self { inner: Arc::clone(inner), name, made: true }
    }

    fn was_not_made(mut self) {
        self.made = false;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.made {
            return;
        }
        let (inner, name) = (Arc::clone(&self.inner), std::mem::take(&mut self.name));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                match inner.delete(&name).await {
                    Err(e) if e.code != ErrorCode::ObjectNotFound => {
                        tracing::warn!(object = name, error = %e,
                            "a temporary object stays until it is swept");
                    }
                    _ => {}
                }
            });
        }
    }
}
