//! Transforms of objects on this target: an object, or the output of the stage before, passes
//! through an HTTP service or a command, and the result is passed on. Nothing is held as a whole.

mod clients;
mod command;
mod notes;
mod piece;
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::config::{EtlCommand, EtlConfig};
use forebay_core::egress::EgressPolicy;
use forebay_core::etl::{Etl, EtlCall, EtlPart, Transformer};
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result, placement, shown_url};
use forebay_node::maps::Maps;
use futures::{StreamExt, TryStreamExt};
use reqwest::Url;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use self::clients::Clients;
use self::command::CommandInput;
use self::notes::{Note, Notes};
use self::service::Service;
use crate::object::{Delivery, ObjectService, read_first_chunk};

pub(crate) use self::piece::Transformed;

/// A reader that gets no permit within this time gets an error that allows a retry.
const TURN_WITHIN: Duration = Duration::from_secs(15);
/// Attempts for one object while its service does not respond.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);
/// Longest wait for a service at its registration, whatever the registration requests: the client
/// waits too. With a last check of `LOOK` it ends before the gateway, which waits 10 s for an answer,
/// counts the target as silent.
const CHECK_WITHIN: Duration = Duration::from_secs(7);
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// Timeout of one check of a service.
const LOOK: Duration = Duration::from_secs(2);

/// Called with the job and the bytes of each object that a transform has changed.
pub(crate) type Counted = Box<dyn Fn(&str, u64) + Send + Sync>;

/// The transforms of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Etls(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    maps: Maps,
    config: EtlConfig,
    clients: Clients,
    notes: Notes,
    counted: Counted,
    turns: Arc<Semaphore>,
}

impl Etls {
    pub(crate) fn new(
        objects: ObjectService,
        maps: Maps,
        config: EtlConfig,
        policy: &EgressPolicy,
        counted: Counted,
    ) -> Result<Self> {
        Ok(Self(Arc::new(Inner {
            objects,
            maps,
            clients: Clients::new(&config, policy)?,
            notes: Notes::default(),
            counted,
            turns: Arc::new(Semaphore::new(config.parallel)),
            config,
        })))
    }

    /// Transforms an object with `call`. `job` is the calling job, if there is one: it waits for a
    /// permit without a timeout, and failures are kept under its id.
    pub(crate) async fn transform(
        &self,
        info: &BucketInfo,
        name: &str,
        call: &EtlCall,
        job: Option<&str>,
    ) -> Result<Transformed> {
        let state = self.0.maps.load();
        let stages: Vec<Etl> = call.stages(&state)?.into_iter().cloned().collect();
        let path = Path {
            etls: self.clone(),
            notes: stages.iter().map(|etl| self.0.notes.of(&state, &etl.job)).collect(),
            reported_to: job.unwrap_or(&stages[0].job).to_owned(),
            uri: info.bucket.object_uri(name),
            stages,
        };
        let made = path.through(info, name, call, job.is_some()).await;
        match made {
            Ok(made) => Ok(path.followed(made)),
            Err(e) => {
                path.failed(&e);
                Err(e)
            }
        }
    }

    /// Writes a transformed object at the owner of its copy. Returns the bytes written.
    pub(crate) async fn copy(
        &self,
        from: (&BucketInfo, &str),
        to: (&BucketInfo, &str),
        call: &EtlCall,
        job: Option<&str>,
    ) -> Result<Option<u64>> {
        let Transformed { len, body, .. } = self.transform(from.0, from.1, call, job).await?;
        let custom = BTreeMap::new();
        let delivery = Delivery { body, len, custom, keep_existing: false };
        self.0.objects.deliver(to.0, to.1, delivery).await
    }

    /// Transforms an object and drops the output. Returns its length in bytes.
    pub(crate) async fn inspect(
        &self,
        info: &BucketInfo,
        name: &str,
        call: &EtlCall,
        job: &str,
    ) -> Result<u64> {
        let made = self.transform(info, name, call, Some(job)).await?;
        made.body.try_fold(0, |sum, chunk| async move { Ok(sum + chunk.len() as u64) }).await
    }

