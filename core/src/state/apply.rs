//! The state machine: the effect of each command on the state.

use std::sync::Arc;

use super::{ClusterState, Command, Leaving, Node, NodeKeyRecord, Role};
use crate::bucket::BucketInfo;
use crate::cache_rules::check_min_shares;
use crate::error::{Error, ErrorCode, Result};
use crate::etl::{etl_exists, unknown_etl};
use crate::name::{Bucket, NodeId};

impl ClusterState {
    /// Applies the command logged at `index`.
    ///
    /// A refused command changes only the version, so that all replicas stay equal.
    pub fn apply(&mut self, index: u64, command: Command) -> Result<()> {
        self.version = index;
        match command {
            Command::Init { cluster_id, now_ns } => {
                if !self.cluster_id.is_empty() {
                    return Err(Error::new(ErrorCode::Conflict, "the cluster has an id already"));
                }
                self.cluster_id = cluster_id;
                self.created_ns = now_ns;
                self.next_bucket_id = 1;
            }
            Command::Join { id, role, url, weight, zone, instance, https, external } => {
                let known = self.nodes.get(&id);
                if known.is_some_and(|n| n.role != role) {
                    return Err(Error::new(
                        ErrorCode::Conflict,
                        format!("node {id} is known with another role"),
                    ));
                }
                let known = known.cloned();
                let (maintenance, emptied, leaving) = match &known {
                    // If an operator restarted a stopped node, it is needed again.
                    Some(n) => {
                        (n.maintenance, n.emptied, n.leaving.filter(|l| *l == Leaving::Remove))
                    }
                    None => (false, false, None),
                };
                let lagging = known.as_ref().is_some_and(|n| n.lagging) && self.has_copies();
                if role == Role::Target && known.is_none() {
                    self.places_changed(index);
                }
                let node = Node {
                    id: id.clone(),
                    role,
                    url,
                    alive: true,
                    alive_since: index,
                    weight,
                    zone,
                    maintenance,
                    emptied,
                    lagging,
                    leaving,
                    instance,
                    https,
                    external,
                };
                self.nodes.insert(id, node);
            }
            Command::SetAlive { id, alive, yields } => {
                let has_copies = self.has_copies();
                let node = self.nodes.get_mut(&id).ok_or_else(|| unknown_node(&id))?;
                if alive && !node.alive {
                    node.alive_since = index;
                    node.lagging &= has_copies;
                }
                node.lagging |= (!alive || yields && has_copies) && node.role == Role::Target;
                node.alive = alive;
            }
            Command::Remove { id } => {
                let node = self.nodes.remove(&id).ok_or_else(|| unknown_node(&id))?;
                if self.node_keys.get(id.as_str()).is_some() {
                    Arc::make_mut(&mut self.node_keys).keys.remove(&id);
                }
                if node.role == Role::Target && !node.maintenance {
                    self.places_changed(index);
                }
            }
            Command::CreateBucket { mut info, now_ns } => {
                let uname = info.bucket.uname();
                self.check_free(&info.bucket)?;
                self.check_width(&info)?;
                self.check_min_share(&info)?;
                info.id = self.next_bucket_id;
                info.created_ns = now_ns;
                info.created_version = index;
                self.next_bucket_id += 1;
                self.buckets.insert(uname, info.into());
            }
            Command::SetBucket { info } => {
                let now = self.buckets.get(&info.bucket.uname());
                if now.is_some_and(|now| now.erasure != info.erasure) {
                    self.check_width(&info)?;
                }
                if now.is_some_and(|now| now.cache.min_share != info.cache.min_share) {
                    self.check_min_share(&info)?;
                }
                let known = self
                    .buckets
                    .get_mut(&info.bucket.uname())
                    .filter(|known| known.id == info.id)
                    .ok_or_else(|| info.bucket.not_found())?;
                let moves = known.copies != info.copies || known.erasure != info.erasure;
                *known = info.into();
                if moves {
                    self.targets_changed = index;
                }
            }
            Command::DestroyBucket { bucket } => {
                self.buckets.remove(&bucket.uname()).ok_or_else(|| bucket.not_found())?;
            }
            Command::Configure { change, reset, now_ns } => {
                self.settings.apply(&change, reset, now_ns)?;
            }
            Command::SetMaintenance { id, on } => {
                self.maintain(index, &id, on, None)?;
            }
            Command::Retire { id, leaving } => {
                self.maintain(index, &id, true, Some(leaving))?;
            }
            Command::RebalanceComplete { placed, repaired } => {
                for (id, since) in repaired {
                    if let Some(node) = self.nodes.get_mut(&id) {
                        node.lagging &= !(node.alive && node.alive_since == since);
                    }
                }
                self.rebalanced_version =
                    self.rebalanced_version.max(placed.min(self.targets_changed));
                if self.is_rebalance_complete() {
                    for node in self.nodes.values_mut().filter(|n| n.maintenance) {
                        node.emptied = true;
                    }
                }
            }
            Command::RenameBucket { from, to } => {
                if self.bucket(&from)?.has_backend() || to.provider != from.provider {
                    return Err(Error::invalid(format!(
                        "cannot rename \"{from}\" to \"{to}\": only native buckets are renamed"
                    )));
                }
                self.check_free(&to)?;
                if let Some(mut shared) = self.buckets.remove(&from.uname()) {
                    let info = Arc::make_mut(&mut shared);
                    // Names determine ownership: from now on objects are on former owners.
                    info.created_version = 0;
                    info.bucket = to;
                    self.buckets.insert(info.bucket.uname(), shared);
                    self.targets_changed = index;
                }
            }
            Command::CreateEtl { etl } => {
                if self.etls.contains_key(&etl.name) {
                    return Err(etl_exists(&etl.name));
                }
                self.etls.insert(etl.name.clone(), *etl);
            }
            Command::SetEtl { etl } => {
                let known = self.etls.get_mut(&etl.name).ok_or_else(|| unknown_etl(&etl.name))?;
                *known = *etl;
            }
            Command::DeleteEtl { name } => {
                self.etls.remove(&name).ok_or_else(|| unknown_etl(&name))?;
            }
            Command::AttachCluster { alias, url, endpoint_trust } => {
                self.attach(alias, url, endpoint_trust)?;
            }
            Command::DetachCluster { alias } => self.detach(&alias)?,
            Command::NodeKey { id, role, key, now_s, token } => {
                if let Some(token) = token {
                    Arc::make_mut(&mut self.access).use_join_token(&token, &id, now_s)?;
                }
                self.record_key(id, NodeKeyRecord { role, key }, now_s);
            }
            Command::Access { change, now_ns } => {
                Arc::make_mut(&mut self.access).apply(index, *change, now_ns)?;
            }
        }
        Ok(())
    }

