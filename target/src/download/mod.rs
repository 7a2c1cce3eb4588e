//! Downloads of web objects on this target: each target fetches the objects that it owns into its
//! store. A download is shown and stopped like any other job; its objects are tracked here.

mod fetch;
mod progress;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_clouds::egress::{Guarded, WebRules};
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::config::DownloadConfig;
use forebay_core::download::{DownloadSpec, DownloadStatus, What, links, range_name};
use forebay_core::egress::Egress;
use forebay_core::intra::ListRequest;
use forebay_core::job::JobKind;
use forebay_core::list_page::Detail;
use forebay_core::locks::MutexExt;
use forebay_core::state::ClusterState;
use forebay_core::{Error, NodeId, Result, placement};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::pace::Pace;
use forebay_v1::download::{still_running, unknown_download};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use self::fetch::Fetcher;
use self::progress::{Outcome, Progress};
use crate::job::{Jobs, Registration, RequestJob};
use crate::object::ObjectService;

/// Most jobs that are kept; the oldest finished ones are removed first.
const REMEMBERED: usize = 1000;
/// Names taken from a listing at once.
const PAGE: usize = 1000;
/// How long an abort waits for the end of the job.
const OVER_WITHIN: Duration = Duration::from_secs(2);

/// All downloads of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Downloads(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    jobs: Jobs,
    config: DownloadConfig,
    lifecycle: Lifecycle,
    web: WebRules,
    /// For the Internet alone.
    public: Guarded,
    /// For private networks too.
    private: Guarded,
    table: Mutex<BTreeMap<String, Arc<Download>>>,
}

struct Download {
    spec: Arc<DownloadSpec>,
    info: Arc<BucketInfo>,
    progress: Progress,
    stop: CancellationToken,
}

impl Downloads {
    pub(crate) fn new(
        objects: ObjectService,
        jobs: Jobs,
        config: DownloadConfig,
        web: WebRules,
        lifecycle: &Lifecycle,
    ) -> Result<Self> {
        Ok(Self(Arc::new(Inner {
            objects,
            jobs,
            config,
            lifecycle: lifecycle.clone(),
            public: Guarded::new(web.rule(Egress::Public), true)?,
            private: Guarded::new(web.rule(Egress::Private), true)?,
            web,
            table: Mutex::default(),
        })))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Download>>> {
        self.0.table.locked()
    }

    /// Starts this target's part of a job.
    pub(crate) fn start(&self, spec: DownloadSpec) -> Result<()> {
        let info = self.0.objects.state().bucket(&spec.bucket)?.clone();
        let what = Registration::new(JobKind::Download).id(&spec.id).bucket(&spec.bucket);
        let job = self.0.jobs.register(what)?;
        let download = Arc::new(Download {
            progress: Progress::new(&spec),
            stop: job.stop_token(),
            spec: Arc::new(spec),
            info,
        });
        {
            let mut table = self.table();
            if table.len() >= REMEMBERED {
                let over = table.values().filter(|d| d.progress.is_over());
                let oldest =
                    over.min_by_key(|d| d.progress.finished_ns()).map(|d| d.spec.id.clone());
                oldest.and_then(|id| table.remove(&id));
            }
            table.insert(download.spec.id.clone(), download.clone());
        }
        let downloads = self.clone();
        self.0.lifecycle.spawn(async move { downloads.run(&download, job).await });
        Ok(())
    }

    /// Counters of all jobs.
    pub(crate) fn all(&self) -> Vec<DownloadStatus> {
        self.table().values().map(|d| d.progress.summary()).collect()
    }

    pub(crate) fn status(&self, id: &str) -> Result<DownloadStatus> {
        self.find(id).map(|d| d.progress.status())
    }

    /// Ends a job; objects fetched so far stay.
    pub(crate) async fn abort(&self, id: &str) -> Result<()> {
        let download = self.find(id)?;
        download.stop.cancel();
        // It ends at its next step, so that the next status request finds it ended.
        let over = async {
            while !download.progress.is_over() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(OVER_WITHIN, over).await;
        Ok(())
    }

    /// Removes a job that is over.
    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        if !self.find(id)?.progress.is_over() {
            return Err(still_running(id));
        }
        self.table().remove(id);
        Ok(())
    }

    fn find(&self, id: &str) -> Result<Arc<Download>> {
        self.table().get(id).cloned().ok_or_else(|| unknown_download(id))
    }

    async fn run(&self, download: &Arc<Download>, job: RequestJob) {
        let outcome = tokio::select! {
            outcome = self.work(download, &job) => outcome,
            () = download.stop.cancelled() => Err(Error::invalid("stopped")),
        };
        let aborted = outcome.is_err() && download.stop.is_cancelled();
        if let Err(e) = &outcome
            && !aborted
        {
            download.progress.broken(&download.spec.description, e);
        }
        job.end(outcome);
        download.progress.finish(aborted);
    }

    async fn work(&self, download: &Arc<Download>, job: &RequestJob) -> Result<()> {
        let state = self.0.objects.state();
        let run = Run { downloads: self, download, job, fetcher: self.fetcher(download, &state) };
        let mine = Mine { state, me: self.0.objects.me().clone(), info: download.info.clone() };
        match &download.spec.what {
            What::Objects(objects) => {
                let own: Vec<_> =
                    objects.iter().filter(|(name, _)| mine.owns(name)).cloned().collect();
                run.expect(own.len() as u64);
                run.each(own).await;
            }
            What::Range { template, subdir } => {
                let (range, dir) = (links(template)?, subdir.clone());
                run.expect(count(range.clone(), dir.clone(), mine.clone()).await?);
                // Generated on demand: there may be ten million.
                let named =
                    range.names().filter_map(|link| Some((range_name(&dir, &link).ok()?, link)));
                run.each(named.filter(|(name, _)| mine.owns(name))).await;
            }
            What::Backend { prefix, suffix, sync } => {
                run.backend(&mine, prefix, suffix, *sync).await?;
            }
        }
        download.progress.all_started();
        Ok(())
    }

    fn fetcher(&self, download: &Download, state: &ClusterState) -> Fetcher {
        let mut info = download.info.clone();
        if matches!(download.spec.what, What::Backend { sync: true, .. }) {
            Arc::make_mut(&mut info).freshness = Freshness::Always;
        }
        let limit = download.spec.limits.bytes_per_hour;
        Fetcher {
            objects: self.0.objects.clone(),
            client: match self.0.web.reach(state) {
                Egress::Private => self.0.private.clone(),
                Egress::Public | Egress::Loopback => self.0.public.clone(),
            },
            info,
            spec: download.spec.clone(),
            pace: Arc::new(Pace::new(limit as f64 / 3600.0, state.alive_targets().count())),
        }
    }
}

/// Decides which objects this target owns.
#[derive(Clone)]
struct Mine {
    state: Arc<ClusterState>,
    me: NodeId,
    info: Arc<BucketInfo>,
}

impl Mine {
    fn owns(&self, name: &str) -> bool {
        placement::owner(&self.state, &self.info, name).is_ok_and(|owner| owner.id == self.me)
    }
}

/// How many objects of a range this target owns.
async fn count(range: forebay_core::template::Ranges, dir: String, mine: Mine) -> Result<u64> {
    let counting = tokio::task::spawn_blocking(move || {
        let names = range.names().filter_map(|link| range_name(&dir, &link).ok());
        names.filter(|name| mine.owns(name)).count() as u64
    });
    counting.await.map_err(|e| Error::internal(format!("counting links: {e}")))
}

/// A running job.
struct Run<'a> {
    downloads: &'a Downloads,
    download: &'a Arc<Download>,
    job: &'a RequestJob,
    fetcher: Fetcher,
}

