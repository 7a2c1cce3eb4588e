//! The load: connections, each of which sends its next request after the last response.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::LocalSet;

use crate::connection::{Answer, Connection};
use crate::ticks::Processes;
use crate::tls::Tls;

/// Consecutive failures after which a connection gives up.
const MOST_FAILURES: u64 = 20;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Server, as HOST:PORT
    #[arg(long)]
    to: String,
    #[arg(long, default_value = "GET")]
    method: String,
    /// Path and query; `{}` stands for the number of the object, 8 digits
    #[arg(long)]
    path: String,
    /// Objects: numbers from 0 up to this
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Objects in a random order instead of one after the other
    #[arg(long)]
    random: bool,
    /// Duration; without it, each object is requested once
    #[arg(long)]
    seconds: Option<f64>,
    #[arg(long, default_value_t = 16)]
    connections: u64,
    /// Bytes of a request's body
    #[arg(long, default_value_t = 0)]
    body: usize,
    /// File with the body of each request
    #[arg(long, conflicts_with = "body")]
    body_file: Option<PathBuf>,
    /// Send a request again, without its headers, to where a redirect points
    #[arg(long, conflicts_with_all = ["body", "body_file", "ca"])]
    follow: bool,
    /// PEM file with the CA of the server: the load is sent over TLS 1.3
    #[arg(long)]
    ca: Option<PathBuf>,
    /// The only cipher suite that is offered
    #[arg(long, default_value = "TLS13_AES_128_GCM_SHA256")]
    suite: String,
    /// `Name: value` of each request
    #[arg(long)]
    header: Vec<String>,
    /// A process of the server; its children count too
    #[arg(long)]
    pid: Vec<u32>,
}

/// The result of a load.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    seconds: f64,
    ops: u64,
    /// Bytes of bodies, in both directions.
    bytes: u64,
    /// Requests that broke, or whose response was not 2xx.
    errors: u64,
    first_error: Option<String>,
    ops_per_s: f64,
    bytes_per_s: f64,
    p50_us: u64,
    p99_us: u64,
    /// CPU time of the server's processes, in hundredths of a second.
    server_ticks: u64,
    client_ticks: u64,
    /// Memory of the server's processes at the end.
    server_resident: u64,
}

/// State that the connections share; they run on one thread.
struct Shared {
    args: Args,
    tls: Option<Tls>,
    payload: Vec<u8>,
    until: Option<Instant>,
    next: Cell<u64>,
    counts: RefCell<Counts>,
}

#[derive(Default)]
struct Counts {
    bytes: u64,
    errors: u64,
    first_error: Option<String>,
    /// Latencies of successful requests, µs.
    latencies: Vec<u32>,
}

/// Runs the load to its end.
pub(crate) async fn run(args: Args) -> Result<Outcome, Box<dyn Error>> {
    let payload = match &args.body_file {
        Some(file) => std::fs::read(file)?,
        None => noise(args.body),
    };
    let tls = args.ca.as_ref().map(|ca| Tls::new(ca, &args.suite, &args.to)).transpose()?;
    let server = Processes::of(&args.pid);
    let own = Processes::of(&[std::process::id()]);
    let (before, own_before) = (server.ticks(), own.ticks());
    let started = Instant::now();
    let shared = Rc::new(Shared {
        tls,
        payload,
        until: args.seconds.map(|s| started + Duration::from_secs_f64(s)),
        next: Cell::new(0),
        counts: RefCell::default(),
        args,
    });
    let tasks = LocalSet::new();
    for number in 0..shared.args.connections {
        tasks.spawn_local(connection(shared.clone(), number));
    }
    tasks.await;
    let seconds = started.elapsed().as_secs_f64();
    let server_ticks = server.ticks() - before;
    let client_ticks = own.ticks() - own_before;
    let mut counts = shared.counts.take();
    counts.latencies.sort_unstable();
    let percentile = |p: f64| {
        let at = (counts.latencies.len() as f64 * p) as usize;
        counts.latencies.get(at).copied().unwrap_or(0).into()
    };
    let ops = counts.latencies.len() as u64;
    Ok(Outcome {
        seconds,
        ops,
        bytes: counts.bytes,
        errors: counts.errors,
        ops_per_s: ops as f64 / seconds,
        bytes_per_s: counts.bytes as f64 / seconds,
        p50_us: percentile(0.5),
        p99_us: percentile(0.99),
        first_error: counts.first_error,
        server_ticks,
        client_ticks,
        server_resident: server.resident(),
    })
}

