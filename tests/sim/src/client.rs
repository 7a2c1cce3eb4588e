//! Clients: each sends one request after the other, to the target that its map names, and records
//! the response. A read without a response from the target goes to the second holder too, as the
//! real client does.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::state::ClusterState;
use forebay_core::{Error, ErrorCode, Result, native, placement};
use futures::future::{Either, join_all, select};

use crate::exec::{MS, Micros, SECOND};
use crate::ledger::{Act, Kind, Listing, Observation};
use crate::target::Key;
use crate::versions::{object_name, version_key, version_of};
use crate::world::{At, CLIENTS, W, World, at_of, info_in, missing_info};

/// A read goes to the second holder too after this time without a response.
const HEDGED_AFTER: Micros = 250 * MS;
const ANSWERED_WITHIN: Micros = 8 * SECOND;
const AGAIN_AFTER: Micros = 100 * MS;
/// Share of reads that are changes of metadata: the response has the value, which stays.
const METADATA_PERCENT: u64 = 10;

/// An operation of a client on one object.
#[derive(Clone, Copy)]
enum Wish {
    Get,
    Put(u64),
    Delete,
}

impl World {
    /// Runs one client until faults end.
    pub(crate) async fn client(self: W, n: usize) {
        let owner = CLIENTS + n;
        let mut map = Arc::new(ClusterState::default());
        while self.exec.now() < self.plan.safety {
            self.exec.sleep(self.exec.between(10 * MS, 400 * MS)).await;
            if map.buckets.len() < self.plan.buckets() || self.exec.percent(10) {
                self.refresh(owner, &mut map).await;
            }
            let bucket = self.exec.below(self.plan.buckets() as u64) as usize;
            let key = (bucket, format!("o{}", self.exec.below(self.plan.keys)));
            if self.plan.keeps_versions(bucket) && self.exec.percent(40) {
                self.use_version(owner, &mut map, &key).await;
                continue;
            }
            match self.exec.below(100) {
                0..45 => {
                    self.one(owner, &mut map, &key, Wish::Get).await;
                }
                45..80 => {
                    let value = self.seen.next_value();
                    self.one(owner, &mut map, &key, Wish::Put(value)).await;
                }
                80..94 => {
                    self.one(owner, &mut map, &key, Wish::Delete).await;
                }
                // A listing may lack an object that moves meanwhile, as most do in such a run.
                _ if self.plan.keeps_versions(bucket) => {}
                _ => self.list(owner, bucket).await,
            }
        }
    }

    /// Reads or removes an older version of an object.
    async fn use_version(self: &W, owner: At, map: &mut Arc<ClusterState>, object: &Key) {
        let versions = self.seen.versions_of(object);
        // The newest one is mostly the object itself.
        let older = versions.len().saturating_sub(1) as u64;
        let Some(version) = versions.get(self.exec.below(older) as usize).filter(|_| older > 0)
        else {
            return;
        };
        let wish = if self.exec.percent(30) { Wish::Delete } else { Wish::Get };
        self.one(owner, map, version, wish).await;
    }

    /// Reads every object once, when all faults are over; an error where one cannot be read.
    pub(crate) async fn read_all(self: W) -> Result<()> {
        let mut map = Arc::new(ClusterState::default());
        self.refresh(CLIENTS, &mut map).await;
        for key in self.seen.keys() {
            if self.one(CLIENTS, &mut map, &key, Wish::Get).await == Observation::Nothing {
                return Err(Error::unavailable(format!("{key:?} cannot be read")));
            }
            for version in self.seen.versions_of(&key) {
                let read = self.one(CLIENTS, &mut map, &version, Wish::Get).await;
                if read == Observation::Nothing {
                    return Err(Error::unavailable(format!("{version:?} cannot be read")));
                }
            }
        }
        for bucket in 0..self.plan.buckets() {
            self.list(CLIENTS, bucket).await;
        }
        Ok(())
    }

    async fn refresh(self: &W, owner: At, map: &mut Arc<ClusterState>) {
        let gateway = self.exec.below(self.gateways.len() as u64) as At;
        let world = self.clone();
        let newest = async move { Ok(world.state_at(gateway)) };
        if let Ok(newer) = self.call_within(SECOND, (owner, gateway), newest).await
            && newer.version > map.version
        {
            *map = newer;
        }
    }

    /// One request and its answer.
    async fn one(
        self: &W,
        owner: At,
        map: &mut Arc<ClusterState>,
        key: &Key,
        wish: Wish,
    ) -> Observation {
        let kind = match wish {
            Wish::Get => Kind::Get,
            Wish::Put(value) => Kind::Put(value),
            Wish::Delete => Kind::Delete,
        };
        let changes = kind != Kind::Get;
        let begin = self.exec.now();
        let started = if changes { self.seen.begins(key, kind == Kind::Delete) } else { 0 };
        let observed = loop {
            let answer = self.ask_owner(owner, map, key, wish).await;
            let wrong = answer.as_ref().is_err_and(|e| e.code == ErrorCode::WrongOwner);
            let late = self.exec.now() - begin > ANSWERED_WITHIN;
            match answer {
                Ok(observed) => break observed,
                // The request had no effect: the client may send it again.
                Err(_) if !late && (wrong || !changes) => {
                    self.exec.sleep(AGAIN_AFTER).await;
                    self.refresh(owner, map).await;
                }
                Err(_) => break Observation::Nothing,
            }
        };
        let act = Act { kind, observed, begin, end: self.exec.now() };
        self.note(|| format!("client {} got of {key:?}: {kind:?} {observed:?}", owner - CLIENTS));
        self.seen.answered(key, act, started);
        if let (Kind::Put(value), Observation::Done) = (kind, observed)
            && self.plan.keeps_versions(key.0)
        {
            self.seen.version_written(version_key(key, value), act);
        }
        self.check_kept(key);
        observed
    }

