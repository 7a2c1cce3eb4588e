//! Loads an HTTP server from one thread and prints one line of JSON: rates, latencies, and the CPU
//! ticks that the server's processes spent meanwhile.
//!
//!     forebay-load run --to 127.0.0.1:7401 --path '/v1/objects/b/o{}' --count 1000 --seconds 3

// A program for people at a terminal: it prints.
#![allow(clippy::print_stdout)]

mod bare;
mod chunks;
mod connection;
mod large;
mod load;
mod ticks;
mod tls;

use std::error::Error;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(about = "Loads an HTTP server and says what that costs it")]
enum Command {
    /// Send requests
    Run(load::Args),
    /// Serve one file per request with a minimal handler: the upper bound
    Bare(bare::Args),
    /// Send one file in one of several ways
    Large(large::Args),
}

fn main() -> Result<(), Box<dyn Error>> {
    let command = Command::parse();
    let runtime = match command {
        // One thread: all of the other cores belong to the server.
        Command::Run(_) => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        Command::Bare(_) | Command::Large(_) => {
            tokio::runtime::Builder::new_multi_thread().enable_all().build()?
        }
    };
    runtime.block_on(async {
        match command {
            Command::Run(args) => println!("{}", serde_json::to_string(&load::run(args).await?)?),
            Command::Bare(args) => bare::serve(args).await?,
            Command::Large(args) => large::serve(args).await?,
        }
        Ok(())
    })
}
