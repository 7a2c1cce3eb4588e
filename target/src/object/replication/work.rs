//! An operation of the replication engine at work, and the outcomes of its commands.

use std::sync::Arc;

use forebay_core::bucket::BucketInfo;
use forebay_core::replication::{Answer, CommandId, Object};
use forebay_node::pace::Pace;
use forebay_store::Record;
use tokio::sync::Mutex;

use super::content::Content;
use crate::object::Key;
use crate::object::lock::KeyGuard;

/// An operation on one object, as the commands of the driver see it.
pub(super) struct Work<'a> {
    pub(super) object: Object,
    pub(super) key: Key,
    /// Limits what the operation sends.
    pub(super) pace: Option<&'a Pace>,
    pub(super) content: Mutex<Content<'a>>,
    /// The record that the operation has seen last, and often needs again.
    pub(super) seen: std::sync::Mutex<Option<Record>>,
    /// The record that the operation has committed.
    pub(super) committed: std::sync::Mutex<Option<Record>>,
}

impl<'a> Work<'a> {
    pub(super) fn new(info: &BucketInfo, name: &str) -> Self {
        Self::with_content(info, name, Content::Nothing)
    }

    pub(super) fn with_content(info: &BucketInfo, name: &str, content: Content<'a>) -> Self {
        Self::of(Object::new(Arc::new(info.clone()), name), content)
    }

    /// The work on an object or, by its name in the history, an older version of one.
    pub(super) fn stored(info: &BucketInfo, name: &str, older: bool) -> Self {
        Self::stored_with_content(info, name, older, Content::Nothing)
    }

    pub(super) fn stored_with_content(
        info: &BucketInfo,
        name: &str,
        older: bool,
        content: Content<'a>,
    ) -> Self {
        if !older {
            return Self::with_content(info, name, content);
        }
        Self::of(Object::older_version(Arc::new(info.clone()), name), content)
    }

    fn of(object: Object, content: Content<'a>) -> Self {
        Self {
            key: Key { bucket_id: object.stored_id(), name: object.stored_name().into() },
            object,
            pace: None,
            content: Mutex::new(content),
            seen: std::sync::Mutex::default(),
            committed: std::sync::Mutex::default(),
        }
    }

    #[must_use]
    pub(super) fn paced(self, pace: &'a Pace) -> Self {
        Self { pace: Some(pace), ..self }
    }

    pub(super) fn info(&self) -> &BucketInfo {
        &self.object.info
    }

    /// The id under which the store has the object, or older version.
    pub(super) fn id(&self) -> u64 {
        self.key.bucket_id
    }

    /// The name of the object; of an older version, its name in the history.
    pub(super) fn name(&self) -> &str {
        self.object.stored_name()
    }

    pub(super) fn is_older_version(&self) -> bool {
        self.object.is_older_version()
    }
}

/// The outcome of a command.
pub(super) enum Executed {
    Answered(CommandId, Answer),
    Locked(CommandId, KeyGuard),
    /// Work that several commands share; it has no answer of its own.
    Shared,
}
