//! An authenticating proxy in front of a real server. It checks the credentials of each request and
//! rejects a request whose credentials are insufficient. For clients that send tokens only to their
//! cloud's own host name it is the HTTPS proxy, with a certificate of that name.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::skip;
use crate::web::{self, Received, Reply};

/// Lets a request pass, changed as the server needs it, or returns the rejection.
type Check = dyn Fn(&mut Received) -> Result<(), Reply> + Send + Sync;

/// The gate; its threads end with the test's process.
pub struct Gate {
    pub url: String,
    turned_away: Arc<AtomicU64>,
}

struct Keeper {
    /// `host:port` of the real server.
    to: String,
    check: Box<Check>,
    tls: Option<Arc<ServerConfig>>,
    turned_away: Arc<AtomicU64>,
}

impl Gate {
    /// Starts in front of `http://host:port`; with an identity also for HTTPS, by CONNECT.
    pub fn start(
        to: &str,
        identity: Option<&Identity>,
        check: impl Fn(&mut Received) -> Result<(), Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", crate::ports::free(1))).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let turned_away = Arc::new(AtomicU64::new(0));
        let keeper = Arc::new(Keeper {
            to: crate::http::split(to).0.to_owned(),
            check: Box::new(check),
            tls: identity.map(Identity::server),
            turned_away: Arc::clone(&turned_away),
        });
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let keeper = Arc::clone(&keeper);
                std::thread::spawn(move || keeper.open(client));
            }
        });
        Self { url, turned_away }
    }

    /// Requests that were rejected.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::SeqCst)
    }
}

impl Keeper {
    fn open(&self, client: TcpStream) -> Option<()> {
        let mut client = BufReader::new(client);
        let request = web::read(&mut client)?;
        if request.method != "CONNECT" {
            return self.serve(request, client.get_mut());
        }
        client.get_mut().write_all(b"HTTP/1.1 200 Connected\r\n\r\n").ok()?;
        let session = ServerConnection::new(Arc::clone(self.tls.as_ref()?)).ok()?;
        let mut client = BufReader::new(StreamOwned::new(session, client.into_inner()));
        let request = web::read(&mut client)?;
        let done = self.serve(request, client.get_mut());
        let client = client.get_mut();
        client.conn.send_close_notify();
        client.flush().ok()?;
        done
    }

    /// One request on one connection.
    fn serve(&self, mut request: Received, client: &mut impl Write) -> Option<()> {
        if let Err(reply) = (self.check)(&mut request) {
            self.turned_away.fetch_add(1, Ordering::SeqCst);
            return reply.write(client);
        }
        let mut server = TcpStream::connect(&self.to).ok()?;
        request.headers.insert("connection".into(), "close".into());
        request.write(&mut server)?;
        // Copies in a loop of its own, which flushes each buffer as it arrives.
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = server.read(&mut buffer) {
            client.write_all(&buffer[..n]).ok()?;
        }
        client.flush().ok()
    }
}

/// Certificates for names of clouds, signed by an authority of this test run.
pub struct Identity {
    folder: tempfile::TempDir,
}

impl Identity {
    /// For these names; `None`, after saying so, where there is no `openssl` to make it.
    pub fn of(names: &[&str]) -> Option<Self> {
        let made = Self { folder: tempfile::tempdir().unwrap() };
        let names: Vec<_> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let extension = format!("subjectAltName={}\n", names.join(","));
        std::fs::write(made.file("names"), extension).unwrap();
        const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        let steps = [
            format!("req -x509 {KEY} -keyout ca.key -out ca.pem -days 2 -subj /CN=forebay-tests"),
            format!("req {KEY} -keyout key.pem -out request -subj /CN=cloud"),
            "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 \
             -extfile names"
                .to_owned(),
        ];
        for step in steps {
            let mut openssl = Command::new("openssl");
            openssl.args(step.split_whitespace()).current_dir(made.folder.path());
            match openssl.stdin(Stdio::null()).output() {
                Ok(done) => {
                    let said = String::from_utf8_lossy(&done.stderr);
                    assert!(done.status.success(), "openssl {step}: {said}");
                }
                Err(e) => {
                    skip::skipped(&format!("openssl cannot be run: {e}"));
                    return None;
                }
            }
        }
        Some(made)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Path of the certificate of the authority that clients must trust.
    pub fn authority(&self) -> PathBuf {
        self.file("ca.pem")
    }

    fn server(&self) -> Arc<ServerConfig> {
        let certificate = CertificateDer::from_pem_file(self.file("cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
    }
}

/// Environment with which a process uses `gate` as its HTTPS proxy and trusts `identity`.
pub fn through(gate: &Gate, identity: &Identity) -> Vec<(String, String)> {
    let authority = identity.authority();
    let authority = authority.to_str().unwrap();
    let pairs = [("HTTPS_PROXY", gate.url.as_str()), ("SSL_CERT_FILE", authority)];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}
