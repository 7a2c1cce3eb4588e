//! A cloud in memory that composes, counts its calls, and can be changed between two of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::size::ByteRange;
use futures::StreamExt;
use futures::stream;

use crate::{After, Backend, Described, PutBody, RemoteMeta, RemoteObject, RemotePage};

type Hook = Box<dyn FnOnce(&Cloud) + Send>;

#[derive(Default)]
pub(super) struct Cloud {
    objects: Mutex<BTreeMap<String, (u64, Bytes)>>,
    generation: Mutex<u64>,
    calls: Mutex<HashMap<&'static str, u64>>,
    /// Error of compositions, if set.
    pub(super) refuses: Mutex<Option<ErrorCode>>,
    /// Reason why the bucket is not suitable, if set.
    pub(super) objects_to: Mutex<Option<&'static str>>,
    /// Runs before the next composition.
    pub(super) before_compose: Mutex<Option<Hook>>,
    /// Composes objects of any generation.
    lax: bool,
}

impl Cloud {
    pub(super) fn lax(lax: bool) -> Self {
        Self { lax, ..Self::default() }
    }

    pub(super) fn write(&self, name: &str, content: impl Into<Bytes>) {
        let mut generation = self.generation.lock().unwrap();
        *generation += 1;
        self.objects.lock().unwrap().insert(name.into(), (*generation, content.into()));
    }

    pub(super) fn remove(&self, name: &str) {
        self.objects.lock().unwrap().remove(name);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    pub(super) fn calls(&self, kind: &str) -> u64 {
        self.calls.lock().unwrap().get(kind).copied().unwrap_or(0)
    }

    fn count(&self, kind: &'static str) {
        *self.calls.lock().unwrap().entry(kind).or_default() += 1;
    }

    fn find(&self, name: &str) -> Result<(RemoteMeta, Bytes)> {
        let found = self.objects.lock().unwrap().get(name).cloned();
        let (generation, content) = found.ok_or_else(|| missing(name))?;
        let (size, version) = (content.len() as u64, generation.to_string());
        Ok((RemoteMeta { size, version, ..RemoteMeta::default() }, content))
    }
}

fn missing(name: &str) -> Error {
    Error::new(ErrorCode::ObjectNotFound, format!("{name} is not there"))
}

#[async_trait]
impl Backend for Cloud {
    async fn head_bucket(&self) -> Result<()> {
        Ok(())
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.count("stat");
        self.find(name).map(|(meta, _)| meta)
    }

    async fn get(
        &self,
        name: &str,
        _: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        self.count("get");
        // Other calls may run during a call.
        tokio::task::yield_now().await;
        let (meta, content) = self.find(name)?;
        if if_version.is_some_and(|version| version != meta.version) {
            return Err(Error::new(ErrorCode::ObjectChanged, format!("{name} changed")));
        }
        let pieces: Vec<_> = content.chunks(1000).map(Bytes::copy_from_slice).map(Ok).collect();
        let range = ByteRange::whole(meta.size);
        Ok(RemoteObject { meta, range, stream: stream::iter(pieces).boxed() })
    }

    async fn put(&self, _: &str, _: PutBody) -> Result<RemoteMeta> {
        Err(Error::unsupported("not needed"))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.count("delete");
        self.objects.lock().unwrap().remove(name).map(drop).ok_or_else(|| missing(name))
    }

    async fn list(&self, _: &str, _: After<'_>, _: usize) -> Result<RemotePage> {
        Err(Error::unsupported("not needed"))
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.count("describe");
        let names: Vec<_> = self.names().into_iter().filter(|n| n.as_str() >= from).collect();
        let describe = |name: String| {
            let (meta, content) = self.find(&name)?;
            let crc32c = checksum(CrcAlgorithm::Crc32Iscsi, &content) as u32;
            Ok(Described { name, meta, crc32c })
        };
        names.into_iter().take(limit).map(describe).collect()
    }

    async fn compose(&self, into: &str, parts: &[&Described]) -> Result<RemoteMeta> {
        self.count("compose");
        assert!(parts.len() <= 32 && into.starts_with(super::super::TEMPORARY));
        if let Some(hook) = self.before_compose.lock().unwrap().take() {
            hook(self);
        }
        if let Some(code) = *self.refuses.lock().unwrap() {
            return Err(Error::new(code, "no compositions now"));
        }
        let mut content = Vec::new();
        for part in parts {
            let (meta, bytes) = self.find(&part.name)?;
            if !self.lax && meta.version != part.meta.version {
                return Err(Error::new(ErrorCode::ObjectChanged, format!("{} changed", part.name)));
            }
            content.extend_from_slice(&bytes);
        }
        self.write(into, content);
        self.find(into).map(|(meta, _)| meta)
    }

    async fn check_composing(&self) -> Result<()> {
        self.count("check");
        match *self.objects_to.lock().unwrap() {
            Some(why) => Err(Error::invalid(why)),
            None => Ok(()),
        }
    }
}

/// A cloud with `count` objects of different sizes, and their names.
pub(super) fn filled(count: usize) -> (Arc<Cloud>, Vec<String>) {
    fill(Cloud::default(), count)
}

pub(super) fn fill(cloud: Cloud, count: usize) -> (Arc<Cloud>, Vec<String>) {
    let names: Vec<_> = (0..count).map(|n| format!("train/{n:05}")).collect();
    for (n, name) in names.iter().enumerate() {
        cloud.write(name, content(name, 500 + n % 977));
    }
    (Arc::new(cloud), names)
}

pub(super) fn content(name: &str, size: usize) -> Vec<u8> {
    name.bytes().cycle().take(size).collect()
}