    /// Whether a transform can be used from this target; waits a little for a service that is
    /// starting.
    pub(crate) async fn check(&self, etl: &Etl) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(etl.init_timeout_ms).min(CHECK_WITHIN);
        loop {
            match self.look(etl).await {
                Err(e) if e.code.is_transient() && Instant::now() < until => {
                    sleep(CHECK_EVERY).await
                }
                Err(e) if e.code.is_transient() => {
                    // The caller has to start the service or correct its address.
                    return Err(Error::new(ErrorCode::InvalidArgument, e.message)
                        .hint("start the service first, where all targets can reach it"));
                }
                done => return done,
            }
        }
    }

    async fn look(&self, etl: &Etl) -> Result<()> {
        match &etl.by {
            Transformer::Push { url } | Transformer::Pull { url } => {
                self.service(etl, url, "", LOOK)?.check().await
            }
            Transformer::Command { name } => self.command(name).map(drop),
        }
    }

    /// The status of a transform: its failures in `job`, or for readers.
    pub(crate) async fn part(&self, etl: &Etl, job: Option<&str>, look: bool) -> EtlPart {
        let mut part = self.0.notes.part(&self.0.maps.load(), &etl.job, job.unwrap_or(&etl.job));
        if look && let Err(e) = self.look(etl).await {
            part.away = e.to_string();
        }
        part
    }

    /// The service behind `url`, if this target's configuration allows it.
    fn service<'a>(
        &'a self,
        etl: &Etl,
        url: &str,
        args: &'a str,
        timeout: Duration,
    ) -> Result<Service<'a>> {
        let client = self.0.clients.of_service(etl);
        let url = client.url(url)?;
        let allowed = &self.0.config.services;
        if !allowed.is_empty() && !allowed.iter().any(|begin| is_under(&url, begin)) {
            return Err(Error::new(
                ErrorCode::AccessDenied,
                format!(
                    "etl job {}: this cluster does not call services at {}",
                    etl.name,
                    shown_url(url.as_str())
                ),
            )
            .hint("etl.services of the targets' configuration says which it does"));
        }
        let who = format!("etl service {} at {}", etl.name, url.origin().ascii_serialization());
        Ok(Service { client, url, who, args, timeout })
    }

    fn command(&self, name: &str) -> Result<&EtlCommand> {
        self.0.config.command.iter().find(|c| c.name == name).ok_or_else(|| {
            Error::invalid(format!("etl: this target's configuration has no command \"{name}\""))
                .hint("commands stand under [[etl.command]] with name and argv, on every target")
        })
    }

    /// The object itself, wherever it is stored: for services that read it and follow no redirect.
    pub(crate) async fn plain(&self, info: &BucketInfo, name: &str) -> Result<Transformed> {
        let state = self.0.maps.load();
        let owner = placement::owner(&state, info, name)?;
        if owner.id == *self.0.objects.me() {
            return self.source(info, name).await;
        }
        let peer = self.0.objects.peer();
        let reply = peer.get_object(&owner.url, &info.bucket, name, None).await?;
        let (len, content_type) = (Some(reply.meta.size), None);
        Ok(Transformed { len, content_type, body: reply.stream.map_err(Error::from).boxed() })
    }

    /// The object as it is stored here or at its backend.
    async fn source(&self, info: &BucketInfo, name: &str) -> Result<Transformed> {
        let found = self.0.objects.reads().get(info, name).await?;
        let size = found.meta().size;
        let body = read_first_chunk(found.stream(ByteRange::whole(size))).await?;
        Ok(Transformed { len: Some(size), content_type: None, body })
    }

    async fn turn(&self, patient: bool) -> Result<OwnedSemaphorePermit> {
        let closed = |_| Error::internal("the turns of transforms are closed");
        let turn = self.0.turns.clone().acquire_owned();
        if patient {
            return turn.await.map_err(closed);
        }
        match timeout(TURN_WITHIN, turn).await {
            Ok(turn) => turn.map_err(closed),
            Err(_) => Err(Error::new(
                ErrorCode::TooManyRequests,
                format!("{} objects are being transformed on this target", self.0.config.parallel),
            )
            .hint("etl.parallel sets the limit")
            .retry_after(3)),
        }
    }
}

