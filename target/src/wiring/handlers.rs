//! Builds the handlers of a target: each gets the services that it uses, with its routes.

use std::sync::Arc;

use forebay_client::PeerClient;
use forebay_core::cloud_rules::CloudRules;
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::metrics::Metrics;
use forebay_node::relay::Relay;
use forebay_node::routing::GuardedRouter;
use forebay_node::s3::S3Door;
use forebay_node::trace::{self, Tracer};
use forebay_node::traffic::StreamLimit;

use crate::batch::Loader;
use crate::batch::budget::Budget;
use crate::disks::DiskAdmin;
use crate::download::Downloads;
use crate::etl::Etls;
use crate::http::batch::{self, BatchApi, GetBatchApi};
use crate::http::blobs::BlobsApi;
use crate::http::buckets::{self, BucketsApi};
use crate::http::builds::{self, BuildsApi};
use crate::http::copies::{self, CopiesApi};
use crate::http::daemon::{self, DaemonApi};
use crate::http::etl::{self, TransformsApi};
use crate::http::inventory::{self, InventoriesApi};
use crate::http::listing::{self, ListingApi};
use crate::http::object_actions::ObjectActions;
use crate::http::object_get::ObjectReads;
use crate::http::object_write::ObjectWrites;
use crate::http::objects::ObjectsApi;
use crate::http::owner::OwnerCheck;
use crate::http::prestop::{self, PrestopApi};
use crate::http::remote_writes::{self, RemoteWritesApi};
use crate::http::shard::{self, ShardsApi};
use crate::http::synced::Synced;
use crate::http::{Front, download, jobs, promote, uploads};
use crate::job::Jobs;
use crate::job::build::builds::Builds;
use crate::object::ObjectService;
use crate::promote::Promotions;
use crate::s3::S3Api;
use crate::shard::Shards;
use crate::state_sync::StateSync;

/// The services that the handlers are built from.
pub(super) struct Services {
    pub(super) objects: ObjectService,
    pub(super) disks: DiskAdmin,
    pub(super) shards: Shards,
    pub(super) jobs: Jobs,
    pub(super) etls: Etls,
    pub(super) downloads: Downloads,
    pub(super) builds: Builds,
    pub(super) promotions: Promotions,
    pub(super) batches: Budget,
    pub(super) door: S3Door,
    pub(super) relay: Relay,
    pub(super) identity: Identity,
    pub(super) sync: StateSync,
    pub(super) peer: PeerClient,
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    pub(super) lifecycle: Lifecycle,
    /// `cluster.gateways` of the configuration.
    pub(super) gateways: Vec<String>,
}

impl Services {
    /// Gives each handler the services that it uses.
    pub(super) fn front(self) -> Front {
        let owner = OwnerCheck { maps: self.sync.maps.clone(), identity: self.identity.clone() };
        let shards = ShardsApi {
            objects: self.objects.clone(),
            shards: self.shards.clone(),
            owner: owner.clone(),
            lifecycle: self.lifecycle.clone(),
        };
        let transforms = TransformsApi { etls: self.etls.clone(), maps: self.sync.maps.clone() };
        let router =
            self.of_clients(&shards, &transforms).merge(self.of_nodes(&owner, &transforms));
        let objects = self.objects_api(owner, shards, transforms);
        let s3 = S3Api {
            objects: self.objects,
            maps: self.sync.maps.clone(),
            door: self.door,
            relay: self.relay,
            sync: self.sync,
        };
        Front::new(objects, s3, router)
    }

    fn objects_api(
        &self,
        owner: OwnerCheck,
        shards: ShardsApi,
        transforms: TransformsApi,
    ) -> ObjectsApi {
        let blobs = BlobsApi {
            objects: self.objects.clone(),
            jobs: self.jobs.clone(),
            owner: owner.clone(),
            lifecycle: self.lifecycle.clone(),
        };
        ObjectsApi {
            reads: Arc::new(ObjectReads {
                objects: self.objects.clone(),
                shards: shards.clone(),
                transforms,
                blobs: blobs.clone(),
            }),
            writes: ObjectWrites {
                objects: self.objects.clone(),
                owner: owner.clone(),
                actions: ObjectActions {
                    objects: self.objects.clone(),
                    etls: self.etls.clone(),
                    maps: self.sync.maps.clone(),
                },
                shards,
            },
            blobs,
            owner,
            sync: self.sync.clone(),
        }
    }

