//! Ownership of objects of buckets with a backend while they are written. A new owner may have a copy of
//! the old version, and does not compare it with the backend again.

use forebay_core::bucket::BucketInfo;
use forebay_core::{Error, ErrorCode, Result, placement};

use super::local::Local;

/// The ownership of an object by this target since a write of it began.
pub(super) struct Ownership<'a> {
    local: &'a Local,
    info: &'a BucketInfo,
    name: &'a str,
    /// Whether this target owned it then. Another target may send a write to a target that does not.
    had: bool,
}

impl<'a> Ownership<'a> {
    /// To be called before the first byte of a write is read.
    pub(super) fn of(local: &'a Local, info: &'a BucketInfo, name: &'a str) -> Self {
        let mut ownership = Self { local, info, name, had: false };
        ownership.had = info.has_backend() && ownership.has();
        ownership
    }

    /// The bucket and the name of the object.
    pub(super) fn object(&self) -> (&'a BucketInfo, &'a str) {
        (self.info, self.name)
    }

    fn has(&self) -> bool {
        let state = self.local.state();
        let owner = placement::owner(&state, self.info, self.name);
        owner.is_ok_and(|node| node.id == self.local.id)
    }

    /// Returns [`ErrorCode::WrongOwner`] if ownership moved since the write began. The client then
    /// repeats the write at the new owner, which drops its copy.
    pub(super) fn check(&self) -> Result<()> {
        if !self.had || self.has() {
            return Ok(());
        }
        let uri = self.info.bucket.object_uri(self.name);
        let text = format!("{uri} got another owner while it was written");
        Err(Error::new(ErrorCode::WrongOwner, text).hint("repeat the request"))
    }
}