    /// Records a node's key. Once all members have one, they are required from then on.
    fn record_key(&mut self, id: NodeId, record: NodeKeyRecord, now_s: u64) {
        let keys = Arc::make_mut(&mut self.node_keys);
        keys.record(id, record);
        let all = self.nodes.keys().all(|id| keys.keys.contains_key(id));
        if all && !keys.are_required() {
            keys.since_s = now_s.max(1);
        }
    }

    /// Starts or ends a node's maintenance. The last target that owns objects cannot enter it.
    fn maintain(
        &mut self,
        index: u64,
        id: &NodeId,
        on: bool,
        leaving: Option<Leaving>,
    ) -> Result<()> {
        let node = self.nodes.get(id).ok_or_else(|| unknown_node(id))?;
        let is_target = node.role == Role::Target;
        if on && is_target && !self.owning_targets().any(|n| n.id != *id) {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("node {id} is the only target in use: its objects could go nowhere"),
            )
            .hint("start another target that joins this cluster first"));
        }
        let changed = node.maintenance != on;
        if let Some(node) = self.nodes.get_mut(id) {
            (node.maintenance, node.leaving) = (on, leaving);
            node.emptied &= on;
        }
        if changed && is_target {
            self.places_changed(index);
        }
        Ok(())
    }

    /// Records that placement changed; without native objects, nothing has to move.
    pub(super) fn places_changed(&mut self, index: u64) {
        let was_complete = self.is_rebalance_complete();
        self.targets_changed = index;
        if was_complete && self.buckets.values().all(|info| info.has_backend()) {
            self.rebalanced_version = index;
            for node in self.nodes.values_mut().filter(|n| n.maintenance) {
                node.emptied = true;
            }
        }
    }

    /// Returns an error if there are fewer targets than a bucket's erasure coding needs.
    fn check_width(&self, info: &BucketInfo) -> Result<()> {
        let Some(erasure) = &info.erasure else { return Ok(()) };
        let (needed, there) = (erasure.width(), self.owning_targets().count());
        if needed <= there {
            return Ok(());
        }
        let (bucket, data, parity) = (&info.bucket, erasure.data, erasure.parity);
        let text = format!(
            "bucket \"{bucket}\": {data} data and {parity} parity slices beside the whole object need \
             {needed} targets, and there are {there}"
        );
        Err(Error::new(ErrorCode::TooFewTargets, text)
            .hint("use fewer slices, or start more targets first"))
    }

    /// Returns an error if the minimum shares of all buckets would be more than the whole cache.
    fn check_min_share(&self, info: &BucketInfo) -> Result<()> {
        let others = self.buckets.values().filter(|other| other.bucket != info.bucket);
        check_min_shares(info, others.map(|other| other.cache.min_share))
    }

    /// Checks that a bucket of this name can be created.
    fn check_free(&self, bucket: &Bucket) -> Result<()> {
        if self.buckets.contains_key(&bucket.uname()) {
            return Err(Error::new(
                ErrorCode::BucketExists,
                format!("bucket \"{bucket}\" already exists"),
            ));
        }
        let namesake = self
            .buckets
            .values()
            .find(|b| b.bucket.name == bucket.name && b.bucket.namespace == bucket.namespace);
        match namesake {
            None => Ok(()),
            // S3 identifies a bucket by its name alone.
            Some(other) => Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "bucket \"{bucket}\" cannot be added: its name is taken by \"{}\"",
                    other.bucket
                ),
            )
            .hint("bucket names are unique over all providers; choose another name")),
        }
    }
}

fn unknown_node(id: &NodeId) -> Error {
    Error::new(ErrorCode::NodeNotFound, format!("node {id} is not a member of the cluster"))
}
