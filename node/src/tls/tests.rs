//! Tests of a node's TLS over real connections.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use forebay_client::tls::TlsOptions;
use forebay_core::config::TlsConfig;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::exchange::Observer;
use crate::listener::Peer;

/// Writes a self-signed certificate and its key; returns their paths.
fn write_pair(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".into(), name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let (cert, key_file) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}-key.pem")));
    std::fs::write(&cert, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    (cert, key_file)
}

fn config(cert: &Path, key: &Path) -> NodeConfig {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let tls = TlsConfig { cert: text(cert), key: text(key), ..TlsConfig::default() };
    NodeConfig { tls, ..NodeConfig::default() }
}

/// Serves connections with `tls` until the test ends: each gets its first bytes back.
async fn echo(tls: NodeTls) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, from) = listener.accept().await.unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                let (peer, end) = (Peer(from.ip()), CancellationToken::new());
                let mut bytes = [0; 4];
                match tls.accept(stream, peer, ("t[x]", &Observer::default()), &end).await {
                    Accepted::Tls(mut stream) => {
                        stream.read_exact(&mut bytes).await.unwrap();
                        stream.write_all(&bytes).await.unwrap();
                        stream.shutdown().await.unwrap();
                    }
                    Accepted::Plain(mut stream) => {
                        // Unread bytes would reset the connection.
                        while bytes != *b"\r\n\r\n" {
                            bytes.rotate_left(1);
                            bytes[3] = stream.read_u8().await.unwrap();
                        }
                        stream.write_all(b"plain").await.unwrap();
                    }
                    Accepted::Ended => {}
                }
            });
        }
    });
    address
}

/// The names of the certificate that a client sees, if it trusts `ca`.
async fn names(address: &str, ca: &Path) -> std::io::Result<Vec<String>> {
    names_by(address, TlsOptions { ca_file: Some(ca.to_owned()), ..TlsOptions::default() }).await
}

async fn names_by(address: &str, options: TlsOptions) -> std::io::Result<Vec<String>> {
    let url = format!("https://{address}");
    let (mut stream, _) = TlsClient::new(options).connect(&url, Duration::from_secs(1)).await?;
    stream.write_all(b"ping").await?;
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await?;
    assert_eq!(back, b"ping");
    Ok(CertificateInfo::read(&stream.peer_certificates()[0]).unwrap().names)
}

#[test]
fn a_key_that_every_user_can_read_or_of_another_certificate_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ((cert, key), (_, other)) = (write_pair(dir.path(), "a"), write_pair(dir.path(), "b"));
    let refused = |config: &NodeConfig| NodeTls::load(config).map(drop).unwrap_err();
    assert!(NodeTls::load(&NodeConfig::default()).unwrap().is_none());
    NodeTls::load(&config(&cert, &key)).unwrap();
    assert!(refused(&config(&cert, &other)).message.contains("cannot be used for TLS"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let e = refused(&config(&cert, &key));
    assert!(e.message.contains("every user of this machine can use"), "{e}");
    assert!(e.hint.unwrap().starts_with("chmod 600"));
    let missing = refused(&config(&dir.path().join("none.pem"), &key));
    assert!(missing.message.contains("tls.cert: cannot read"), "{missing}");
}

#[tokio::test]
async fn new_files_are_used_and_broken_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let ((cert, key), (other, other_key)) =
        (write_pair(dir.path(), "first"), write_pair(dir.path(), "second"));
    let tls = NodeTls::load(&config(&cert, &key)).unwrap().unwrap();
    let address = echo(tls.clone()).await;
    let first = dir.path().join("ca-first.pem");
    std::fs::copy(&cert, &first).unwrap();
    assert_eq!(names(&address, &first).await.unwrap(), ["127.0.0.1", "first"]);
    // The certificate changes before its key.
    std::fs::copy(&other, &cert).unwrap();
    let seen = tls.check(tls.0.content.clone());
    assert_eq!(names(&address, &first).await.unwrap(), ["127.0.0.1", "first"]);
    std::fs::copy(&other_key, &key).unwrap();
    let seen = tls.check(seen);
    assert_eq!(names(&address, &other).await.unwrap(), ["127.0.0.1", "second"]);
    assert!(names(&address, &first).await.is_err(), "the former certificate is still in use");
    std::fs::write(&cert, "broken").unwrap();
    tls.check(seen);
    assert_eq!(names(&address, &other).await.unwrap(), ["127.0.0.1", "second"]);
}

#[tokio::test]
async fn plain_http_is_refused_in_words_or_served_beside_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = write_pair(dir.path(), "a");
    let mut config = config(&cert, &key);
    let answer = async |config: &NodeConfig| {
        let address = echo(NodeTls::load(config).unwrap().unwrap()).await;
        assert_eq!(names(&address, &cert).await.unwrap(), ["127.0.0.1", "a"]);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    };
    let refusal = answer(&config).await;
    assert!(refusal.starts_with("HTTP/1.1 400 "), "{refusal}");
    assert!(refusal.contains("this port speaks HTTPS"), "{refusal}");
    config.tls.http = true;
    assert_eq!(answer(&config).await, "plain");
}

#[tokio::test]
async fn handshakes_that_do_not_end_delay_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = write_pair(dir.path(), "a");
    let address = echo(NodeTls::load(&config(&cert, &key)).unwrap().unwrap()).await;
    let mut slow = Vec::new();
    for _ in 0..MAX_HANDSHAKES + 50 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&[0x16, 3, 1]).await.unwrap();
        slow.push(stream);
    }
    let began = Instant::now();
    assert_eq!(names(&address, &cert).await.unwrap(), ["127.0.0.1", "a"]);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(slow);
}

#[tokio::test]
async fn a_client_needs_a_certificate_where_one_is_required() {
    let dir = tempfile::tempdir().unwrap();
    let ((cert, key), (own, own_key)) =
        (write_pair(dir.path(), "node"), write_pair(dir.path(), "client"));
    let mut config = config(&cert, &key);
    config.tls.client_ca = own.to_str().unwrap().to_owned();
    let with = TlsOptions {
        ca_file: Some(cert.clone()),
        cert_file: Some(own),
        key_file: Some(own_key),
        skip_verify: false,
    };
    for is_required in [false, true] {
        config.tls.require_client_cert = is_required;
        let address = echo(NodeTls::load(&config).unwrap().unwrap()).await;
        assert!(names_by(&address, with.clone()).await.is_ok());
        let without = names(&address, &cert).await;
        assert_eq!(without.is_err(), is_required, "{without:?}");
        if let Err(e) = without {
            let problem = forebay_client::tls::TlsProblem::of("https://h", &e).unwrap();
            assert!(problem.hint.contains("FOREBAY_CLIENT_CERT"), "{problem}");
        }
    }
}