    async fn ask_owner(
        self: &W,
        owner: At,
        map: &Arc<ClusterState>,
        key: &Key,
        wish: Wish,
    ) -> Result<Observation> {
        let info = info_in(map, key.0).ok_or_else(missing_info)?;
        let node = placement::owner(map, &info, object_name(key));
        let (to, version) = (node.map(|n| at_of(&n.id)), map.version);
        // If the map has no living owner, no request was sent, and the operation had no effect.
        let to = to.map_err(|e| Error { code: ErrorCode::WrongOwner, ..e })?;
        let (world, asked) = (self.clone(), key.clone());
        match wish {
            Wish::Put(value) => {
                let put = async move { world.put(to, asked, value, version).await };
                let put = self.call_within(ANSWERED_WITHIN, (owner, to), put).await;
                put.map(|()| Observation::Done)
            }
            Wish::Delete => {
                let delete = async move {
                    match (version_of(&asked), world.plan.keeps_versions(asked.0)) {
                        (Some(_), _) => world.remove_version(to, asked, version).await,
                        (None, true) => world.delete_versioned(to, asked, version).await,
                        (None, false) => world.delete(to, asked, version).await,
                    }
                };
                let there = self.call_within(ANSWERED_WITHIN, (owner, to), delete).await?;
                Ok(if there { Observation::Done } else { Observation::Missing })
            }
            Wish::Get => {
                let get_version = version_of(key).is_some();
                let found =
                    |value: Option<u64>| value.map_or(Observation::Missing, Observation::Found);
                let changes_metadata = !get_version && self.exec.percent(METADATA_PERCENT);
                let get = async move {
                    match changes_metadata {
                        true => world.update(to, asked, version).await,
                        false if get_version => world.get_version(to, asked, version).await,
                        false => world.get(to, asked, version).await,
                    }
                };
                let first = Box::pin(self.call_within(ANSWERED_WITHIN, (owner, to), get));
                let hedge_target =
                    placement::hedge_target(map, &info, &key.1).map(|n| at_of(&n.id));
                let Some(second) = hedge_target.filter(|at| *at != to) else {
                    return first.await.map(found);
                };
                let late = Box::pin(self.exec.sleep(HEDGED_AFTER));
                let first = match select(first, late).await {
                    Either::Left((answer, _)) => return answer.map(found),
                    Either::Right(((), first)) => first,
                };
                let (world, asked) = (self.clone(), key.clone());
                let get = async move { world.hedged_get(second, asked, version).await };
                let second = Box::pin(self.call_within(ANSWERED_WITHIN, (owner, second), get));
                match select(first, second).await {
                    Either::Left((Ok(value), _)) | Either::Right((Ok(value), _)) => {
                        Ok(found(value))
                    }
                    Either::Left((Err(_), second)) => second.await.map(found),
                    Either::Right((Err(_), first)) => first.await.map(found),
                }
            }
        }
    }

    /// A listing, merged by a gateway of what the targets have.
    async fn list(self: &W, owner: At, bucket: usize) {
        let (begin, gateway) = (self.exec.now(), self.exec.below(self.gateways.len() as u64) as At);
        let world = self.clone();
        let listed = async move { world.merged(gateway, bucket).await };
        let listed = self.call_within(ANSWERED_WITHIN, (owner, gateway), listed).await;
        if let Ok(keys) = listed {
            let end = self.exec.now();
            self.note(|| format!("client {} got of bucket {bucket}: {keys:?}", owner - CLIENTS));
            self.seen.listed(bucket, Listing { begin, end, keys });
        }
    }

    async fn merged(self: &W, gateway: At, bucket: usize) -> Result<BTreeSet<String>> {
        let state = self.state_at(gateway);
        let info = info_in(&state, bucket).ok_or_else(missing_info)?;
        let nodes = match native::who_can_list(&state, &info) {
            Some(nodes) => nodes,
            None if state.targets().all(|n| n.alive) => state.targets().collect(),
            None => return Err(Error::unavailable("a target is down")),
        };
        let pages = nodes.into_iter().map(|node| {
            let (world, at, version) = (self.clone(), at_of(&node.id), state.version);
            let names = async move { world.names_at(at, bucket, version).await };
            self.call_within(ANSWERED_WITHIN, (gateway, at), names)
        });
        let pages: Result<Vec<Vec<String>>> = join_all(pages).await.into_iter().collect();
        Ok(pages?.into_iter().flatten().collect())
    }
}
