//! Finds the newest version of an object in any form, and brings it here whole.

use std::collections::BTreeSet;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyLook, CopyRequest, Stamp};
use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, ErrorCode, NodeId, Result, placement};

use super::newest::{Newest, newest};
use super::rebuild::{Part, too_few};
use crate::object::Key;
use crate::object::replication::Replication;
use crate::object::replication::neighbor::silent;
use crate::object::replication::transfer::REMOVE_PATH;
use crate::store::Record;

/// The result of looking for an object.
#[derive(Debug, Default)]
pub(super) struct Sought {
    pub(super) record: Option<Record>,
    /// Its last removal, as far as known.
    pub(super) removed: Option<Stamp>,
}

impl Replication {
    /// Brings the newest available version of an object here. `None` only if no target that may
    /// have one has any.
    pub(in crate::object) async fn newest_form(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        Ok(self.sought(info, name).await?.record)
    }

    /// As [`Self::newest_form`], with the last known removal.
    pub(super) async fn sought(&self, info: &BucketInfo, name: &str) -> Result<Sought> {
        let (nodes, found, removed) = self.seek(info, name).await?;
        let Some(stamp) = found.stamp else {
            if let Some(removed) = removed {
                self.remove_older(info, name, removed).await?;
            }
            let record = self.store().get(info.id, name).await?;
            return Ok(Sought { record, removed });
        };
        let uri = info.bucket.object_uri(name);
        if let Some((there, needed)) = found.short {
            if found.lost {
                let text = format!("{uri} is lost: {there} of {needed} slices are left");
                return Err(Error::new(ErrorCode::Corrupt, text)
                    .hint("there is no other copy: write the object again, or delete it"));
            }
            let why = Error::unavailable("the others are not there");
            return Err(too_few(&uri, there, needed, &why));
        }
        let mut failure = None;
        for at in found.whole {
            let Some(node) = &nodes[at] else {
                let record = self.store().get(info.id, name).await?;
                return Ok(Sought { record, removed });
            };
            match self.fetch_copy(info, name, node, false).await {
                Ok(record) => return Ok(Sought { record: Some(record), removed }),
                Err(e) => failure = Some(e),
            }
        }
        if let Some(e) = failure.filter(|_| found.slices.is_empty()) {
            return Err(e);
        }
        let parts: Vec<Part> =
            found.slices.into_iter().map(|(at, slice)| (nodes[at].clone(), slice)).collect();
        let record = self.rebuild((info, name), stamp, parts, None).await?;
        Ok(Sought { record: Some(record), removed })
    }

