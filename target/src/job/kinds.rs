//! The kinds of jobs that the runner runs; the only place that distinguishes them.

use std::sync::Arc;

use forebay_clouds::egress::WebRules;
use forebay_core::job::{CopyTask, JobKind, JobSpec, Task};

use super::archive::Archive;
use super::cleanup::Cleanup;
use super::copy::CopyObjects;
use super::delete::Delete;
use super::dsort::Dsort;
use super::evict::Evict;
use super::index_shard::IndexShard;
use super::ishard::Ishard;
use super::load_metadata::LoadMetadata;
use super::lru::Lru;
use super::prefetch::Prefetch;
use super::rebalance::Rebalance;
use super::resilver::Resilver;
use super::run::Job;
use super::runner::{Jobs, MakeJob};
use super::scrub::Scrub;
use super::unserved::Unserved;
use super::walk::{EachObject, ObjectJob};
use super::write_back::WriteBack;
use crate::etl::Etls;
use crate::object::ObjectService;
use crate::shard::Shards;

/// The services that kinds of jobs use.
pub(crate) struct Kinds {
    objects: ObjectService,
    shards: Shards,
    etls: Etls,
    /// Destinations of URLs of callers.
    web: WebRules,
    /// Held while objects are moved to where they belong.
    moving: Arc<tokio::sync::Mutex<()>>,
}

impl Kinds {
    pub(crate) fn new(objects: ObjectService, shards: Shards, etls: Etls, web: WebRules) -> Self {
        Self { objects, shards, etls, web, moving: Arc::default() }
    }

    /// Makes the kind of each job that `jobs` runs.
    pub(crate) fn factory(self) -> MakeJob {
        Box::new(move |spec, jobs| self.make(spec, jobs))
    }

    fn make(&self, spec: &JobSpec, jobs: &Jobs) -> Box<dyn Job> {
        let objects = self.objects.clone();
        match (spec.kind, &spec.task) {
            (JobKind::Prefetch, task) => self.each(Prefetch::new(task, jobs)),
            (JobKind::Evict, _) => self.each(Evict),
            (JobKind::Delete, _) => self.each(Delete),
            (JobKind::Scrub, _) => self.each(Scrub),
            (JobKind::IndexShard, _) => self.each(IndexShard { shards: self.shards.clone() }),
            (JobKind::Ishard, _) => Box::new(Ishard { objects }),
            (JobKind::Dsort, _) => Box::new(Dsort { objects, web: self.web.clone() }),
            (JobKind::Archive, _) => Box::new(Archive { objects, shards: self.shards.clone() }),
            (JobKind::Lru, _) => Box::new(Lru { objects }),
            (JobKind::Cleanup, _) => Box::new(Cleanup { objects }),
            (JobKind::Resilver, _) => Box::new(Resilver { objects }),
            (JobKind::LoadMetadata, _) => Box::new(LoadMetadata),
            (JobKind::Rebalance, _) => self.rebalance(Some(jobs.clone())),
            (JobKind::MoveBucket | JobKind::MakeCopies | JobKind::EcEncode, _) => {
                self.rebalance(None)
            }
            (JobKind::WriteBack, Task::Copy(task)) => {
                self.each(WriteBack { task: CopyTask::clone(task) })
            }
            (_, Task::Copy(task)) => {
                self.each(CopyObjects { task: CopyTask::clone(task), etls: self.etls.clone() })
            }
            _ => self.each(Unserved),
        }
    }

    fn each(&self, kind: impl ObjectJob + 'static) -> Box<dyn Job> {
        Box::new(EachObject { objects: self.objects.clone(), kind })
    }

    fn rebalance(&self, replaces: Option<Jobs>) -> Box<dyn Job> {
        let (objects, moving) = (self.objects.clone(), self.moving.clone());
        Box::new(Rebalance { objects, replaces, moving })
    }
}
