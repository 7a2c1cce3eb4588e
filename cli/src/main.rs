//! The `forebay` command: its grammar, and which module answers which subcommand.

mod allocator;
mod backup;
mod bucket;
mod bucket_props;
mod cluster;
mod dev;
mod disk;
mod doctor;
mod doctor_bucket;
mod dsort;
mod endpoint;
mod failure;
mod get;
mod home;
mod idle;
mod ishard;
mod job;
mod node;
mod nodes;
mod object;
mod os;
mod output;
mod part;
mod pid_file;
mod probe;
mod progress;
mod put;
mod serve;
mod session;
mod standard;
mod uri;
mod version;

use std::future::Future;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use forebay_core::Error;
use forebay_core::job::JobKind;

use crate::failure::{Failure, exit};
use crate::session::{ClientArgs, Session};

/// A storage cache between cloud buckets and training loops.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    disable_help_subcommand = true,
    after_help = "Buckets and objects are written as URIs: ais://bucket/object for the cluster's own
(fb:// and forebay:// are the same), s3://, gs://, az:// for those of a cloud. - is a standard stream.

Exit codes: 0 done, 1 failed, 2 usage, 3 done in part, 4 not found, 5 denied, 6 conflict,
7 cluster not available, 8 job failed or cancelled, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List buckets, or the objects of one
    Ls(bucket::ListArgs),
    /// Make a bucket
    Mb(bucket::MakeArgs),
    /// Remove a bucket
    Rb(bucket::RemoveArgs),
    /// Look at a bucket's properties and change them
    #[command(subcommand)]
    Bucket(bucket_props::BucketCommand),
    /// Put files into a bucket
    Put(put::PutArgs),
    /// Get objects into files
    Get(get::GetArgs),
    /// Write objects to standard output
    Cat(object::CatArgs),
    /// Remove objects
    Rm(object::RemoveArgs),
    /// Show what is known of an object or bucket
    Stat(object::StatArgs),
    /// Bring objects of a backend into the cluster before they are needed
    Prefetch(job::PrefetchArgs),
    /// Drop cached copies; the backend keeps the objects
    Evict(job::SelectArgs),
    /// Write native objects to a bucket of a cloud, and see that they are there
    WriteBack(job::WriteBackArgs),
    /// Compare what is stored of a bucket with its checksums, now
    Scrub(job::SelectArgs),
    /// Pack the objects of a bucket into shards
    Ishard(Box<ishard::IshardArgs>),
    /// Sort or shuffle the records of shards into other shards
    Dsort(Box<dsort::DsortArgs>),
    /// Watch and stop jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Look at the cluster
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Take targets out of use and back, let nodes leave the cluster
    #[command(subcommand)]
    Node(nodes::NodeCommand),
    /// Look at the disks of targets, attach and detach them
    #[command(subcommand)]
    Disk(disk::DiskCommands),
    /// Check what may be wrong between here and the cluster, or the cluster and a bucket's cloud
    #[command(
        after_help = "Examples:\n  forebay doctor --endpoint http://10.0.0.7:7400\n  forebay doctor gs://train/images/"
    )]
    Doctor(doctor::DoctorArgs),
    /// Run a gateway and a target in one process
    Serve(serve::ServeArgs),
    /// Run a local cluster of separate processes
    Dev(dev::DevArgs),
    /// Run one gateway
    Gateway(node::GatewayArgs),
    /// Run one target
    Target(node::TargetArgs),
    /// Say which version this is
    Version,
}

fn main() -> ExitCode {
    let Cli { command, client } = Cli::parse();
    let code = match command {
        Command::Serve(args) => serve::run(args),
        Command::Dev(args) => dev::run(args),
        Command::Gateway(args) => node::gateway(&args),
        Command::Target(args) => node::target(&args),
        Command::Version => version::run(client.output),
        command => match ask(&client, command) {
            Ok(()) => exit::OK,
            Err(failure) => {
                failure.report(client.output.is_json());
                failure.code
            }
        },
    };
    ExitCode::from(code)
}

/// Runs a client command.
fn ask(args: &ClientArgs, command: Command) -> Result<(), Failure> {
    let session = Session::new(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::internal(format!("cannot start threads: {e}")))?;
    // The doctor reports by itself.
    if !session.quiet && !matches!(command, Command::Doctor(_)) {
        runtime.spawn(endpoint::report_refusal(session.client.clone()));
    }
    let result = runtime.block_on(until_interrupted(answer(&session, command)));
    // A read of standard input that nobody waits for any more must not hold up the end.
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
        Command::Rm(args) => object::remove(session, &args).await,
        Command::Stat(args) => object::stat(session, &args).await,
        Command::Prefetch(args) => job::prefetch(session, &args).await,
        Command::WriteBack(args) => job::write_back(session, &args).await,
        Command::Scrub(args) => job::start(session, JobKind::Scrub, &args).await,
        Command::Evict(args) => job::start(session, JobKind::Evict, &args).await,
        Command::Ishard(args) => ishard::run(session, &args).await,
        Command::Dsort(args) => dsort::run(session, &args).await,
        Command::Job(command) => job::run(session, &command).await,
        Command::Cluster(command) => cluster::run(session, &command).await,
        Command::Node(command) => nodes::run(session, &command).await,
        Command::Disk(command) => disk::run(session, &command).await,
        Command::Doctor(args) => doctor::run(session, &args).await,
        Command::Serve(_)
        | Command::Dev(_)
        | Command::Gateway(_)
        | Command::Target(_)
        | Command::Version => Err(Error::internal("not a client command").into()),
    }
}

/// Ends with the command, or at Ctrl-C: then what the command holds is dropped, half-written files
/// with it.
async fn until_interrupted(
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::select! {
        result = command => result,
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(exit::INTERRUPTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound_and_every_command_helps() {
        let mut cli = Cli::command();
        cli.clone().debug_assert();
        for sub in cli.get_subcommands_mut() {
            let help = sub.render_long_help().to_string();
            assert!(sub.get_about().is_some() && help.contains("Usage"), "{help}");
        }
    }

    #[test]
    fn client_options_stand_anywhere() {
        for line in [
            ["forebay", "-o", "json", "ls", "ais://b"],
            ["forebay", "ls", "-o", "json", "ais://b"],
            ["forebay", "ls", "ais://b", "-o", "json"],
        ] {
            let parsed = Cli::try_parse_from(line);
            assert!(parsed.is_ok_and(|cli| cli.client.output.is_json()), "{line:?}");
        }
        assert!(Cli::try_parse_from(["forebay", "version", "-o", "json"]).is_ok());
        assert!(Cli::try_parse_from(["forebay", "get", "ais://b/o", "-", "--range", "-5"]).is_ok());
        for bad in [&["forebay"][..], &["forebay", "ls", "--what"], &["forebay", "mb"]] {
            assert!(Cli::try_parse_from(bad).is_err(), "{bad:?}");
        }
    }
}
