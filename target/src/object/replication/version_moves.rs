//! Older versions of objects while objects move, or a target is unavailable: the owner fetches them
//! before it reports a version as missing, and removals include other targets.

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyRequest, Stamp};
use forebay_core::object::ObjectMeta;
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, Result, history, native, rebalance};
use futures::future::{join_all, try_join_all};

use super::transfer::{REMOVE_PATH, SENT_WITHIN, Sent};
use super::{Replication, Which};
use crate::object::versions::{keeps_versions, older, version_of};
use crate::store::Record;

/// Path of the request to send all older versions of an object.
pub(crate) const SEND_VERSIONS_PATH: &str = "/internal/v1/copy/send-versions";

/// Attempts to find a version that moves between the look-up and the open.
const LOOKS: usize = 5;

/// Counts look-ups of a version. Its location may change before it is opened there: its object is
/// replaced, or it moves to another target.
#[derive(Debug, Default)]
pub(crate) struct VersionLooks(usize);

impl VersionLooks {
    /// Whether the opened record is not the requested version, so that it has to be looked up
    /// again. An error after too many attempts.
    pub(crate) fn again(
        &mut self,
        info: &BucketInfo,
        version: Option<&str>,
        opened: Result<&ObjectMeta, &Error>,
    ) -> Result<bool> {
        let Some(version) = version.filter(|_| keeps_versions(info)) else { return Ok(false) };
        let moved = match opened {
            Ok(object) => version_of(&object.custom) != version,
            Err(e) => e.code == ErrorCode::ObjectNotFound,
        };
        self.0 += 1;
        if moved && self.0 == LOOKS {
            let text = format!("version {version} in {} is being moved", info.bucket);
            return Err(Error::unavailable(text).retry_after(1));
        }
        Ok(moved)
    }
}

