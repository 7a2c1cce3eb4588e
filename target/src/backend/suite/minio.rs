//! A real MinIO for this test process. It ends with the process, however that ends.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub(super) const ACCESS_KEY: &str = "forebaytest";
pub(super) const SECRET_KEY: &str = "forebaytestsecret";

/// Starts MinIO, then waits for the end of its input: that is closed when the test process ends.
const KEEPER: &str = r#"
"$1" server --quiet --address "$2" "$3/data" >"$3/log" 2>&1 </dev/null &
minio=$!
read -r _
kill $minio
wait $minio
rm -rf "$3"
"#;

struct Minio {
    endpoint: String,
    _keeper: Child,
    _input: ChildStdin,
}

/// The endpoint of the running MinIO; `None`, with a word about it, where there is no MinIO.
pub(super) async fn endpoint() -> Option<String> {
    static MINIO: OnceLock<Option<Minio>> = OnceLock::new();
    let start = || MINIO.get_or_init(start).as_ref().map(|m| m.endpoint.clone());
    let endpoint = tokio::task::spawn_blocking(start).await.unwrap();
    if endpoint.is_none() {
        let required = std::env::var("FOREBAY_REQUIRE_MINIO").is_ok_and(|v| v == "1");
        assert!(!required, "MinIO not found, and FOREBAY_REQUIRE_MINIO is set");
        eprintln!("skipped: MinIO not found");
    }
    endpoint
}

fn program() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("FOREBAY_MINIO").filter(|v| !v.is_empty()) {
        return Some(given.into());
    }
    let home = std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache/forebay/bin/minio"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&on_path).map(|folder| folder.join("minio"));
    home.into_iter().chain(candidates).find(|path| path.is_file())
}

fn start() -> Option<Minio> {
    let program = program()?;
    for _ in 0..5 {
        let address = format!("127.0.0.1:{}", free_port());
        let folder = tempfile::Builder::new().prefix("forebay-minio-").tempdir().unwrap().keep();
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .args([program.as_path(), Path::new(&address), &folder])
            .env("MINIO_ROOT_USER", ACCESS_KEY)
            .env("MINIO_ROOT_PASSWORD", SECRET_KEY)
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off")
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh is there");
        let input = keeper.stdin.take().expect("it is piped");
        if ready(&address) {
            let endpoint = format!("http://{address}");
            return Some(Minio { endpoint, _keeper: keeper, _input: input });
        }
        let mut log = String::new();
        if let Ok(mut file) = std::fs::File::open(folder.join("log")) {
            let _ = file.read_to_string(&mut log);
        }
        drop(input);
        let _ = keeper.wait();
        eprintln!("MinIO did not start on {address}:\n{log}");
    }
    panic!("MinIO did not start");
}

/// Below the range from which outgoing connections take theirs.
fn free_port() -> u16 {
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut tries = std::iter::repeat_with(|| rand::random_range(15_000..32_000));
    tries.find(free).expect("the iterator has no end")
}

/// Waits until it answers its health check.
fn ready(address: &str) -> bool {
    use std::io::Write;
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Ok(mut stream) = std::net::TcpStream::connect(address) {
            let request = "GET /minio/health/ready HTTP/1.0\r\nHost: minio\r\n\r\n";
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let mut answer = [0; 12];
            if stream.write_all(request.as_bytes()).is_ok()
                && stream.read_exact(&mut answer).is_ok()
                && answer.ends_with(b"200")
            {
                return true;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}
