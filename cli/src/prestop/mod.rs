//! `forebay node prestop`: the command that Kubernetes runs before it stops a target. A target of
//! which the StatefulSet has a place no more is drained; at a restart its data stays.

mod kubernetes;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use forebay_client::tls::TlsClient;
use forebay_core::config::NodeConfig;
use forebay_core::intra::{PrestopAct, PrestopReply, PrestopRequest};
use forebay_core::sign::{NODE_AUTH_HEADER, Signer, body_hash};
use forebay_core::size::parse_duration;
use forebay_core::state::Role;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_s;
use forebay_node::config_load;
use forebay_node::identity::Identity;
use forebay_node::scale_down::PRESTOP_PATH;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use self::kubernetes::{Cause, Kubernetes};
use crate::failure::{Failure, exit};
use crate::node::local_url;
use crate::probe;

/// Timeout of a request to the target, which may wait for a gateway.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Pause before the target is asked again after a failure.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Failures in a row after which the process of the target counts as ended.
const MAX_FAILURES: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct PrestopArgs {
    /// Configuration file of the target. FOREBAY_SECTION__KEY in the environment overrides it
    /// [default: FOREBAY_CONFIG, else /etc/forebay/forebay.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the StatefulSet of the target's pod
    #[arg(long, value_name = "NAME")]
    statefulset: String,
    /// Namespace of the StatefulSet [default: that of the pod]
    #[arg(long, value_name = "NS")]
    namespace: Option<String>,
    /// Folder with token, ca.crt and namespace of the pod's service account
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    kubernetes_dir: PathBuf,
    /// Pause before a target is stopped whose data stays, so that clients learn of it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    delay: Duration,
    /// Timeout of the move of objects at a scale-down
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m")]
    drain_timeout: Duration,
}

/// Runs the command; returns the exit code.
pub(crate) fn run(args: &PrestopArgs, as_json: bool) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(stop(args)),
        Err(e) => Err(Error::internal(format!("cannot start threads: {e}")).into()),
    };
    match result {
        Ok(()) => exit::OK,
        Err(failure) => {
            failure.report(as_json);
            failure.code
        }
    }
}

async fn stop(args: &PrestopArgs) -> Result<(), Failure> {
    let file = config_load::choose_file(args.config.as_deref())?;
    let config = config_load::load(Some(&file), &[])?.config;
    let mut target = OwnTarget::new(&config)?;
    let cause = cause(args, &config).await.unwrap_or_else(|e| {
        let hint = e.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        Cause::Restart(format!("whether it is a scale-down is unknown: {}{hint}", e.message))
    });
    match cause {
        Cause::Restart(why) => {
            let note = format!("the data stays: {why}");
            target.log(&note).await;
            sleep(args.delay).await;
            Ok(())
        }
        Cause::ScaleDown(why) => {
            target.log(&format!("scale-down: {why}")).await;
            match target.drain(args.drain_timeout).await {
                Ok(()) => Ok(()),
                Err(e) => {
                    target.log(&format!("{}; the data stays", e.message)).await;
                    Err(e.into())
                }
            }
        }
    }
}

/// Why the pod of this target stops.
async fn cause(args: &PrestopArgs, config: &NodeConfig) -> Result<Cause> {
    let names = [host_names(), vec![config.node.id.clone()]].concat();
    let set = args.statefulset.as_str();
    let ordinal = kubernetes::ordinal(&names, set).ok_or_else(|| {
        Error::invalid(format!("none of the names {} is {set}-ORDINAL", names.join(", ")))
            .hint("--statefulset is the name of the StatefulSet of this pod")
    })?;
    let kubernetes = Kubernetes::from_env(&args.kubernetes_dir)?;
    let found = kubernetes.stateful_set(args.namespace.as_deref(), set).await?;
    Ok(kubernetes::cause(found.as_ref(), ordinal))
}