impl Run<'_> {
    fn expect(&self, objects: u64) {
        self.download.progress.expect(objects);
        self.job.expect(objects, 0);
    }

    async fn each(&self, objects: impl IntoIterator<Item = (String, String)>) {
        let asked = usize::try_from(self.download.spec.limits.connections).unwrap_or(usize::MAX);
        let most = self.downloads.0.config.parallel;
        let parallel = if asked == 0 { most } else { asked.min(most) };
        let progress = &self.download.progress;
        futures::stream::iter(objects)
            .for_each_concurrent(parallel, |(name, link)| async move {
                let current = progress.begin(&name);
                let (outcome, bytes) = self.fetcher.fetch(&name, &link, &current).await;
                match &outcome {
                    Outcome::Failed(e) => self.job.failed(e),
                    Outcome::Fetched | Outcome::Skipped => self.job.done(bytes),
                }
                progress.end(&name, outcome);
            })
            .await;
    }

    /// Fetches everything under a prefix that the backend has; with `sync`, removes objects that
    /// the backend does not have any more.
    async fn backend(&self, mine: &Mine, prefix: &str, suffix: &str, sync: bool) -> Result<()> {
        let objects = &self.downloads.0.objects;
        let mut after = String::new();
        loop {
            let page =
                objects.listing().page_backend(&self.download.info, prefix, &after, PAGE).await?;
            let Some(last) = page.entries.last().map(|e| e.name.clone()) else { break };
            let names = page.entries.into_iter().map(|entry| entry.name);
            let wanted = names.filter(|name| name.ends_with(suffix) && mine.owns(name));
            self.each(wanted.map(|name| (name, String::new())).collect::<Vec<_>>()).await;
            if !page.more {
                break;
            }
            after = last;
        }
        if sync { self.drop_gone(prefix, suffix).await } else { Ok(()) }
    }

    async fn drop_gone(&self, prefix: &str, suffix: &str) -> Result<()> {
        let objects = &self.downloads.0.objects;
        let mut request = ListRequest {
            bucket_id: self.download.info.id,
            prefix: prefix.to_owned(),
            after: String::new(),
            limit: PAGE,
            detail: Detail::Size,
            ..ListRequest::default()
        };
        loop {
            let page = objects.listing().page_here(&request).await?;
            let Some(last) = page.entries.last().map(|e| e.name.clone()) else { return Ok(()) };
            for entry in page.entries.iter().filter(|entry| entry.name.ends_with(suffix)) {
                // `head` drops a copy whose object is gone.
                let _ = objects.reads().head(&self.fetcher.info, &entry.name).await;
            }
            if !page.more {
                return Ok(());
            }
            request.after = last;
        }
    }
}
