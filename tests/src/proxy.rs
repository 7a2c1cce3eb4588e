//! A TCP proxy between a target and its cloud that breaks connections on demand.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NEVER: u64 = u64::MAX;

/// Forwards bytes in both directions, until the test requests cuts.
pub struct Proxy {
    pub url: String,
    limit: Arc<AtomicU64>,
    cuts: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Proxy {
    /// In front of `http://host:port`.
    pub fn start(to: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", crate::ports::free(1))).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let proxy = Self {
            url,
            limit: Arc::new(AtomicU64::new(NEVER)),
            cuts: Arc::default(),
            stopped: Arc::default(),
        };
        let to = crate::http::split(to).0.to_owned();
        let (limit, cuts, stopped) =
            (proxy.limit.clone(), proxy.cuts.clone(), proxy.stopped.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(&to) else { continue };
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass(up, down, None));
                let (limit, cuts) = (limit.clone(), cuts.clone());
                std::thread::spawn(move || pass(server, client, Some((limit, cuts))));
            }
        });
        proxy
    }

    /// From now on a connection ends after this many bytes of responses.
    pub fn cut_after(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.limit.store(NEVER, Ordering::SeqCst);
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(crate::http::split(&self.url).0);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: Option<(Arc<AtomicU64>, Arc<AtomicU64>)>) {
    let mut buffer = vec![0; 16 << 10];
    let mut passed = 0u64;
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if let Some((limit, cuts)) = &cut {
            let left = limit.load(Ordering::SeqCst).saturating_sub(passed);
            if left < n as u64 {
                let _ = to.write_all(&buffer[..left as usize]);
                cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
        passed += n as u64;
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
