//! The transport between the gateways of a group: signed POSTs, one path per kind of message.

use std::io::Cursor;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_core::state::ClusterState;
use forebay_core::{Error, Result};
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, BasicNode, OptionalSend, Snapshot};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::encode;
use super::state_machine::unpacked;
use super::{Raft, SnapshotMeta, Types, Vote};

pub(crate) const APPEND_PATH: &str = "/internal/v1/raft/append";
pub(crate) const VOTE_PATH: &str = "/internal/v1/raft/vote";
pub(crate) const SNAPSHOT_PATH: &str = "/internal/v1/raft/snapshot";

/// Pause before an unreachable gateway is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// Timeout for installing a snapshot.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(10);

/// A whole snapshot. It is small: the state of a cluster, without its objects.
#[derive(Serialize, Deserialize)]
struct SnapshotMessage {
    vote: Vote,
    meta: SnapshotMeta,
    state: ClusterState,
    /// Checksum of the state as the sender has it. A gateway that decodes another state from it
    /// (because it does not know a field yet) must not install it.
    sum: u32,
}

/// Answers a message of another gateway.
pub(crate) async fn answer(raft: &Raft, path: &str, body: &Bytes) -> Result<Value> {
    match path {
        APPEND_PATH => reply(raft.append_entries(parse(body)?).await),
        VOTE_PATH => reply(raft.vote(parse(body)?).await),
        _ => {
            let SnapshotMessage { vote, meta, state, sum } = parse(body)?;
            let record = encode(&state)?;
            if checksum(&record) != Some(sum) {
                return Err(Error::internal("the snapshot is not what the other gateway has")
                    .hint("run the same version of forebay on all gateways"));
            }
            let snapshot = Snapshot { meta, snapshot: Box::new(Cursor::new(record)) };
            reply(raft.install_full_snapshot(vote, snapshot).await)
        }
    }
}

fn reply<T: Serialize, E: std::fmt::Display>(answer: Result<T, E>) -> Result<Value> {
    let answer =
        answer.map_err(|e| Error::unavailable(format!("this gateway cannot vote: {e}")))?;
    serde_json::to_value(answer)
        .map_err(|e| Error::internal(format!("an answer does not serialize: {e}")))
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("unreadable message of a gateway: {e}")))
}

/// The checksum at the start of a record.
fn checksum(record: &[u8]) -> Option<u32> {
    record.first_chunk().map(|sum| u32::from_le_bytes(*sum))
}

/// Creates the links to other gateways.
pub(crate) struct Network {
    peer: PeerClient,
}

impl Network {
    pub(crate) fn new(peer: PeerClient) -> Self {
        Self { peer }
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, _target: u64, node: &BasicNode) -> Link {
        Link { peer: self.peer.clone(), url: node.addr.clone(), silent: false }
    }
}

/// The link to one other gateway.
pub(crate) struct Link {
    peer: PeerClient,
    url: String,
    /// Whether a log line already reports that it does not answer.
    silent: bool,
}

impl Link {
    async fn post<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &Q,
    ) -> Result<A, Unreachable> {
        let answer = self.peer.post_json(&self.url, path, request).await;
        if answer.is_err() != self.silent {
            self.silent = answer.is_err();
            match &answer {
                Ok(_) => tracing::info!(gateway = self.url, "gateway answers again"),
                Err(e) => tracing::debug!(gateway = self.url, error = %e, "gateway is silent"),
            }
        }
        answer.map_err(|e| Unreachable::new(&e))
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Ok(self.post(APPEND_PATH, &rpc).await?)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Ok(self.post(VOTE_PATH, &rpc).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let record = snapshot.snapshot.get_ref();
        let state = unpacked(record).map_err(|e| NetworkError::new(&e))?;
        let sum = checksum(record).unwrap_or_default();
        let message = SnapshotMessage { vote, meta: snapshot.meta, state, sum };
        let sent = tokio::time::timeout(SNAPSHOT_WITHIN, self.post(SNAPSHOT_PATH, &message));
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = sent => match sent {
                Ok(answer) => Ok(answer?),
                Err(late) => Err(NetworkError::new(&late).into()),
            },
        }
    }

    async fn install_snapshot(
        &mut self,
        _rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, openraft::error::InstallSnapshotError>>,
    > {
        let e = AnyError::error("snapshots are sent whole, by full_snapshot");
        Err(NetworkError::from(e).into())
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(TRY_AGAIN_AFTER))
    }
}