    /// The routes of clients, and of requests about the node.
    fn of_clients(&self, shards: &ShardsApi, transforms: &TransformsApi) -> GuardedRouter {
        let maps = &self.sync.maps;
        let batches = BatchApi {
            loader: Loader {
                service: self.objects.clone(),
                shards: self.shards.clone(),
                me: self.identity.id.clone(),
                cloud: CloudRules::default(),
            },
            budget: self.batches.clone(),
            lifecycle: self.lifecycle.clone(),
        };
        let get_batch = GetBatchApi {
            batches: batches.clone(),
            jobs: self.jobs.clone(),
            maps: maps.clone(),
            peer: self.peer.clone(),
        };
        let daemon = DaemonApi {
            maps: maps.clone(),
            identity: self.identity.clone(),
            objects: self.objects.clone(),
            disks: self.disks.clone(),
            metrics: self.metrics.clone(),
            lifecycle: self.lifecycle.clone(),
            streams: StreamLimit::default(),
        };
        GuardedRouter::default()
            .merge(batch::routes().with_state(self.synced(batches)))
            .merge(batch::get_batch_routes().with_state(self.synced(get_batch)))
            .merge(shard::routes().with_state(self.synced(shards.clone())))
            .merge(etl::pull_routes().with_state(transforms.clone()))
            .merge(daemon::routes().with_state(daemon.clone()))
            .merge(trace::routes().with_state(self.tracer.clone()))
            .merge(daemon::commands().with_state(self.synced(daemon)))
    }

    /// The routes of gateways and of other targets.
    fn of_nodes(&self, owner: &OwnerCheck, transforms: &TransformsApi) -> GuardedRouter {
        let (objects, maps) = (&self.objects, &self.sync.maps);
        let listing = ListingApi {
            objects: objects.clone(),
            shards: self.shards.clone(),
            maps: maps.clone(),
        };
        let builds = BuildsApi {
            builds: self.builds.clone(),
            shards: self.shards.clone(),
            maps: maps.clone(),
        };
        let inventories = InventoriesApi {
            objects: objects.clone(),
            jobs: self.jobs.clone(),
            lifecycle: self.lifecycle.clone(),
        };
        let buckets = BucketsApi { objects: objects.clone(), maps: maps.clone() };
        let copies = CopiesApi { objects: objects.clone(), maps: maps.clone() };
        let writes = RemoteWritesApi { objects: objects.clone(), owner: owner.clone() };
        let prestop = PrestopApi {
            identity: self.identity.clone(),
            maps: maps.clone(),
            peer: self.peer.clone(),
            gateways: self.gateways.clone(),
        };
        GuardedRouter::default()
            .merge(prestop::routes().with_state(prestop))
            .merge(listing::routes().with_state(self.synced(listing)))
            .merge(uploads::routes().with_state(self.synced(objects.clone())))
            .merge(buckets::routes().with_state(self.synced(buckets)))
            .merge(jobs::routes().with_state(self.synced(self.jobs.clone())))
            .merge(copies::routes().with_state(self.synced(copies)))
            .merge(builds::routes().with_state(self.synced(builds)))
            .merge(inventory::routes().with_state(self.synced(inventories)))
            .merge(remote_writes::routes().with_state(self.synced(writes)))
            .merge(promote::routes().with_state(self.synced(self.promotions.clone())))
            .merge(etl::routes().with_state(self.synced(transforms.clone())))
            .merge(download::routes().with_state(self.synced(self.downloads.clone())))
    }

    /// The state of routes whose handlers first get the state that the sender used.
    fn synced<S>(&self, api: S) -> Synced<S> {
        Synced { api, sync: self.sync.clone() }
    }
}
