//! Jobs and the state of the cluster, by any gateway.

use bytes::Bytes;
use http::Method;
use rand::RngExt;
use rand::distr::Alphanumeric;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use forebay_core::intra::{ClusterInfo, DiskCommand, DiskUsage, NodeDiskCommand};
use forebay_core::ishard::IshardSpec;
use forebay_core::job::{JobKind, JobStatus, Selection};
use forebay_core::url::{encode_path, encode_query};
use forebay_core::{Bucket, Error as CoreError, NodeId};
use forebay_v1::query::bucket_uri;

use crate::client::{Client, ControlCall, parse};
use crate::error::{Error, Result};

/// Whether a node may be stopped.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct StopCheck {
    pub safe: bool,
    /// Why not; empty if it is safe.
    pub reasons: Vec<String>,
}

impl Client {
    /// Starts a job on objects of a bucket and returns its id at once.
    pub async fn start_job(
        &self,
        kind: JobKind,
        bucket: &Bucket,
        selection: &Selection,
    ) -> Result<String> {
        self.start(kind, bucket, chosen(selection)?).await
    }

    /// Like [`Self::start_job`] with a prefetch, but first drops copies that the backend no longer
    /// has, or has in another version.
    pub async fn start_sync(&self, bucket: &Bucket, selection: &Selection) -> Result<String> {
        let mut value = chosen(selection)?;
        value["synchronize"] = true.into();
        self.start(JobKind::Prefetch, bucket, value).await
    }

    /// Starts a job that writes native objects back to a bucket with a backend, under the same
    /// names behind `folder`; returns its id at once. With `remove`, an object that was named and
    /// no longer exists here is also deleted there, if it was copied from here.
    pub async fn start_write_back(
        &self,
        bucket: &Bucket,
        selection: &Selection,
        (to, folder): (&Bucket, &str),
        remove: bool,
    ) -> Result<String> {
        let mut value = chosen(selection)?;
        value["tobck"] = json!({ "name": to.name, "provider": to.provider });
        if !to.namespace.is_global() {
            let (uuid, name) = (&to.namespace.uuid, &to.namespace.name);
            value["tobck"]["namespace"] = json!({ "uuid": uuid, "name": name });
        }
        value["prepend"] = folder.into();
        value["synchronize"] = remove.into();
        self.start(JobKind::WriteBack, bucket, value).await
    }

    async fn start(&self, kind: JobKind, bucket: &Bucket, value: Value) -> Result<String> {
        let method = match kind {
            JobKind::Prefetch | JobKind::Scrub | JobKind::WriteBack => Method::POST,
            JobKind::Evict | JobKind::Delete => Method::DELETE,
            other => {
                let what =
                    format!("a job {} does not start with a list of objects", other.as_str());
                return Err(Error::Api(CoreError::invalid(what)));
            }
        };
        let answer = self.act(method, &bucket_uri(bucket), kind.v1_kind(), value).await?;
        let id = text_of(&answer.body);
        if id.is_empty() {
            return Err(Error::Api(CoreError::internal("the job was started without an id")));
        }
        Ok(id)
    }

    /// Starts a job that packs objects into shards and returns its id. Errors that are found early
    /// (nothing to pack, too few names, a shard that exists already) are returned here, with
    /// nothing written; a large source is still being planned when this returns.
    pub async fn start_ishard(&self, spec: &IshardSpec) -> Result<String> {
        // The same id on every try: an answer that is lost starts no second job.
        let id: String = rand::rng().sample_iter(Alphanumeric).take(12).map(char::from).collect();
        let path = format!("/api/v1/ishard?id=ishard-{id}");
        let body = serde_json::to_vec(spec)
            .map_err(|e| CoreError::internal(format!("a job cannot be written as JSON: {e}")))?;
        let call = ControlCall {
            method: Method::POST,
            path: &path,
            body: Some(body),
            accept: None,
            node: None,
        };
        let answer = self.ask_gateway(call).await?;
        let started: Started = parse(&answer.body)?;
        Ok(started.id)
    }

    /// Returns the progress of a job.
    pub async fn job(&self, id: &str) -> Result<JobStatus> {
        self.get_json(&job_path(id)).await
    }

    /// All jobs that the cluster remembers, latest first.
    pub async fn jobs(&self) -> Result<Vec<JobStatus>> {
        let mut jobs: Vec<JobStatus> = self.get_json("/api/v1/jobs").await?;
        jobs.sort_by(|a, b| (b.started_ns, &b.id).cmp(&(a.started_ns, &a.id)));
        Ok(jobs)
    }

    /// Stops a job; what it has done stays done.
    pub async fn stop_job(&self, id: &str) -> Result<()> {
        let path = job_path(id);
        let call = ControlCall {
            method: Method::DELETE,
            path: &path,
            body: None,
            accept: None,
            node: None,
        };
        self.ask_gateway(call).await.map(drop)
    }

