//! An origin that fails on demand, request by request: an HTTP proxy in front of a real server that
//! alters the responses to reads and writes of objects.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How the response to one read of an object is altered. Bytes are of its body.
#[derive(Clone)]
pub enum Spoil {
    /// The server gets no request: this status, and seconds for `Retry-After`.
    Refuse(u16, Option<u32>),
    /// The response is delayed by this time.
    Late(Duration),
    /// After this many bytes nothing follows, until the client closes the connection.
    Stall(u64),
    /// The connection is closed in order (FIN) after this many bytes.
    Truncate(u64),
    /// The connection is reset (RST) after this many bytes.
    Reset(u64),
    /// The response announces this many bytes fewer than the object has, and sends no more.
    SayLess(u64),
    /// The ETag, and the generation, are those of another version.
    OtherVersion,
    /// This runs before the request goes to the server.
    First(Arc<dyn Fn() + Send + Sync>),
}

/// A read of an object, as the proxy saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub path: String,
    pub spoiled: bool,
}

#[derive(Default)]
struct Plan {
    /// For the next reads, in this order; `None` leaves one as it is.
    next: VecDeque<Option<Spoil>>,
    /// For every n-th read.
    every: Option<(u64, Spoil)>,
    seen: Vec<Seen>,
    /// For every write of an object, or of a part of one.
    writes: Option<Spoil>,
    written: Vec<Seen>,
}

/// The proxy; ends with this value.
pub struct FaultyOrigin {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// `host:port` of the real server.
    to: String,
    plan: Mutex<Plan>,
    body_bytes: AtomicU64,
    stopped: AtomicBool,
}

impl FaultyOrigin {
    /// In front of `http://host:port`.
    pub fn start(to: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", crate::ports::free(1))).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            to: crate::http::split(to).0.to_owned(),
            plan: Mutex::default(),
            body_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if serving.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = serving.clone();
                std::thread::spawn(move || shared.serve(client));
            }
        });
        Self { url, shared }
    }

    /// Alters the next reads.
    pub fn next(&self, spoils: impl IntoIterator<Item = Option<Spoil>>) {
        self.shared.plan.lock().unwrap().next.extend(spoils);
    }

    /// Alters every n-th read from now on; `None` stops that.
    pub fn every(&self, every: Option<(u64, Spoil)>) {
        let mut plan = self.shared.plan.lock().unwrap();
        plan.next.clear();
        plan.every = every;
    }

    /// Alters all writes of objects from now on; `None` stops that.
    pub fn writes(&self, spoil: Option<Spoil>) {
        self.shared.plan.lock().unwrap().writes = spoil;
    }

    /// The writes of objects, and of parts of them, whose path contains `name`.
    pub fn written(&self, name: &str) -> Vec<Seen> {
        let plan = self.shared.plan.lock().unwrap();
        plan.written.iter().filter(|seen| seen.path.contains(name)).cloned().collect()
    }

    /// The reads of objects whose path contains `name`.
    pub fn seen(&self, name: &str) -> Vec<Seen> {
        let plan = self.shared.plan.lock().unwrap();
        plan.seen.iter().filter(|seen| seen.path.contains(name)).cloned().collect()
    }

    /// Bytes of object data that the proxy forwarded.
    pub fn body_bytes(&self) -> u64 {
        self.shared.body_bytes.load(Ordering::SeqCst)
    }
}

impl Drop for FaultyOrigin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(crate::http::split(&self.url).0);
    }
}

/// The first line and the headers of a message, as they came.
struct Head {
    first: String,
    headers: Vec<(String, String)>,
}

impl Head {
    fn read(from: &mut impl BufRead) -> Option<Self> {
        let mut first = String::new();
        from.read_line(&mut first).ok().filter(|n| *n > 0)?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok().filter(|n| *n > 0)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
                None => return Some(Self { first: first.trim_end().to_owned(), headers }),
            }
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    fn change(&mut self, name: &str, change: impl Fn(&str) -> String) {
        for (_, value) in self.headers.iter_mut().filter(|(n, _)| n.eq_ignore_ascii_case(name)) {
            *value = change(value);
        }
    }

    fn drop(&mut self, name: &str) {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
    }

    fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let mut text = format!("{}\r\n", self.first);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        to.write_all(format!("{text}\r\n").as_bytes())
    }
}