impl Replication {
    /// Fetches the object that is about to become an older version, if a former owner may have it:
    /// the new write would supersede it there.
    pub(in crate::object) async fn take_over_version(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<()> {
        if keeps_versions(info) && !self.state().is_in_place(info) {
            self.take_over(info, name).await?;
        }
        Ok(())
    }

    /// Fetches all older versions of an object. An error if a target, or a disk, that may have some
    /// is unavailable.
    pub(in crate::object) async fn gather_versions(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<()> {
        let state = self.state();
        let others = native::who_may_have_versions(&state, info, name, self.me());
        let request = CopyRequest {
            by: Some(self.me().clone()),
            older: true,
            ..CopyRequest::new(&info.bucket, name)
        };
        let peer = self.0.peer.with_idle_timeout(SENT_WITHIN);
        let asked = others.into_iter().map(|node| {
            let (peer, request) = (&peer, &request);
            async move {
                let sent: Result<()> = match node.alive {
                    false => Err(Error::unavailable("it is down")),
                    true => tokio::select! {
                        sent = peer.post_json(&node.url, SEND_VERSIONS_PATH, request) => {
                            sent.map_err(Error::from)
                        }
                        () = self.death_of(&node.id) => Err(Error::unavailable("it died")),
                    },
                };
                (node, sent)
            }
        });
        for (node, sent) in join_all(asked).await {
            match sent {
                // A target without that bucket has nothing of the object.
                Err(e) if e.code != ErrorCode::BucketNotFound => {
                    let uri = info.bucket.object_uri(name);
                    return Err(Error::unavailable(format!(
                        "versions of {uri} may lie with target {}, which does not send them: {}",
                        node.id, e.message
                    )));
                }
                _ => {}
            }
        }
        // Any of them may be on a disk that is not in use.
        self.store().check_whole()
    }

    /// Sends the older versions of an object here to the object's owner.
    pub(crate) async fn hand_over_versions(
        &self,
        info: &BucketInfo,
        request: &CopyRequest,
    ) -> Result<()> {
        let CopyRequest { name, by, .. } = request;
        let by =
            by.as_ref().ok_or_else(|| Error::invalid("no target for the versions is given"))?;
        let state = self.state();
        let duty = rebalance::duty(&state, info, name, self.me());
        let to = duty.others.iter().find(|n| n.id == *by && n.alive);
        let to = to.ok_or_else(|| native::belongs_elsewhere(info, name))?;
        self.store().check_whole()?;
        for older in older(self.store(), info, name).await? {
            let which = Which { info, name: &older.name, older: true };
            let Some(record) = self.record_at_rest(which).await? else { continue };
            if self.wants(to, which, &record).await? {
                self.send(to, which, &record, Sent::Moved { alone: false }).await?;
            }
            if !duty.stays && duty.others.len() == 1 && info.erasure.is_none() {
                self.drop_this(which, &record).await?;
            }
        }
        Ok(())
    }

    /// Removes a version for good that this target, the owner, has found. All living targets that
    /// may have it remove it first; a tombstone keeps dead ones from restoring it. The caller holds
    /// the object's lock.
    pub(in crate::object) async fn forget_version(
        &self,
        info: &BucketInfo,
        name: &str,
        older: &str,
        found: &Record,
    ) -> Result<()> {
        let state = self.state();
        let stamp = found.stamp().next(state.version);
        if !self.is_quiescent(&state) {
            self.write_version_tombstone(info, older, stamp).await?;
        }
        let request = CopyRequest {
            stamp,
            by: Some(self.me().clone()),
            older: true,
            ..CopyRequest::new(&info.bucket, older)
        };
        let told = native::replica_set(&state, info, name, self.me()).all.into_iter().map(|node| {
            let request = &request;
            async move { self.remove_version_at(node, info, request).await }
        });
        try_join_all(told).await?;
        self.store().remove(history::id(info.id), older).await.map(drop)
    }

    async fn remove_version_at(
        &self,
        node: &Node,
        info: &BucketInfo,
        request: &CopyRequest,
    ) -> Result<()> {
        let told = tokio::select! {
            told = self.0.peer.post_json::<_, ()>(&node.url, REMOVE_PATH, request) => told,
            // The tombstone here reaches that target when it is back.
            () = self.death_of(&node.id) => return Ok(()),
        };
        let told = told.map_err(Error::from);
        told.map_err(|e| match e.code {
            ErrorCode::WrongOwner | ErrorCode::Unavailable => e,
            _ => {
                let uri = info.bucket.object_uri(&request.name);
                let text = format!("target {} does not remove a version of {uri}: {e}", node.id);
                Error::unavailable(text)
            }
        })
    }

    /// The object's owner, another target, removed this version.
    pub(super) async fn version_removed(
        &self,
        which: Which<'_>,
        request: &CopyRequest,
    ) -> Result<()> {
        let _guard = self.local().lock_key(which.key().bucket_id, which.name).await;
        let state = self.state();
        if let Some(by) = &request.by {
            native::check_writer(&state, which.info, which.object(), by)?;
        }
        if native::notes_removal(&state, which.info, which.object(), self.me())
            && self.version_tombstone(which.info, which.name).await? < Some(request.stamp)
        {
            self.write_version_tombstone(which.info, which.name, request.stamp).await?;
        }
        self.store().remove(which.key().bucket_id, which.name).await.map(drop)
    }

    async fn write_version_tombstone(
        &self,
        info: &BucketInfo,
        older: &str,
        stamp: Stamp,
    ) -> Result<()> {
        self.note_removal(info, older, stamp, true).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::history::VERSION;
    use forebay_core::s3::bodies::Versioning;
    use forebay_core::{Bucket, Provider};

    use super::*;

    #[test]
    fn what_replaced_a_version_is_not_taken_for_it_and_a_version_that_moves_is_not_missing() {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        let mut newer = ObjectMeta::default();
        newer.custom.insert(VERSION.into(), "b".into());
        let missing = Error::new(ErrorCode::ObjectNotFound, "none");
        let mut looks = VersionLooks::default();
        assert!(!looks.again(&info, Some("null"), Err(&missing)).unwrap(), "there are none");
        info.s3.versioning = Versioning::Enabled;
        assert!(!looks.again(&info, None, Ok(&newer)).unwrap());
        assert!(!looks.again(&info, Some("b"), Ok(&newer)).unwrap());
        assert!(looks.again(&info, Some("a"), Ok(&newer)).unwrap());
        assert!(looks.again(&info, Some("a"), Err(&missing)).unwrap());
        let mut looks = VersionLooks::default();
        let again = (0..LOOKS).map(|_| looks.again(&info, Some("a"), Err(&missing))).last();
        assert_eq!(again.unwrap().unwrap_err().code, ErrorCode::Unavailable);
    }
}