async fn connection(shared: Rc<Shared>, number: u64) {
    let mut requests = Requests::new(&shared.args, &shared.payload, number);
    let mut open = HashMap::new();
    let mut failures = 0;
    while failures < MOST_FAILURES
        && let Some(object) = shared.next(&mut requests)
    {
        let request = requests.of(object);
        let began = Instant::now();
        match ask(&mut open, &shared, request).await {
            Ok(bytes) => {
                failures = 0;
                let took = began.elapsed().as_micros().min(u32::MAX.into()) as u32;
                let mut counts = shared.counts.borrow_mut();
                counts.latencies.push(took);
                counts.bytes += bytes + shared.payload.len() as u64;
            }
            Err(e) => {
                failures += 1;
                let mut counts = shared.counts.borrow_mut();
                counts.errors += 1;
                counts.first_error.get_or_insert_with(|| e.to_string());
            }
        }
    }
}

/// Open connections by address.
type Links = HashMap<String, Connection>;

/// Sends one request, and a second one if a redirect is followed. Returns the bytes of the body.
async fn ask(links: &mut Links, shared: &Shared, request: &[u8]) -> io::Result<u64> {
    let args = &shared.args;
    let mut answer = send(links, &args.to, shared, request).await?;
    let location = answer.location.take().filter(|_| args.follow && answer.status / 100 == 3);
    if let Some(url) = location {
        let path = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
        let (to, path) = path.ok_or_else(|| io::Error::other(format!("redirect to {url}")))?;
        let again = format!("{} /{path} HTTP/1.1\r\nHost: {to}\r\n\r\n", args.method);
        answer = send(links, to, shared, again.as_bytes()).await?;
    }
    if (200..300).contains(&answer.status) {
        Ok(answer.bytes)
    } else {
        Err(io::Error::other(format!("status {}", answer.status)))
    }
}

/// Sends one request to an address; opens the connection if there is none.
async fn send(links: &mut Links, to: &str, shared: &Shared, request: &[u8]) -> io::Result<Answer> {
    let mut connection = match links.remove(to) {
        Some(connection) => connection,
        None => Connection::open(to, shared.tls.as_ref()).await?,
    };
    let answer = connection.exchange(request).await?;
    if !answer.last {
        links.insert(to.to_owned(), connection);
    }
    Ok(answer)
}

impl Shared {
    /// The number of the next object; `None` at the end.
    fn next(&self, requests: &mut Requests) -> Option<u64> {
        let count = self.args.count.max(1);
        let n = self.next.get();
        self.next.set(n + 1);
        match self.until {
            Some(until) if Instant::now() >= until => None,
            None if n >= count => None,
            _ if self.args.random => Some(requests.random() % count),
            _ => Some(n % count),
        }
    }
}

/// Writes requests into one buffer.
struct Requests {
    /// Before and after the object's number.
    parts: (Vec<u8>, Vec<u8>),
    numbered: bool,
    request: Vec<u8>,
    random: u64,
}

impl Requests {
    fn new(args: &Args, payload: &[u8], connection: u64) -> Self {
        let (before, after) = args.path.split_once("{}").unwrap_or((&args.path, ""));
        let mut rest = format!("{after} HTTP/1.1\r\nHost: {}\r\n", args.to);
        for header in &args.header {
            rest.push_str(header);
            rest.push_str("\r\n");
        }
        if !payload.is_empty() {
            rest.push_str(&format!("Content-Length: {}\r\n", payload.len()));
        }
        rest.push_str("\r\n");
        let mut rest = rest.into_bytes();
        rest.extend_from_slice(payload);
        Self {
            parts: (format!("{} {before}", args.method).into_bytes(), rest),
            numbered: args.path.contains("{}"),
            request: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15 ^ (connection + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9),
        }
    }

    fn of(&mut self, object: u64) -> &[u8] {
        self.request.clear();
        self.request.extend_from_slice(&self.parts.0);
        if self.numbered {
            self.request.extend_from_slice(format!("{object:08}").as_bytes());
        }
        self.request.extend_from_slice(&self.parts.1);
        &self.request
    }

    /// xorshift64.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.push((state >> 33) as u8);
    }
    bytes
}