impl Shared {
    /// Whether a request is a read of an object, and how its response is altered.
    fn judge(&self, request: &Head) -> (bool, Option<Spoil>) {
        let mut words = request.first.split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (name, query) = path.split_once('?').unwrap_or((path, ""));
        let in_google = query.contains("alt=media");
        // In S3, the path of an object has a slash behind its bucket; in Azure, one more behind the
        // account. A listing is no read of an object.
        let elsewhere = name.trim_start_matches('/').contains('/')
            && !name.contains("/storage/v1/")
            && !["list-type", "comp=list", "restype="].iter().any(|word| query.contains(word));
        if method == "PUT" && elsewhere {
            let mut plan = self.plan.lock().unwrap();
            let spoil = plan.writes.clone();
            let (at, path) = (Instant::now(), path.to_owned());
            plan.written.push(Seen { at, path, spoiled: spoil.is_some() });
            return (false, spoil);
        }
        if method != "GET" || !(in_google || elsewhere) {
            return (false, None);
        }
        let mut plan = self.plan.lock().unwrap();
        let nth = plan.seen.len() as u64 + 1;
        let spoil = match plan.next.pop_front() {
            Some(spoil) => spoil,
            None => plan.every.clone().filter(|(n, _)| nth.is_multiple_of(*n)).map(|(_, s)| s),
        };
        let spoiled = spoil.is_some();
        plan.seen.push(Seen { at: Instant::now(), path: path.to_owned(), spoiled });
        (true, spoil)
    }

    /// Answers one request and ends the connection.
    fn serve(&self, client: TcpStream) {
        let mut reader = BufReader::new(client.try_clone().unwrap());
        let Some(mut request) = Head::read(&mut reader) else { return };
        let (is_read, spoil) = self.judge(&request);
        match &spoil {
            Some(Spoil::Refuse(status, after)) => return refuse(client, *status, *after),
            Some(Spoil::Late(time)) => std::thread::sleep(*time),
            Some(Spoil::First(happens)) => happens(),
            _ => {}
        }
        let Ok(mut server) = TcpStream::connect(&self.to) else { return };
        request.drop("connection");
        request.headers.push(("connection".into(), "close".into()));
        if request.write(&mut server).is_err() {
            return;
        }
        let (mut up, shut) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let body = request.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        let chunked = request.get("transfer-encoding").is_some();
        // An answer may come before all of the request was sent.
        let sender = std::thread::spawn(move || {
            let limit = if chunked { u64::MAX } else { body };
            let _ = std::io::copy(&mut reader.take(limit), &mut up);
        });
        let _ = self.answer(BufReader::new(server), client, is_read, spoil);
        let _ = shut.shutdown(Shutdown::Both);
        let _ = sender.join();
    }

    fn answer(
        &self,
        mut server: BufReader<TcpStream>,
        mut client: TcpStream,
        is_read: bool,
        spoil: Option<Spoil>,
    ) -> std::io::Result<()> {
        let Some(mut head) = Head::read(&mut server) else { return Ok(()) };
        let mut left = u64::MAX;
        match &spoil {
            Some(Spoil::SayLess(bytes)) => {
                let length: u64 = head.get("content-length").unwrap().parse().unwrap();
                left = length.saturating_sub(*bytes);
                head.change("content-length", |_| left.to_string());
                head.change("x-goog-stored-content-length", |_| left.to_string());
            }
            Some(Spoil::OtherVersion) => {
                head.change("etag", |_| "\"00000000000000000000000000000000\"".into());
                head.change("x-goog-generation", |_| "7".into());
                head.drop("x-amz-version-id");
            }
            Some(Spoil::Stall(n) | Spoil::Truncate(n) | Spoil::Reset(n)) => left = *n,
            _ => {}
        }
        head.write(&mut client)?;
        let mut buffer = vec![0; 16 << 10];
        while left > 0 {
            let most = left.min(buffer.len() as u64) as usize;
            let n = server.read(&mut buffer[..most])?;
            if n == 0 {
                return Ok(());
            }
            if is_read {
                self.body_bytes.fetch_add(n as u64, Ordering::SeqCst);
            }
            client.write_all(&buffer[..n])?;
            left -= n as u64;
        }
        match spoil {
            // Until the client closes the connection.
            Some(Spoil::Stall(_)) => drop(client.read(&mut buffer)),
            Some(Spoil::Reset(_)) => reset(&client),
            _ => {}
        }
        Ok(())
    }
}

fn refuse(mut client: TcpStream, status: u16, after: Option<u32>) {
    let after = after.map(|s| format!("retry-after: {s}\r\n")).unwrap_or_default();
    let text = format!(
        "HTTP/1.1 {status} Refused\r\n{after}content-length: 0\r\nconnection: close\r\n\r\n"
    );
    let _ = client.write_all(text.as_bytes());
}

/// Closes a connection by RST, which discards bytes that were sent and not yet read.
fn reset(client: &TcpStream) {
    let _ = socket2::SockRef::from(client).set_linger(Some(Duration::ZERO));
}
