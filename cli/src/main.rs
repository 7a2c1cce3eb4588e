//! The `forebay` command: its grammar, and the dispatch of subcommands to modules.

mod allocator;
mod archive;
mod auth;
mod backup;
mod bench;
mod bucket;
mod bucket_props;
mod bucket_warmth;
#[cfg(test)]
mod cli_page;
mod cluster;
mod completion;
mod config;
mod config_edit;
mod dev;
mod disk;
mod doctor;
mod doctor_bucket;
mod dsort;
mod endpoint;
mod failure;
mod get;
mod help;
mod home;
mod idle;
mod ishard;
mod job;
mod join_token;
mod listing;
#[cfg(test)]
mod main_tests;
mod node;
mod node_view;
mod nodes;
mod object;
mod os;
mod output;
mod owner;
mod part;
mod pid_file;
mod prefetch;
mod presign;
mod prestop;
mod probe;
mod progress;
mod put;
mod ready;
mod schema;
mod serve;
mod session;
mod settings;
mod standard;
mod stop_check;
mod support_bundle;
mod tls;
mod top;
mod trace;
mod trace_live;
mod trace_tree;
mod transfer;
mod uri;
mod user_config;
mod version;
mod watch;
mod why;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use forebay_core::Error;
use forebay_core::job::JobKind;

use crate::failure::{Failure, exit};
use crate::session::{ClientArgs, Session};

/// A storage cache between cloud buckets and training loops.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Buckets and objects are written as URIs: ais://bucket/object for the cluster's
own (fb:// and forebay:// mean the same), s3://, gs:// and az:// for those of a
cloud. - stands for standard input or output.

Exit codes: 0 done, 1 failed, 2 usage, 3 partly done, 4 not found, 5 denied,
6 conflict, 7 cluster not available, 8 job failed or cancelled, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List buckets, or the objects of one bucket
    #[command(alias = "list")]
    Ls(bucket::ListArgs),
    /// Create a bucket
    Mb(bucket::MakeArgs),
    /// Remove a bucket
    Rb(bucket::RemoveArgs),
    /// Show and change the properties of a bucket
    #[command(subcommand)]
    Bucket(bucket_props::BucketCommand),
    /// Upload files to a bucket
    Put(put::PutArgs),
    /// Download objects into files
    Get(get::GetArgs),
    /// Write objects to standard output
    Cat(object::CatArgs),
    /// Copy objects and files to, from and between buckets
    Cp(transfer::CopyArgs),
    /// Move objects and files: copy, compare, and remove the source
    Mv(transfer::MoveArgs),
    /// Copy what is missing or different between a bucket and a folder or bucket
    Sync(transfer::SyncArgs),
    /// Remove objects
    Rm(object::RemoveArgs),
    /// Show the properties of an object or a bucket
    Stat(object::StatArgs),
    /// Sum up bytes and objects by prefix
    Du(listing::UsageArgs),
    /// Find objects by name, size and age
    Find(listing::FindArgs),
    /// Print a URL with which others read or write an object for some time
    Presign(presign::PresignArgs),
    /// Fetch objects from a backend into the cluster ahead of need, as a job
    Prefetch(prefetch::PrefetchArgs),
    /// Drop cached copies, as a job; the backend keeps the objects
    #[command(after_help = "Examples:
  forebay evict s3://data/train/          drops copies, never objects
  forebay evict s3://data --wait          returns when no copy is left")]
    Evict(job::SelectArgs),
    /// Copy native objects to a bucket of a cloud, and verify them there
    WriteBack(job::WriteBackArgs),
    /// Compare the stored bytes of a bucket with their checksums, as a job
    #[command(after_help = "Example:
  forebay scrub ais://results --wait      fails if damage cannot be repaired")]
    Scrub(job::SelectArgs),
    /// List and download the members of shards
    #[command(subcommand)]
    Archive(archive::ArchiveCommand),
    /// Pack the objects of a bucket into shards
    Ishard(Box<ishard::IshardArgs>),
    /// Sort or shuffle the records of shards into other shards
    Dsort(Box<dsort::DsortArgs>),
    /// List, watch and stop jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Show the cluster, rebalance it, back it up, attach other clusters
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Drain targets, return them to use, remove nodes from the cluster
    #[command(subcommand)]
    Node(nodes::NodeCommand),
    /// Show what the cluster does now: nodes, buckets, clients, disks, jobs
    Top(top::TopArgs),
    /// Show the requests of all nodes as they finish
    Trace(trace::TraceArgs),
    /// List, attach and detach the disks of targets
    #[command(subcommand)]
    Disk(disk::DiskCommands),
    /// Show the certificates of the nodes
    #[command(subcommand)]
    Tls(tls::TlsCommand),
    /// Show, check and change the settings of a node on this machine; list profiles
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Log in; manage users, roles, keys and tokens
    #[command(subcommand)]
    Auth(auth::AuthCommand),
    /// Check the cluster from this machine, or a cloud bucket from the cluster
    #[command(after_help = "Examples:
  forebay doctor --endpoint http://10.0.0.7:7400
  forebay doctor gs://train/images/       can the targets list and read it?")]
    Doctor(doctor::DoctorArgs),
    /// Check whether a node is ready, for scripts and health checks
    #[command(after_help = "Examples:
  forebay ready http://target-1:7410
  forebay ready --wait --timeout 2m

Exit code 7 if the node is not ready, or does not answer.")]
    Ready(ready::ReadyArgs),
    /// Write an archive with the state, settings, metrics and logs of all nodes
    #[command(after_help = "Examples:
  forebay support-bundle
  forebay support-bundle - | ssh laptop 'cat > bundle.tar.gz'

The archive has no secrets. It has names of buckets, objects, users and hosts,
as logs do. With users, it needs the right to administer the cluster. Exit code
3 if something could not be read; manifest.json in the archive lists that.")]
    SupportBundle(support_bundle::BundleArgs),
    /// Measure reads and writes of this machine
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Show what the steps of a training loop waited for, with the remedies
    Why(why::WhyArgs),
    /// Run a gateway and a target in one process
    Serve(serve::ServeArgs),
    /// Run a local cluster of separate processes
    Dev(dev::DevArgs),
    /// Run one gateway
    Gateway(node::GatewayArgs),
    /// Run one target
    Target(node::TargetArgs),
    /// Print a script that completes commands and names in a shell
    Completion(completion::CompletionArgs),
    /// Print the help of a command, or find commands by a word
    Help(help::HelpArgs),
    /// Print the JSON Schema of what commands print with -o json
    Schema(schema::SchemaArgs),
    /// Print the version
    Version,
}