    /// Looks for an object on all targets that may have something of it. Returns the nodes, the
    /// newest version, and the last removal. If this target is the owner, the object is locked
    /// meanwhile.
    async fn seek(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<(Vec<Option<Node>>, Newest, Option<Stamp>)> {
        let state = self.state();
        let owns = |state: &ClusterState| {
            placement::owner(state, info, name).is_ok_and(|n| n.id == *self.me())
        };
        // Only the owner locks: two targets that lock and look would wait for each other.
        let guard = match owns(&state) {
            true => Some(self.local().locks.lock(&Key::new(info, name)).await),
            false => None,
        };
        let state = self.state();
        let own = self.peek(info, &self.in_part(info, name)).await?;
        let lags = info.has_copies() && self.lags(&state);
        // A target that missed nothing and has some form of the object knows its state; one that
        // has none must ask the other candidates.
        let must: BTreeSet<NodeId> = match own.newest() {
            Some(_) if !lags => BTreeSet::new(),
            Some(_) => ids(self.lookup_peers(info, name)),
            None => ids(self.who_has_what_is_missing(info, name)?),
        };
        let nothing = own.newest().is_none() && must.is_empty();
        if nothing || own.removed.is_some() && own.removed >= own.newest() && !lags {
            let removed = own.removed;
            return Ok((vec![None], newest(&[own], |_| false), removed));
        }
        let asked = self.who_has_any_form(info, name);
        let all = 1 + asked.len();
        let answers = self.look_elsewhere(info, name, asked).await;
        let told = |id: &NodeId| answers.iter().any(|(node, a)| node.id == *id && a.is_ok());
        let missing = must.iter().any(|id| !told(id));
        let anything = answers.iter().any(|(_, a)| a.as_ref().is_ok_and(|a| a.newest().is_some()));
        if missing
            && (lags || own.newest().is_none() && !anything)
            && let Some(e) = silent(info, name, &answers)
        {
            return Err(e);
        }
        let (mut nodes, mut looks) = (vec![None], vec![own]);
        for (node, answer) in answers {
            if let Ok(look) = answer {
                nodes.push(Some(node));
                looks.push(look);
            }
        }
        let removed = looks.iter().filter_map(|look| look.removed).max();
        let owns = guard.is_some() && owns(&state);
        let mut found = newest(&looks, |stamp| {
            // The owner, which holds the lock, can decide that.
            owns && self.was_never_told(&state, (info, name), stamp, (&nodes, &looks))
        });
        self.undo(info, name, &found.undone, &nodes).await?;
        // All targets that could have the other slices have responded.
        found.lost = found.short.is_some()
            && looks.len() == all
            && looks.iter().all(|look| !look.may_lack && !look.damaged);
        Ok((nodes, found, removed))
    }

    /// Whether a write was certainly not acknowledged: an acknowledged one reached all living
    /// holders, and here a holder that missed nothing since does not have it.
    fn was_never_told(
        &self,
        state: &ClusterState,
        (info, name): (&BucketInfo, &str),
        stamp: Stamp,
        (nodes, looks): (&[Option<Node>], &[CopyLook]),
    ) -> bool {
        if !state.is_in_place(info) && stamp.epoch < state.targets_changed {
            return false;
        }
        let digest = placement::digest_in(&info.bucket, name);
        let holders = placement::holders(state, info, digest);
        nodes.iter().zip(looks).any(|(node, look)| {
            let id = node.as_ref().map_or(self.me(), |node| &node.id);
            let has = look.there == Some(stamp) || look.slices.iter().any(|s| s.stamp == stamp);
            !has && !look.may_lack && holders.iter().any(|n| n.id == *id && n.alive && !n.lagging)
        })
    }

    /// Drops the remains of incomplete writes, so that they are not found again. The caller holds
    /// the object's lock.
    async fn undo(
        &self,
        info: &BucketInfo,
        name: &str,
        undone: &[Stamp],
        nodes: &[Option<Node>],
    ) -> Result<()> {
        if undone.is_empty() {
            return Ok(());
        }
        self.drop_slices(info, name, |stamp| undone.contains(&stamp)).await?;
        for stamp in undone {
            let request = CopyRequest {
                stamp: *stamp,
                by: Some(self.me().clone()),
                undone: true,
                ..CopyRequest::new(&info.bucket, name)
            };
            for node in nodes.iter().flatten() {
                let told: std::result::Result<(), _> =
                    self.0.peer.post_json(&node.url, REMOVE_PATH, &request).await;
                if let Err(e) = told {
                    tracing::debug!(name, node = %node.id, "slices of nothing stay for now: {e}");
                }
            }
        }
        Ok(())
    }

    /// The looks at an object of this target and of all others that respond.
    pub(super) async fn look_at_all(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> (Vec<Option<Node>>, Vec<CopyLook>) {
        let (mut nodes, mut looks) = (Vec::new(), Vec::new());
        if let Ok(own) = self.peek(info, &self.in_part(info, name)).await {
            nodes.push(None);
            looks.push(own);
        }
        let others = self.who_has_any_form(info, name).into_iter().filter(|node| node.alive);
        for (node, answer) in self.look_elsewhere(info, name, others.collect()).await {
            if let Ok(look) = answer {
                nodes.push(Some(node));
                looks.push(look);
            }
        }
        (nodes, looks)
    }

    fn in_part(&self, info: &BucketInfo, name: &str) -> CopyRequest {
        CopyRequest { in_part: true, ..CopyRequest::new(&info.bucket, name) }
    }

    /// The other targets that may have some form of an object.
    fn who_has_any_form(&self, info: &BucketInfo, name: &str) -> Vec<Node> {
        let state = self.state();
        let digest = placement::digest_in(&info.bucket, name);
        let nodes: Vec<Node> = match state.is_in_place(info) {
            true => placement::holders(&state, info, digest).into_iter().cloned().collect(),
            false => state.holding_targets().cloned().collect(),
        };
        nodes.into_iter().filter(|node| node.id != *self.me()).collect()
    }
}

fn ids(nodes: Vec<Node>) -> BTreeSet<NodeId> {
    nodes.into_iter().map(|node| node.id).collect()
}