/// Whether an allowed URL is a prefix of a URL, at a boundary: of its host, or of a part of its
/// path.
fn is_under(url: &Url, begin: &str) -> bool {
    let Ok(begin) = begin.parse::<Url>() else { return false };
    let path = begin.path().trim_end_matches('/');
    let rest = url.path().strip_prefix(path);
    url.origin() == begin.origin()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The pipeline of one object through its stages.
struct Path {
    etls: Etls,
    stages: Vec<Etl>,
    /// One for each stage.
    notes: Vec<Arc<Note>>,
    /// The job under which a failure is kept.
    reported_to: String,
    uri: String,
}

impl Path {
    /// Starts the pipeline of the object. If a service does not respond it is retried from the
    /// start, because the object can be read again.
    async fn through(
        &self,
        info: &BucketInfo,
        name: &str,
        call: &EtlCall,
        patient: bool,
    ) -> Result<Transformed> {
        // One permit for all stages: stages that wait for each other's permits would deadlock.
        let turn = self.etls.turn(patient).await?;
        let mut tries = 1;
        let made = loop {
            match self.once(info, name, call).await {
                Err(e) if e.code == ErrorCode::Unavailable && tries < TRIES => {
                    sleep(PAUSE * tries).await;
                    tries += 1;
                }
                made => break made?,
            }
        };
        let body = made.body.map(move |chunk| {
            let _in_turn = &turn;
            chunk
        });
        Ok(Transformed { body: body.boxed(), ..made })
    }

    async fn once(&self, info: &BucketInfo, name: &str, call: &EtlCall) -> Result<Transformed> {
        let mut made: Option<Transformed> = None;
        for (etl, note) in self.stages.iter().zip(&self.notes) {
            let allowed = Duration::from_millis(etl.object_timeout_ms);
            let args = call.args.as_str();
            let next = match (&etl.by, made) {
                (Transformer::Pull { url }, None) => {
                    self.etls.service(etl, url, args, allowed)?.pull(&info.bucket, name).await?
                }
                (Transformer::Pull { .. }, Some(_)) => {
                    return Err(Error::invalid(format!(
                        "etl job {} reads objects itself, so it can only be the first of a pipeline",
                        etl.name
                    )));
                }
                (by, made) => {
                    let input = match made {
                        Some(made) => made,
                        None => self.etls.source(info, name).await?,
                    };
                    let counter = note.clone();
                    let input = input.counted(move |n| {
                        counter.in_bytes.fetch_add(n, Ordering::Relaxed);
                    });
                    match by {
                        Transformer::Command { name: command } => {
                            let command_input =
                                CommandInput { bucket: &info.bucket, object: name, args };
                            command::run(
                                self.etls.command(command)?,
                                &command_input,
                                input,
                                note.clone(),
                            )?
                        }
                        Transformer::Push { url } | Transformer::Pull { url } => {
                            self.etls
                                .service(etl, url, args, allowed)?
                                .push(&info.bucket, name, input)
                                .await?
                        }
                    }
                }
            };
            let counter = note.clone();
            let next = next.within(allowed, format!("etl job {}", etl.name));
            let next = next.counted(move |n| {
                counter.out_bytes.fetch_add(n, Ordering::Relaxed);
            });
            let next = next.first_chunk().await?;
            note.objects.fetch_add(1, Ordering::Relaxed);
            (self.etls.0.counted)(&etl.job, next.len.unwrap_or(0));
            made = Some(next);
        }
        made.ok_or_else(|| Error::internal("a transform without stages"))
    }

    /// Adds recording of failures while the output is read.
    fn followed(self, made: Transformed) -> Transformed {
        let body = made.body.inspect_err(move |e| self.failed(e));
        Transformed { body: body.boxed(), ..made }
    }

    fn failed(&self, e: &Error) {
        self.etls.0.notes.failed(&self.reported_to, self.uri.clone(), e);
        self.notes[0].log(&format!("{}: {e}", self.uri));
        tracing::debug!(etl = self.stages[0].name, object = self.uri, error = %e, "not transformed");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_allowed_by_its_host_and_the_parts_of_its_path() {
        let under = |url: &str, begin: &str| is_under(&url.parse().unwrap(), begin);
        assert!(under("http://etl:8000", "http://etl:8000/"));
        assert!(under("http://etl:8000/a/b", "http://etl:8000/a"));
        for (url, begin) in [
            ("http://etl:8001", "http://etl:8000"),
            ("https://etl:8000", "http://etl:8000"),
            ("http://etl.evil:8000", "http://etl:8000"),
            ("http://etl:8000/ab", "http://etl:8000/a"),
            ("http://etl:8000@evil/", "http://etl:8000"),
        ] {
            assert!(!under(url, begin), "{url} {begin}");
        }
    }
}