    /// Makes one target act on one of its disks; returns all its disks afterwards. A disk that is
    /// drained first is [`DiskStatus::Leaving`] for a while.
    ///
    /// [`DiskStatus::Leaving`]: forebay_core::intra::DiskState::Leaving
    pub async fn act_on_disk(
        &self,
        node: &NodeId,
        command: &DiskCommand,
    ) -> Result<Vec<DiskUsage>> {
        let command = NodeDiskCommand { node: node.clone(), command: command.clone() };
        let body = serde_json::to_vec(&command).map_err(|e| {
            CoreError::internal(format!("a command cannot be written as JSON: {e}"))
        })?;
        let path = "/api/v1/disks";
        let call =
            ControlCall { method: Method::POST, path, body: Some(body), accept: None, node: None };
        let answer = self.ask_gateway(call).await?;
        parse(&answer.body)
    }

    /// Gives another cluster an alias here, so that its buckets are `ais://@alias/bucket`.
    pub async fn attach_cluster(&self, alias: &str, url: &str) -> Result<()> {
        let (alias, url) = (encode_query(alias), encode_query(url));
        self.put_cluster(&format!("attach?what=remote&alias={alias}&url={url}")).await
    }

    /// Detaches another cluster and drops what is cached of its buckets.
    pub async fn detach_cluster(&self, alias: &str) -> Result<()> {
        self.put_cluster(&format!("detach?what=remote&alias={}", encode_query(alias))).await
    }

    /// Starts a rebalance of native objects, as also happens when targets join or leave; returns
    /// the job's id.
    pub async fn start_rebalance(&self) -> Result<String> {
        let value = json!({ "Kind": JobKind::Rebalance.v1_kind() });
        let answer = self.act(Method::PUT, "/v1/cluster", "start", value).await?;
        Ok(text_of(&answer.body))
    }

    /// Applies an action of v1 to one node, such as `start-maintenance`; returns the id of the
    /// rebalance that follows, if there is one. `lost`: includes the objects that only this node
    /// has.
    pub async fn act_on_node(
        &self,
        action: &str,
        node: &NodeId,
        lost: bool,
    ) -> Result<Option<String>> {
        let value = json!({ "sid": node, "rm_user_data": lost });
        let answer = self.act(Method::PUT, "/v1/cluster", action, value).await?;
        Ok(Some(text_of(&answer.body)).filter(|id| !id.is_empty()))
    }

    async fn put_cluster(&self, what: &str) -> Result<()> {
        let path = format!("/v1/cluster/{what}");
        let call =
            ControlCall { method: Method::PUT, path: &path, body: None, accept: None, node: None };
        self.ask_gateway(call).await.map(drop)
    }

    /// Why a node may not be stopped now.
    pub async fn stopping(&self, node: &NodeId) -> Result<StopCheck> {
        self.get_json(&format!("/clusterz?stopping={node}&report=true")).await
    }

    /// The log of a node after its first `offset` bytes, as far as the node keeps it in memory.
    pub async fn node_log(&self, node: &NodeId, severity: &str, offset: usize) -> Result<Bytes> {
        let path = format!("/v1/reverse/daemon?what=log&severity={severity}&offset={offset}");
        let node = Some(node.as_str());
        let call = ControlCall { method: Method::GET, path: &path, body: None, accept: None, node };
        Ok(self.ask_gateway(call).await?.body)
    }

    /// The settings of the cluster with the node's own values, as v1 shows them: without secrets.
    pub async fn node_settings(&self, node: &NodeId) -> Result<Value> {
        let path = "/v1/reverse/daemon?what=config";
        let node = Some(node.as_str());
        let call = ControlCall { method: Method::GET, path, body: None, accept: None, node };
        let answer = self.ask_gateway(call).await?;
        parse(&answer.body)
    }

    /// Nodes, their load, and totals.
    pub async fn cluster_info(&self) -> Result<ClusterInfo> {
        self.get_json("/api/v1/cluster").await
    }
}

/// The v1 action value that names the selected objects of a job.
fn chosen(selection: &Selection) -> Result<Value> {
    Ok(match selection {
        // An empty list means the whole bucket in v1, which is never what it means here.
        Selection::Names(names) if names.is_empty() => {
            return Err(Error::Api(CoreError::invalid("the list of objects is empty")));
        }
        Selection::Names(names) => json!({ "objnames": names }),
        Selection::Template(template) => json!({ "template": template }),
        Selection::Prefix(prefix) => json!({ "prefix": prefix }),
    })
}

#[derive(Deserialize)]
struct Started {
    id: String,
}

/// The text of an answer that consists of an id only.
fn text_of(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().trim_matches('"').to_owned()
}

fn job_path(id: &str) -> String {
    format!("/api/v1/jobs/{}", encode_path(id).replace('/', "%2F"))
}
