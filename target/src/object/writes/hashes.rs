//! Checksums of received bytes.

use forebay_core::Result;
use forebay_core::checksum::{Checksum, ChecksumKind, Hasher};

/// Results of receiving all bytes.
#[derive(Default)]
pub(in crate::object) struct Received {
    pub(in crate::object) checksum: Option<Checksum>,
    /// Lower-case hexadecimal; only if it was requested.
    pub(in crate::object) md5: Option<String>,
}

/// All checksums of received bytes: the bucket's, the one that the client announced, and MD5.
pub(in crate::object) struct Hashes {
    own: Hasher,
    others: Vec<Hasher>,
    announced: Option<Checksum>,
    md5: bool,
}

impl Hashes {
    pub(in crate::object) fn new(
        own: ChecksumKind,
        announced: Option<Checksum>,
        md5: bool,
    ) -> Self {
        let mut kinds: Vec<ChecksumKind> = announced.iter().map(|a| a.kind).collect();
        kinds.extend(md5.then_some(ChecksumKind::Md5));
        kinds.retain(|kind| *kind != own);
        kinds.dedup();
        let others = kinds.into_iter().map(ChecksumKind::hasher).collect();
        Self { own: own.hasher(), others, announced, md5 }
    }

    pub(in crate::object) fn update(&mut self, bytes: &[u8]) {
        self.own.update(bytes);
        self.others.iter_mut().for_each(|h| h.update(bytes));
    }

    /// [`ErrorCode::ChecksumMismatch`] if the bytes do not have the announced checksum.
    pub(in crate::object) fn finish(self, uri: &str) -> Result<Received> {
        let own = self.own.finish();
        let all: Vec<Checksum> =
            own.iter().cloned().chain(self.others.into_iter().filter_map(Hasher::finish)).collect();
        let of = |kind| all.iter().find(|sum| sum.kind == kind);
        if let Some(announced) = &self.announced
            && let Some(got) = of(announced.kind)
        {
            got.expect(announced, uri)?;
        }
        let md5 = of(ChecksumKind::Md5).filter(|_| self.md5).map(|sum| sum.value.clone());
        Ok(Received { checksum: own, md5 })
    }
}
