//! Keeps a whole response until its first byte may be sent.

use bytes::Bytes;
use forebay_core::Result;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};

use crate::object::{ObjectService, Scratch};

/// Bytes kept in memory; longer responses are kept on a disk.
const IN_MEMORY: usize = 4 << 20;

/// Takes a response of any length in bounded memory.
pub(crate) struct Spool {
    objects: ObjectService,
    /// Name of the temporary file.
    name: String,
    parts: Vec<Bytes>,
    in_memory: usize,
    scratch: Option<Scratch>,
}

impl Spool {
    pub(crate) fn new(objects: ObjectService, name: &str) -> Self {
        Self { objects, name: name.to_owned(), parts: Vec::new(), in_memory: 0, scratch: None }
    }

    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if self.scratch.is_none() && self.in_memory + bytes.len() <= IN_MEMORY {
            self.in_memory += bytes.len();
            self.parts.push(bytes);
            return Ok(());
        }
        if self.scratch.is_none() {
            self.scratch = Some(self.objects.scratch(&self.name).await?);
        }
        match &mut self.scratch {
            Some(scratch) => scratch.write(bytes).await,
            None => Ok(()),
        }
    }

    /// All written bytes.
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Bytes>> {
        let head = stream::iter(self.parts).map(Ok);
        match self.scratch {
            Some(scratch) => head.chain(scratch.into_stream()).boxed(),
            None => head.boxed(),
        }
    }
}