/// The names of this host, as a pod has them.
fn host_names() -> Vec<String> {
    let of_variable = std::env::var("HOSTNAME").ok();
    let of_kernel = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let names = of_variable.into_iter().chain(of_kernel);
    names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The process of the target beside this command. The command proves itself as that node.
struct OwnTarget {
    tls: TlsClient,
    url: String,
    /// Name of the target in signatures.
    receiver: String,
    /// By the cluster's secret, which counts while the nodes have no keys, and by the node's key.
    signers: Vec<Signer>,
}

impl OwnTarget {
    fn new(config: &NodeConfig) -> Result<Self> {
        let by_secret = Identity::load(config, Role::Target)?;
        let by_key = Identity::load(config, Role::Target)?.signer.as_member();
        let mut signers = vec![by_key];
        if by_secret.signer.secret().is_some() {
            signers.insert(0, by_secret.signer);
        }
        // The request goes to this machine.
        let tls = TlsClient::unverified()?;
        Ok(Self { tls, url: local_url(config), receiver: by_secret.url, signers })
    }

    /// Prints a line, and logs it at the target, because Kubernetes shows no output of the command.
    async fn log(&mut self, note: &str) {
        let _ = writeln!(std::io::stderr(), "prestop: {note}");
        if let Err(e) = self.send(PrestopAct::Log, note).await {
            let text = format!("the target does not log this: {}", e.message);
            let _ = writeln!(std::io::stderr(), "prestop: {text}");
        }
    }

    /// Makes the target leave the cluster, and waits until its objects are moved.
    async fn drain(&mut self, within: Duration) -> Result<()> {
        let end = Instant::now() + within;
        let mut reply = self.send(PrestopAct::Leave, "").await?;
        let mut failures = 0;
        loop {
            match reply {
                PrestopReply::Drained => {
                    let text = "prestop: all native objects are moved; the target leaves";
                    let _ = writeln!(std::io::stderr(), "{text}");
                    return Ok(());
                }
                PrestopReply::Stays => {
                    let text = "the drain was ended by an operator";
                    return Err(Error::new(ErrorCode::Conflict, text));
                }
                PrestopReply::Draining => {}
            }
            if Instant::now() >= end {
                let text = format!("not all objects are moved after {} s", within.as_secs());
                return Err(Error::new(ErrorCode::Timeout, text).hint(
                    "raise --drain-timeout and terminationGracePeriodSeconds of the pod; scale up \
                     again to reach the objects that are left",
                ));
            }
            match self.send(PrestopAct::Wait, "").await {
                Ok(next) => (reply, failures) = (next, 0),
                Err(_) if failures < MAX_FAILURES => {
                    failures += 1;
                    sleep(TRY_AGAIN_AFTER).await;
                }
                Err(e) => {
                    let text = format!("the target does not answer any more: {}", e.message);
                    return Err(Error::unavailable(text).hint(
                        "it was stopped, or it left the cluster: `forebay cluster info` shows it",
                    ));
                }
            }
        }
    }

    async fn send(&mut self, act: PrestopAct, note: &str) -> Result<PrestopReply> {
        let request = PrestopRequest { note: note.to_owned(), act };
        let body = serde_json::to_vec(&request)
            .map_err(|e| Error::internal(format!("cannot be written as JSON: {e}")))?;
        let (hash, now) = (body_hash(&body), unix_s());
        let proof = |signer: &Signer| {
            let proof = signer.node_call("POST", PRESTOP_PATH, &hash, &self.receiver, now);
            format!("{NODE_AUTH_HEADER}: {proof}\r\ncontent-type: application/json\r\n")
        };
        let line = format!("POST {PRESTOP_PATH}");
        let mut refused = Error::internal("the command has no key of the target");
        for at in 0..self.signers.len() {
            let headers = proof(&self.signers[at]);
            let sent =
                probe::send_within(ANSWER_WITHIN, &self.tls, &self.url, &line, &headers, &body);
            let sent = sent.await;
            let answer = sent.map_err(|e| {
                Error::unavailable(format!("the target at {} does not answer: {e}", self.url))
            })?;
            if answer.status == 200 {
                // From now on only the proof that counts.
                self.signers.swap(0, at);
                return serde_json::from_slice(&answer.body)
                    .map_err(|e| Error::internal(format!("an unreadable answer: {e}")));
            }
            refused = refusal(answer.status, &answer.body);
            if !matches!(answer.status, 401 | 403) {
                break;
            }
        }
        Err(refused)
    }
}

/// The error in an answer of the target.
fn refusal(status: u16, body: &[u8]) -> Error {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = said["message"].as_str().map_or_else(|| format!("status {status}"), str::to_owned);
    let code = match status {
        401 | 403 => ErrorCode::AccessDenied,
        409 => ErrorCode::Conflict,
        _ => ErrorCode::Unavailable,
    };
    Error::new(code, format!("the target refused: {text}"))
}