fn main() -> ExitCode {
    os::resolve_names_without_modules();
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == completion::REQUEST) {
        completion::answer(words.collect());
        return ExitCode::SUCCESS;
    }
    let Cli { command, client } = match parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(refuse(&e)),
    };
    let code = match command {
        Command::Serve(args) => serve::run(args),
        Command::Dev(args) => dev::run(args),
        Command::Gateway(args) => node::gateway(&args),
        Command::Target(args) => node::target(&args),
        Command::Completion(args) => completion::print(&args),
        Command::Help(args) => finish(help::run(&args, client.output()), &client),
        Command::Schema(args) => finish(schema::run(&args, client.output()), &client),
        Command::Version => version::run(client.output()),
        Command::Config(command) => config::run(&command, client.output()),
        Command::Node(nodes::NodeCommand::Prestop(args)) => {
            prestop::run(&args, client.output().is_json())
        }
        command => finish(ask(&client, command), &client),
    };
    ExitCode::from(code)
}

/// Reports a failure; returns the exit code.
fn finish(result: Result<(), Failure>, client: &ClientArgs) -> u8 {
    match result {
        Ok(()) => exit::OK,
        Err(failure) => {
            failure.report(client.output().is_json());
            failure.code
        }
    }
}

/// Commands that run servers; the options of clients do not apply to them.
const SERVERS: [&str; 4] = ["serve", "dev", "gateway", "target"];

/// Reads the command line.
fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut grammar = Cli::command();
    let first = args.iter().skip(1).find(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    if first.is_some_and(|word| SERVERS.iter().any(|server| word == server)) {
        grammar = grammar.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    }
    let cli = Cli::from_arg_matches(&grammar.clone().try_get_matches_from(args)?)?;
    session::output_of_environment().map_err(|e| grammar.error(ErrorKind::InvalidValue, e))?;
    Ok(cli)
}

