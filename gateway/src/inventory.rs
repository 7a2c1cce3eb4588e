//! Inventories on the gateway: lists them, finds their objects, and starts the jobs that create
//! them.

use forebay_core::inventory::{InventoryInfo, InventoryQuery, home, object_of};
use forebay_core::job::JobKind;
use forebay_core::state::Command;
use forebay_core::{Bucket, Error, ErrorCode, Provider, Result};
use forebay_node::clock::unix_ns;
use forebay_v1::inventory::{info_json, request};
use serde_json::{Map, Value};

use crate::changes::Changes;
use crate::ids;
use crate::job_control::{JobControl, JobFilter};
use crate::listing::{self, Want};
use crate::route::{Found, Route};
use crate::targets::Targets;

const CREATE: &str = "/internal/v1/inventory/create";
const INFO: &str = "/internal/v1/inventory/info";
const DESTROY: &str = "/internal/v1/inventory/destroy";
/// Maximum number of inventories shown for a bucket: there is one, or a few after a race.
const SHOWN: usize = 100;

/// The components that manage inventories.
pub(crate) struct Inventories<'a> {
    pub(crate) route: &'a Route,
    pub(crate) targets: &'a Targets,
}

impl Inventories<'_> {
    /// Starts the job that creates an inventory; returns its id. A bucket has one inventory.
    pub(crate) async fn create(
        &self,
        changes: &Changes,
        jobs: &JobControl,
        found: &Found,
        value: &Value,
    ) -> Result<String> {
        let bucket = &found.info.bucket;
        if !found.info.has_backend() {
            return Err(Error::invalid(format!("bucket \"{bucket}\" is not remote"))
                .hint("listings of buckets that live only here need no inventory"));
        }
        let (request, force) = request(value, bucket, ids::mint("job-"))?;
        let running = JobFilter {
            kind: Some(JobKind::Inventory),
            bucket: Some(bucket.clone()),
            running_only: true,
            ..JobFilter::default()
        };
        let there = self.names(found).await?;
        if !jobs.list(&running).await?.is_empty() || (!force && !there.is_empty()) {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("bucket \"{bucket}\" has an inventory already"),
            )
            .hint("force replaces it, once it is finished"));
        }
        let home = match self.route.known(&home()?) {
            Ok(home) => home,
            Err(e) if e.code == ErrorCode::BucketNotFound => self.make_home(changes).await?,
            Err(e) => return Err(e),
        };
        for name in there {
            self.destroy_object(&home, &name).await?;
        }
        let object = object_of(bucket, &request.name)?;
        let owner = home.owner(object.as_str())?;
        self.targets.post::<_, Value>(owner, CREATE, &request).await?;
        Ok(request.id)
    }

    async fn make_home(&self, changes: &Changes) -> Result<Found> {
        let home = home()?;
        let info = Box::new(self.route.state().requested(home.clone(), None));
        match changes.commit(Command::CreateBucket { info, now_ns: unix_ns() }).await {
            Err(e) if e.code != ErrorCode::BucketExists => Err(e),
            _ => self.route.known(&home),
        }
    }

    /// The names of the objects that hold the bucket's inventories.
    async fn names(&self, found: &Found) -> Result<Vec<String>> {
        let home = match self.route.known(&home()?) {
            Err(e) if e.code == ErrorCode::BucketNotFound => return Ok(Vec::new()),
            other => other?,
        };
        let prefix = found.info.bucket.uname();
        let want = Want { prefix, limit: SHOWN, ..Want::default() };
        let page = listing::page(self.targets, &home, &want).await?;
        Ok(page.rows.into_iter().map(|r| r.entry.name).collect())
    }

    /// The objects of the inventory of this name, or all of them if the name is empty.
    async fn named(&self, found: &Found, name: &str) -> Result<Vec<String>> {
        let mut names = self.names(found).await?;
        if !name.is_empty() {
            let wanted = object_of(&found.info.bucket, name)?;
            names.retain(|n| *n == wanted.as_str());
        }
        Ok(names)
    }

    /// Returns the inventories of a bucket, by object.
    pub(crate) async fn show(&self, found: &Found, name: &str) -> Result<Value> {
        let mut shown = Map::new();
        for object in self.named(found, name).await? {
            let home = self.route.known(&home()?)?;
            let owner = home.owner(&object)?;
            let query = about(&object);
            let info: InventoryInfo = match self.targets.post(owner, INFO, &query).await {
                // The inventory was destroyed meanwhile.
                Err(e) if e.code == ErrorCode::ObjectNotFound => continue,
                other => other?,
            };
            let info = info_json(&found.info.bucket, &object, &info);
            shown.insert(object, info);
        }
        Ok(Value::Object(shown))
    }

    /// Returns the inventories of all buckets for which `is_shown` holds, or of those of one
    /// provider.
    pub(crate) async fn show_all(
        &self,
        provider: Option<Provider>,
        is_shown: impl Fn(&Bucket) -> bool,
    ) -> Result<Value> {
        let state = self.route.state();
        let mut shown = Map::new();
        let infos = state.buckets.values().filter(|info| info.has_backend());
        for info in infos.filter(|info| is_shown(&info.bucket)) {
            if provider.is_none_or(|p| p == info.bucket.provider) {
                let found = Found { state: state.clone(), info: info.clone() };
                if let Value::Object(more) = self.show(&found, "").await? {
                    shown.extend(more);
                }
            }
        }
        Ok(Value::Object(shown))
    }

    /// Destroys inventories. If there are none, this succeeds; an unknown name is an error.
    pub(crate) async fn destroy(&self, found: &Found, name: &str) -> Result<()> {
        let names = self.named(found, name).await?;
        if names.is_empty() && !name.is_empty() {
            return Err(missing(found, name));
        }
        for object in names {
            let home = self.route.known(&home()?)?;
            self.destroy_object(&home, &object).await?;
        }
        Ok(())
    }

    async fn destroy_object(&self, home: &Found, object: &str) -> Result<()> {
        let owner = home.owner(object)?;
        self.targets.post::<_, Value>(owner, DESTROY, &about(object)).await?;
        Ok(())
    }

    /// The object to list from: the inventory of this name, or the bucket's only one.
    pub(crate) async fn choose(&self, found: &Found, name: &str) -> Result<String> {
        self.named(found, name).await?.into_iter().next().ok_or_else(|| missing(found, name))
    }
}

/// A request about the inventory in `object`.
fn about(object: &str) -> InventoryQuery {
    InventoryQuery { object: object.into(), prefix: String::new(), after: String::new(), limit: 0 }
}

fn missing(found: &Found, name: &str) -> Error {
    let bucket = &found.info.bucket;
    let what = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
    Error::new(
        ErrorCode::ObjectNotFound,
        format!("inventory{what} of bucket \"{bucket}\" does not exist"),
    )
}
