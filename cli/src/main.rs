//! The `forebay` command: its grammar, and which module answers which subcommand.

mod dev;
mod home;
mod node;
mod os;
mod probe;
mod serve;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A storage cache between cloud buckets and training loops.
#[derive(Parser)]
#[command(name = "forebay", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a gateway and a target in one process
    Serve(serve::ServeArgs),
    /// Run a local cluster of separate processes
    Dev(dev::DevArgs),
    /// Run one gateway
    Gateway(node::GatewayArgs),
    /// Run one target
    Target(node::TargetArgs),
    /// Say which version this is
    Version(version::VersionArgs),
}

fn main() -> ExitCode {
    let code = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Dev(args) => dev::run(args),
        Command::Gateway(args) => node::gateway(&args),
        Command::Target(args) => node::target(&args),
        Command::Version(args) => version::run(&args),
    };
    ExitCode::from(code)
}