/// Prints the requested help, or the error of the command line, in JSON if the output is JSON.
/// Returns the exit code.
fn refuse(e: &clap::Error) -> u8 {
    let code = if e.use_stderr() { exit::USAGE } else { exit::OK };
    let is_help = matches!(
        e.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if !is_help && session::wants_json(std::env::args_os()) {
        let text = e.render().to_string();
        let mut parts = text.trim_start_matches("error: ").splitn(2, "\n\n");
        let message = parts.next().unwrap_or_default().trim();
        let usage = parts.next().unwrap_or_default().trim();
        Failure::usage(message, usage).report(true);
    } else {
        let _ = e.print();
    }
    code
}

/// Runs a client command.
fn ask(args: &ClientArgs, command: Command) -> Result<(), Failure> {
    let session = Session::new(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::internal(format!("cannot start threads: {e}")))?;
    // These report refused connections by themselves.
    if !session.quiet && !matches!(command, Command::Doctor(_) | Command::Ready(_)) {
        runtime.spawn(endpoint::report_refusal(session.client.clone()));
    }
    let result = runtime.block_on(until_interrupted(answer(&session, command)));
    if !session.quiet
        && let Some(warning) = session.client.version_warning()
    {
        session.warn(format!("warning: {warning}"));
    }
    // A pending read of standard input must not delay the exit.
    runtime.shutdown_background();
    result
}

async fn answer(session: &Session, command: Command) -> Result<(), Failure> {
    match command {
        Command::Ls(args) => bucket::list(session, &args).await,
        Command::Mb(args) => bucket::make(session, &args).await,
        Command::Rb(args) => bucket::remove(session, &args).await,
        Command::Bucket(command) => bucket_props::run(session, &command).await,
        Command::Put(args) => put::run(session, &args).await,
        Command::Get(args) => get::run(session, &args).await,
        Command::Cat(args) => object::cat(session, &args).await,
        Command::Cp(args) => transfer::copy(session, &args).await,
        Command::Mv(args) => transfer::move_all(session, &args).await,
        Command::Sync(args) => transfer::sync(session, &args).await,
        Command::Rm(args) => object::remove(session, &args).await,
        Command::Stat(args) => object::stat(session, &args).await,
        Command::Du(args) => listing::usage(session, &args).await,
        Command::Find(args) => listing::find(session, &args).await,
        Command::Presign(args) => presign::run(session, &args),
        Command::Prefetch(args) => prefetch::run(session, &args).await,
        Command::WriteBack(args) => job::write_back(session, &args).await,
        Command::Scrub(args) => job::start(session, JobKind::Scrub, &args).await,
        Command::Evict(args) => job::start(session, JobKind::Evict, &args).await,
        Command::Archive(command) => archive::run(session, &command).await,
        Command::Ishard(args) => ishard::run(session, &args).await,
        Command::Dsort(args) => dsort::run(session, &args).await,
        Command::Job(command) => job::run(session, &command).await,
        Command::Cluster(command) => cluster::run(session, &command).await,
        Command::Node(command) => nodes::run(session, &command).await,
        Command::Disk(command) => disk::run(session, &command).await,
        Command::Top(args) => top::run(session, &args).await,
        Command::Trace(args) => trace::run(session, &args).await,
        Command::Tls(command) => tls::run(session, &command).await,
        Command::Auth(command) => auth::run(session, &command).await,
        Command::Doctor(args) => doctor::run(session, &args).await,
        Command::Ready(args) => ready::run(session, &args).await,
        Command::SupportBundle(args) => support_bundle::run(session, &args).await,
        Command::Bench(command) => bench::run(session, &command).await,
        Command::Why(args) => why::run(session, &args).await,
        Command::Serve(_)
        | Command::Dev(_)
        | Command::Gateway(_)
        | Command::Target(_)
        | Command::Completion(_)
        | Command::Help(_)
        | Command::Schema(_)
        | Command::Config(_)
        | Command::Version => Err(Error::internal("not a client command").into()),
    }
}

/// Runs until the command ends, or until Ctrl-C: then the command is dropped, which removes
/// half-written files.
async fn until_interrupted(
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::select! {
        result = command => result,
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(exit::INTERRUPTED)),
    }
}
