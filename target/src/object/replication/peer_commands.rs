//! The commands of the engine that are requests to other nodes.

use forebay_client::PeerClient;
use forebay_core::copies::requests::{
    EnsureRequest, LookRequest, Reason, RemoveRequest, SendRequest, SendVersionsRequest,
};
use forebay_core::copies::{CopyLook, Ensured};
use forebay_core::erasure::Form;
use forebay_core::replication::{Answer, Command, LookMode, ObsoleteForms};
use forebay_core::state::Node;
use forebay_core::{Error, NodeId, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Replication;
use super::transfer::{Outgoing, TRANSFER_TIMEOUT};
use super::work::Work;

/// Path of a look: a target's state of an object, after writes in progress have ended.
pub(super) const LOOK_PATH: &str = "/internal/v1/copy/look";
/// Path of a look that does not wait for writes in progress.
const PEEK_PATH: &str = "/internal/v1/copy/peek";
/// Path of a request to send a copy.
const SEND_PATH: &str = "/internal/v1/copy/send";
/// Path of a request to send all older versions of an object.
const SEND_VERSIONS_PATH: &str = "/internal/v1/copy/send-versions";
/// Path of a notice that older copies were superseded or removed.
pub(super) const REMOVE_PATH: &str = "/internal/v1/copy/remove";
/// Path of the request to an object's owner to bring all its forms to their places.
const ENSURE_PATH: &str = "/internal/v1/copy/ensure";

impl Replication {
    /// Executes a command that is a request to another node; `None` if it is none.
    pub(super) async fn execute_request(
        &self,
        work: &Work<'_>,
        command: &Command,
    ) -> Option<Answer> {
        let object = || (work.info().bucket.clone(), work.name().to_owned());
        let older = work.is_older_version();
        Some(match command {
            Command::Look { to, mode } => {
                let (path, in_part) = match mode {
                    LookMode::Final => (LOOK_PATH, false),
                    LookMode::FinalInPart => (LOOK_PATH, true),
                    LookMode::Immediate => (PEEK_PATH, false),
                    LookMode::ImmediateInPart => (PEEK_PATH, true),
                };
                let (bucket, name) = object();
                let request = LookRequest { bucket, name, in_part, older };
                self.ask::<CopyLook>(to, path, &request).await.map_or_else(refused, Answer::Look)
            }
            Command::Fetch { from, anew } => {
                let (bucket, name) = object();
                let request = SendRequest { bucket, name, by: self.me().clone(), anew: *anew };
                let peer = self.0.peer.with_idle_timeout(TRANSFER_TIMEOUT);
                self.ask_by::<()>(&peer, from, SEND_PATH, &request).await.map_or_else(refused, done)
            }
            Command::Send { to, copy, form: Form::Whole, written } => {
                let sent = async |node: &Node| {
                    let record = self.record_of(work, *copy).await?;
                    let outgoing = Outgoing { info: work.info(), name: work.name(), older };
                    self.send(node, outgoing, &record, *written).await
                };
                self.until_death(to, sent).await.map_or_else(refused, done)
            }
            Command::RemoveOlder { to, removal } => {
                let (stamp, by) = (removal.stamp, removal.by.clone());
                let reason = if removal.written { Reason::Superseded } else { Reason::Deleted };
                let (bucket, name) = object();
                let request = RemoveRequest { bucket, name, stamp, by, reason, older };
                self.ask::<()>(to, REMOVE_PATH, &request).await.map_or_else(refused, done)
            }
            Command::DropForms { to, forms, by } => {
                let (stamp, reason) = match *forms {
                    ObsoleteForms::Before(stamp) => (stamp, Reason::Replaced),
                    ObsoleteForms::Unacknowledged(stamp) => (stamp, Reason::Undone),
                };
                let by = by.clone();
                let (bucket, name) = object();
                let request = RemoveRequest { bucket, name, stamp, by, reason, older: false };
                self.ask::<()>(to, REMOVE_PATH, &request).await.map_or_else(refused, done)
            }
            Command::Ensure { to, stamp } => {
                let (bucket, name) = object();
                let request = EnsureRequest { bucket, name, stamp: *stamp };
                let peer = self.0.peer.with_idle_timeout(TRANSFER_TIMEOUT);
                let ensured = self.ask_by::<Ensured>(&peer, to, ENSURE_PATH, &request).await;
                ensured.map_or_else(refused, Answer::Ensured)
            }
            Command::FetchVersions { from } => {
                let (bucket, name) = object();
                let request = SendVersionsRequest { bucket, name, by: self.me().clone() };
                let peer = self.0.peer.with_idle_timeout(TRANSFER_TIMEOUT);
                let sent = self.ask_by::<()>(&peer, from, SEND_VERSIONS_PATH, &request).await;
                sent.map_or_else(refused, done)
            }
            _ => return None,
        })
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        to: &NodeId,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, Refusal> {
        self.ask_by(&self.0.peer, to, path, request).await
    }

    async fn ask_by<T: DeserializeOwned>(
        &self,
        peer: &PeerClient,
        to: &NodeId,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, Refusal> {
        self.until_death(to, async |node: &Node| {
            peer.post_json(&node.url, path, request).await.map_err(Error::from)
        })
        .await
    }

    /// The result of a request to a node; its death ends the wait.
    pub(super) async fn until_death<T>(
        &self,
        to: &NodeId,
        request: impl AsyncFnOnce(&Node) -> Result<T>,
    ) -> Result<T, Refusal> {
        let state = self.state();
        let Some(node) = state.node(to).filter(|node| node.alive) else {
            return Err(Refusal::Died);
        };
        tokio::select! {
            answer = request(node) => answer.map_err(Refusal::Failed),
            () = self.death_of(to) => Err(Refusal::Died),
        }
    }

    /// Returns when the map has a node dead or removed.
    pub(super) async fn death_of(&self, id: &NodeId) {
        let mut changes = self.local().maps.subscribe();
        while self.state().node(id).is_some_and(|node| node.alive) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Why a request has no result.
pub(super) enum Refusal {
    /// The node is dead or removed.
    Died,
    Failed(Error),
}

pub(super) fn refused(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::Died => Answer::Died,
        Refusal::Failed(e) => Answer::Failed(e),
    }
}

pub(super) fn done((): ()) -> Answer {
    Answer::Done
}
