//! A change of the cluster's buckets: the metadata log decides it, then every live node receives
//! it, and only then is it acknowledged.

use forebay_core::audit::{Reason, SentBy};
use forebay_core::bucket::BucketInfo;
use forebay_core::state::{Command, Summary};
use forebay_core::{Error, Result};
use forebay_node::audit::Event;
use forebay_node::sender;

use crate::cluster::leadership::{LeaderWatch, Leadership};
use crate::meta::MetaLog;
use crate::meta::front::{CommandReply, RaftMeta};
use crate::meta::group::Undecided;

/// The entry point for changes from the front ends; cheap to clone.
#[derive(Clone)]
pub(crate) struct Changes {
    meta: RaftMeta,
    leadership: LeaderWatch,
}

impl Changes {
    pub(crate) fn new(meta: RaftMeta, leadership: LeaderWatch) -> Self {
        Self { meta, leadership }
    }

    /// Returns the version that contains the change. The gateway that received the request logs the
    /// change or its refusal, with the sender.
    pub(crate) async fn commit(&self, command: Command) -> Result<u64> {
        let summary = command.summary(&self.meta.state());
        let done = self.meta.propose(command).await;
        if let Some(summary) = &summary {
            log(summary, done.as_ref().copied().map(Some));
        }
        let version = done?;
        self.wait_published(version).await;
        Ok(version)
    }

    /// Refuses properties of a bucket that a member of the cluster could not read, before a part of a
    /// larger change is made.
    pub(crate) async fn check_readable(&self, info: &BucketInfo) -> Result<()> {
        // No bucket has the id 0: the leader checks the format, and nothing changes.
        let info = Box::new(BucketInfo { id: 0, ..info.clone() });
        let probe = Command::SetBucket { info };
        if probe.format() <= self.meta.state().format() {
            return Ok(());
        }
        match self.meta.propose(probe).await {
            Err(e) if e.code.status() != 404 => Err(e),
            _ => Ok(()),
        }
    }

    /// Commits a change that another gateway forwarded to this one as the leader.
    pub(crate) async fn commit_relayed(&self, command: Command) -> Result<CommandReply> {
        match self.meta.decide_here(command).await {
            Ok(version) => {
                self.wait_published(version).await;
                let state = Box::new(self.meta.state().as_ref().clone());
                Ok(CommandReply::Done { version, state })
            }
            Err(Undecided::Untouched(_)) => Ok(CommandReply::NotLeader),
            Err(Undecided::Final(e)) => Err(e),
        }
    }

    /// Only the leader knows which nodes have the version; another leader has waited already.
    async fn wait_published(&self, version: u64) {
        if let Leadership::Leading(lead) = self.leadership.now() {
            lead.publisher.wait_published(version).await;
        }
    }
}

/// Logs a change that was done or refused, with its sender, and keeps an audit record of it. `done` is
/// the version of the cluster's state that contains it, if there is one.
pub(crate) fn log(summary: &Summary, done: std::result::Result<Option<u64>, &Error>) {
    let Summary { change, subject, detail } = summary;
    sender::record(Event {
        event: change,
        subject,
        detail,
        refused: done.as_ref().err().map(|error| Reason::from(*error)),
        map_version: done.as_ref().ok().copied().flatten(),
    });
    let SentBy { from, api, user, request } = sender::origin();
    let subject = Some(subject).filter(|subject| !subject.is_empty());
    let detail = Some(detail).filter(|detail| !detail.is_empty());
    match done {
        Ok(version) => {
            tracing::info!(subject, detail, from, api, user, request, version, "{change}");
        }
        Err(error) => {
            tracing::info!(subject, detail, from, api, user, request, %error, "refused: {change}");
        }
    }
}
