//! The HTTP path below `hyper` answers as `hyper` does: the same bytes go to a cluster with the path
//! and to one without it, and status lines, headers, bodies and the end of the connection are
//! compared. Where both differ on purpose, the test names the promise.

mod conversation;

use std::path::Path;
use std::sync::Arc;

use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::{content, fill_folder};
use forebay_tests::{Cluster, Options, Shared, http, wait};
use tempfile::TempDir;

use self::conversation::{Case, READ_TIMEOUT, Step};

/// Sizes of the objects in the bucket `fast`: in memory, without bytes, and in files.
const OBJECTS: [(&str, usize); 4] =
    [("hot", 1000), ("empty", 0), ("large", 300_000), ("n\u{e4}me x", 10)];
const COLD_OBJECTS: usize = 4;

static PAIR: Shared<Pair> = Shared::new();

/// Two clusters with the same content, each with one gateway and one target.
struct Pair {
    with_path: Cluster,
    without_path: Cluster,
    _folder: TempDir,
}

impl Pair {
    fn shared() -> Arc<Self> {
        PAIR.get(Self::start)
    }

    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..COLD_OBJECTS).map(|n| format!("cold-{n}")).collect();
        fill_folder(folder.path(), &names, 5000);
        let started = |is_on: bool| {
            let cluster = Cluster::start(Options {
                gateways: 1,
                targets: 1,
                folder_roots: vec![folder.path().to_owned()],
                env: vec![("FOREBAY_HTTP__FAST_PATH".to_owned(), is_on.to_string())],
                ..Options::default()
            });
            tokio::runtime::Runtime::new().unwrap().block_on(fill(&cluster, folder.path()));
            cluster
        };
        // Threads of their own: a test may run in a runtime.
        let (with_path, without_path) = std::thread::scope(|scope| {
            let both = [true, false].map(|is_on| scope.spawn(move || started(is_on)));
            let [with_path, without_path] = both.map(|cluster| cluster.join().unwrap());
            (with_path, without_path)
        });
        Self { with_path, without_path, _folder: folder }
    }

    /// Runs the same cases against the gateways, then against the targets of both clusters.
    fn compare(&self, cases: &[Case]) {
        for role in [Role::Gateway, Role::Target] {
            self.compare_at(role, cases, cases);
        }
    }

    /// Runs cases in order; those that carry a signature have other bytes in each cluster.
    #[track_caller]
    fn compare_at(&self, role: Role, with_path: &[Case], without_path: &[Case]) {
        assert_eq!(with_path.len(), without_path.len());
        let mut differences = Vec::new();
        for (case, same) in with_path.iter().zip(without_path) {
            assert_eq!(case.name, same.name);
            let fast = case.run(&self.with_path, url_of(&self.with_path, role));
            let plain = same.run(&self.without_path, url_of(&self.without_path, role));
            if fast != plain {
                let name = &case.name;
                differences.push(format!(
                    "{role:?}, {name}:\n  with the path: {fast:#?}\n  without it: {plain:#?}"
                ));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

/// Makes the buckets `fast` and `cold`, the second over a folder, and the objects of the first.
async fn fill(cluster: &Cluster, folder: &Path) {
    let (client, bucket) = (cluster.client(), native("fast"));
    client.create_bucket(&bucket, None).await.unwrap();
    for (name, size) in OBJECTS {
        client.put(&bucket, name, content(name, size), None).await.unwrap();
    }
    client.create_bucket(&native("cold"), Some(folder_backend(folder))).await.unwrap();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Gateway,
    Target,
}

fn url_of(cluster: &Cluster, role: Role) -> &str {
    match role {
        Role::Gateway => &cluster.endpoint,
        Role::Target => &cluster.targets[0].url,
    }
}

/// A request with these lines after `Host`; the method is in `start`, with the target.
fn request(start: &str, lines: &str) -> Vec<u8> {
    format!("{start} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n").into_bytes()
}

fn get(name: &str, lines: &str) -> Vec<u8> {
    request(&format!("GET /v1/objects/fast/{name}"), lines)
}

#[test]
fn reads_are_answered_alike() {
    let pair = Pair::shared();
    let mut cases = Vec::new();
    for name in
        ["hot", "empty", "large", "n%C3%A4me%20x", "n%c3%a4me%20x", "missing", "hot%", "%00"]
    {
        cases.push(Case::one(format!("GET {name}"), "GET", get(name, "")));
        let head = request(&format!("HEAD /v1/objects/fast/{name}"), "");
        cases.push(Case::one(format!("HEAD {name}"), "HEAD", head));
    }
    for range in [
        "bytes=0-0",
        "bytes=10-19",
        "bytes=990-",
        "bytes=990-5000",
        "bytes=-7",
        "bytes=-5000",
        "bytes=-0",
        "bytes=1000-",
        "bytes=5-2",
        "bytes=0-1,5-6",
        "bytes=",
        "bytes=x-y",
        "bytes=18446744073709551616-",
        "lines=0-1",
    ] {
        for name in ["hot", "empty", "large"] {
            let asked = get(name, &format!("Range: {range}\r\n"));
            cases.push(Case::one(format!("{name}, {range}"), "GET", asked));
        }
    }
    let two = get("hot", "Range: bytes=0-1\r\nRange: bytes=5-6\r\n");
    cases.push(Case::one("two lines with a range", "GET", two));
    for lines in [
        "If-None-Match: *\r\n",
        "If-Match: \"x\"\r\n",
        "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n",
        "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
        "If-Range: \"x\"\r\nRange: bytes=0-1\r\n",
        "Accept: */*\r\nAccept-Encoding: gzip\r\nUser-Agent: x\r\nX-Other: y\r\n",
        "Connection: keep-alive\r\n",
        "Connection: Keep-Alive\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive, close\r\n",
        "Connection: x\r\n",
        "Upgrade: websocket\r\nConnection: upgrade\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 3\r\n\r\nabc",
        "Expect: 100-continue\r\n",
        "Origin: http://elsewhere.test\r\n",
        "Authorization: Bearer x\r\n",
        "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n",
        "X-Forwarded-Proto: https\r\n",
    ] {
        let mut asked = get("hot", lines);
        if lines.ends_with("abc") {
            asked.truncate(asked.len() - 2);
        }
        cases.push(Case::one(format!("GET with {lines:?}"), "GET", asked));
    }
    for query in [
        "?",
        "?provider=ais",
        "?x=1&provider=ais",
        "?provider=ais&x=1",
        "?provider=ais&provider=ais",
        "?provider=other",
    ] {
        let asked = request(&format!("GET /v1/objects/fast/hot{query}"), "");
        cases.push(Case::one(query, "GET", asked));
    }
    for (name, start, method) in [
        ("an unknown bucket", "GET /v1/objects/none/hot", "GET"),
        ("a bucket", "GET /v1/objects/fast", "GET"),
        ("an unknown path", "GET /other", "GET"),
        ("an unknown method", "BREW /v1/objects/fast/hot", "BREW"),
        ("OPTIONS", "OPTIONS /v1/objects/fast/hot", "OPTIONS"),
        ("an asterisk", "OPTIONS *", "OPTIONS"),
        ("a fragment", "GET /v1/objects/fast/hot#part", "GET"),
        ("an absolute target", "GET http://127.0.0.1/v1/objects/fast/hot", "GET"),
        ("an absolute target elsewhere", "GET http://other.test/v1/objects/fast/hot", "GET"),
        ("a target without a slash", "GET v1/objects/fast/hot", "GET"),
        ("raw letters", "GET /v1/objects/fast/n\u{e4}me", "GET"),
    ] {
        cases.push(Case::one(name, method, request(start, "")));
    }
    let elsewhere = "GET /v1/objects/fast/hot HTTP/1.1\r\nHost: other.test\r\n\r\n";
    cases.push(Case::one("a foreign host", "GET", elsewhere));
    for lines in ["", "Connection: keep-alive\r\n", "Host: 127.0.0.1\r\n"] {
        let old = format!("GET /v1/objects/fast/hot HTTP/1.0\r\n{lines}\r\n");
        cases.push(Case::one(format!("HTTP/1.0 with {lines:?}"), "GET", old));
    }
    pair.compare(&cases);
}

#[tokio::test]
async fn cold_objects_and_those_that_became_hot_are_answered_alike() {
    let pair = Pair::shared();
    let bucket = native("cold");
    let asked = |name: &str, lines: &str| request(&format!("GET /v1/objects/cold/{name}"), lines);
    let first = [
        Case::one("cold", "GET", asked("cold-0", "")),
        Case::one("a cold range", "GET", asked("cold-1", "Range: bytes=100-199\r\n")),
        Case::one("cold, then the end", "GET", asked("cold-2", "Connection: close\r\n")),
        Case::one("a cold HEAD", "HEAD", request("HEAD /v1/objects/cold/cold-3", "")),
        Case::one("missing", "GET", asked("none", "")),
    ];
    pair.compare_at(Role::Target, &first, &first);
    for cluster in [&pair.with_path, &pair.without_path] {
        let client = cluster.client();
        wait::until_async("the cold object is kept", READ_TIMEOUT, || async {
            client.head(&bucket, "cold-0").await.is_ok_and(|head| head.present)
        })
        .await;
    }
    let hot = [
        Case::one("hot", "GET", asked("cold-0", "")),
        Case::one("missing", "GET", asked("none", "")),
    ];
    pair.compare_at(Role::Target, &hot, &hot);
}

#[test]
fn requests_that_come_together_or_in_parts_are_answered_alike() {
    let pair = Pair::shared();
    let head = request("HEAD /v1/objects/fast/hot", "");
    let ten: [(&'static str, Vec<u8>); 10] = [
        ("GET", get("hot", "")),
        ("HEAD", head.clone()),
        ("GET", get("missing", "")),
        ("GET", get("large", "")),
        ("GET", get("hot", "Range: bytes=5-9\r\n")),
        ("GET", get("hot", "Range: bytes=5000-\r\n")),
        ("GET", get("empty", "")),
        ("GET", request("GET /healthz", "")),
        ("GET", get("hot", "Content-Length: 0\r\n")),
        ("GET", get("hot", "")),
    ];
    let together = |name: &str, requests: &[(&'static str, Vec<u8>)]| {
        let bytes = requests.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let reads = requests.iter().map(|(method, _)| Step::Read(method));
        Case::new(name, std::iter::once(Step::Send(bytes)).chain(reads).collect::<Vec<_>>())
    };
    let in_parts = |name: &str, method: &'static str, bytes: Vec<u8>| {
        Case::new(name, [Step::SendByteByByte(bytes), Step::Read(method)])
    };
    let two = [("GET", get("hot", "")), ("GET", get("empty", ""))];
    let slow_first = [("HEAD", head.clone()), ("GET", get("hot", ""))];
    let closed = [("GET", get("hot", "Connection: close\r\n")), ("GET", get("hot", ""))];
    let broken = [("GET", get("hot", "")), ("GET", b"GET  / HTTP/1.1\r\n\r\n".to_vec())];
    let turns =
        ["hot", "missing", "hot"].map(|name| [Step::Send(get(name, "")), Step::Read("GET")]);
    pair.compare(&[
        together("two at once", &two),
        together("ten at once", &ten),
        together("hyper's, then a fast one", &slow_first),
        together("one after the last", &closed),
        together("a broken one after a fast one", &broken),
        Case::new("one after the other", turns.concat()),
        in_parts("a hot GET byte by byte", "GET", get("hot", "")),
        in_parts("a HEAD byte by byte", "HEAD", head),
        in_parts(
            "empty lines before a request",
            "GET",
            [b"\r\n\r\n".to_vec(), get("hot", "")].concat(),
        ),
    ]);
}

/// The path and query of a request that a gateway has redirected to the target.
fn signed(cluster: &Cluster, method: &str, name: &str) -> String {
    let redirect = http::request(method, &cluster.object_url("fast", name)).send();
    assert_eq!(redirect.status, 307, "{}", redirect.text());
    http::split(redirect.header("location").unwrap()).1.to_owned()
}

/// Writes over connections to the target of a cluster.
fn writes(cluster: &Cluster) -> Vec<Case> {
    let put = |name: &str, lines: &str, body: &[u8]| {
        let path = signed(cluster, "PUT", name);
        let lines = format!("Content-Length: {}\r\n{lines}", body.len());
        [request(&format!("PUT {path}"), &lines), body.to_vec()].concat()
    };
    let chunked = |body: &str| {
        let path = signed(cluster, "PUT", "chunked");
        let lines = "Transfer-Encoding: chunked\r\n";
        [request(&format!("PUT {path}"), lines), body.as_bytes().to_vec()].concat()
    };
    let delete = |name: &str| request(&format!("DELETE {}", signed(cluster, "DELETE", name)), "");
    let waiting = request(
        &format!("PUT {}", signed(cluster, "PUT", "waits")),
        "Content-Length: 5\r\nExpect: 100-continue\r\n",
    );
    let mut cases = Vec::new();
    for len in [0, 10, 9000, 65_536, 65_537, 200_000] {
        let name = format!("put-{len}");
        cases.push(Case::one(
            format!("PUT of {len} bytes"),
            "PUT",
            put(&name, "", &content(&name, len)),
        ));
        cases.push(Case::one(format!("GET of {len} bytes"), "GET", get(&name, "")));
    }
    let wrong = "ais-checksum-type: md5\r\nais-checksum-value: 0\r\n";
    cases.extend([
        Case::one("PUT with a wrong checksum", "PUT", put("hot-2", wrong, b"hello")),
        Case::one("PUT with another header", "PUT", put("hot-2", "X-Other: y\r\n", b"hello")),
        Case::one(
            "PUT over an object",
            "PUT",
            put("hot-2", "Content-Type: text/plain\r\n", b"again"),
        ),
        Case::one("PUT and the end", "PUT", put("hot-2", "Connection: close\r\n", b"last")),
        Case::new(
            "PUT byte by byte",
            [Step::SendByteByByte(put("hot-2", "", b"byte by byte")), Step::Read("PUT")],
        ),
        Case::new(
            "PUT, GET and PUT at once",
            [
                Step::Send(
                    [put("hot-3", "", b"x"), get("hot-3", ""), put("hot-3", "", b"y")].concat(),
                ),
                Step::Read("PUT"),
                Step::Read("GET"),
                Step::Read("PUT"),
            ],
        ),
        Case::new(
            "PUT that waits to continue",
            [
                Step::Send(waiting),
                Step::Read("PUT"),
                Step::Send(b"hello".to_vec()),
                Step::Read("PUT"),
            ],
        ),
        Case::new(
            "PUT whose data ends within the body",
            [
                Step::Send(put("cut", "", b"hello")[..].split_last().unwrap().1.to_vec()),
                Step::End,
                Step::Read("PUT"),
            ],
        ),
    ]);
    for (name, body) in [
        ("chunks", "5\r\nhello\r\n0\r\n\r\n"),
        ("chunks with extensions and a trailer", "5;x=1\r\nhello\r\n0\r\nSum: 1\r\n\r\n"),
        ("no chunk", "0\r\n\r\n"),
        ("a chunk of a size that is no number", "x\r\nhello\r\n0\r\n\r\n"),
        ("a chunk of a negative size", "-5\r\nhello\r\n0\r\n\r\n"),
        ("a chunk of too large a size", "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"),
        ("a chunk that is too long", "5\r\nhelloX\r\n0\r\n\r\n"),
        ("chunks with bare line feeds", "5\nhello\n0\n\n"),
    ] {
        cases.push(Case::one(name, "PUT", chunked(body)));
    }
    for name in ["hot-2", "hot-2", "put-0"] {
        cases.push(Case::one(format!("DELETE of {name}"), "DELETE", delete(name)));
        cases.push(Case::one(format!("GET after the DELETE of {name}"), "GET", get(name, "")));
    }
    cases
}

#[test]
fn writes_are_answered_alike() {
    let pair = Pair::shared();
    let (with_path, without_path) = (writes(&pair.with_path), writes(&pair.without_path));
    pair.compare_at(Role::Target, &with_path, &without_path);
    // Gateways redirect these, and targets refuse them without a signature.
    let put = |lines: &str, body: &str| {
        let head = request("PUT /v1/objects/fast/unsigned", lines);
        [head, body.as_bytes().to_vec()].concat()
    };
    let expects = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    pair.compare(&[
        Case::one("PUT", "PUT", put("Content-Length: 5\r\n", "hello")),
        Case::one("PUT of no bytes", "PUT", put("Content-Length: 0\r\n", "")),
        Case::one("PUT without a length", "PUT", put("", "")),
        Case::one("PUT that waits to continue", "PUT", put(expects, "")),
        Case::one("DELETE", "DELETE", request("DELETE /v1/objects/fast/unsigned", "")),
    ]);
}

#[test]
fn hostile_requests_are_answered_alike() {
    let pair = Pair::shared();
    let put = |lines: &str, body: &str| {
        let head = request("PUT /v1/objects/fast/hostile", lines);
        [head, body.as_bytes().to_vec()].concat()
    };
    let mut cases = Vec::new();
    for (name, bytes) in [
        ("two spaces", "GET  /v1/objects/fast/hot HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        ("no version", "GET /v1/objects/fast/hot\r\nHost: 127.0.0.1\r\n\r\n"),
        ("HTTP/2.0", "GET /v1/objects/fast/hot HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n"),
        ("a small version", "GET /v1/objects/fast/hot http/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        ("NUL in the target", "GET /v1/objects/fast/\0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        ("bare line feeds", "GET /v1/objects/fast/hot HTTP/1.1\nHost: 127.0.0.1\n\n"),
        ("bare carriage returns", "GET /v1/objects/fast/hot HTTP/1.1\rHost: 127.0.0.1\r\r\n\r\n"),
        ("no request", "\u{1}\u{2}\u{3}\r\n\r\n"),
        ("a space before the method", " GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        ("no host", "GET /v1/objects/fast/hot HTTP/1.1\r\n\r\n"),
        ("an empty host", "GET /v1/objects/fast/hot HTTP/1.1\r\nHost:\r\n\r\n"),
    ] {
        cases.push(Case::one(name, "GET", bytes));
    }
    for lines in [
        "no colon\r\n",
        "x : y\r\n",
        ": y\r\n",
        "x: y\r\n folded\r\n",
        "x: a\0b\r\n",
        "x: a\rb\r\n",
        "x: a\u{7f}b\r\n",
        "x: \u{e4}\r\n",
        "\u{e4}: x\r\n",
        "Host: 127.0.0.1\r\n",
        "Host: other.test\r\n",
        "Range: bytes=\u{e4}\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Transfer-Encoding : chunked\r\n",
    ] {
        cases.push(Case::one(format!("GET with {lines:?}"), "GET", get("hot", lines)));
    }
    let latin = [&b"GET /v1/objects/fast/hot HTTP/1.1\r\nHost: 127.0.0.1\r\nx: \xe4\r\n\r\n"[..]];
    cases.push(Case::one("a value in Latin-1", "GET", latin.concat()));
    for count in [40, 511, 512, 600] {
        let asked = get("hot", &"x: y\r\n".repeat(count));
        cases.push(Case::one(format!("{count} headers"), "GET", asked));
    }
    for len in [9_000, 60_000, 70_000] {
        let asked = get("hot", &format!("x: {}\r\n", "y".repeat(len)));
        cases.push(Case::one(format!("a header of {len} bytes"), "GET", asked));
        let asked = get(&"y".repeat(len), "");
        cases.push(Case::one(format!("a name of {len} bytes"), "GET", asked));
    }
    for (lines, body) in [
        ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nHost: 127.0.0.1\r\n", "0\r\n\r\n"),
    ] {
        cases.push(Case::one(format!("PUT with {lines:?}"), "PUT", put(lines, body)));
    }
    // A length that no client sends: the data ends before it.
    let huge = put("Content-Length: 9223372036854775807\r\n", "x");
    cases.push(Case::new("a huge length", [Step::Send(huge), Step::Read("PUT"), Step::End]));
    let cut = get("hot", "");
    cases.push(Case::new(
        "a head that ends early",
        [Step::Send(cut[..cut.len() - 3].to_vec()), Step::End, Step::Read("GET")],
    ));
    cases.push(Case::new("no bytes", [Step::End, Step::Read("GET")]));
    pair.compare(&cases);
}

/// `docs/semantics.md` promises that a request about which two readers could disagree is refused by
/// its head. `hyper` alone merges two equal lengths, prefers a transfer coding to a length, and
/// refuses the others without an explanation.
#[test]
fn a_body_with_two_ends_is_refused_with_an_explanation_by_the_fast_path_only() {
    let pair = Pair::shared();
    let start = "/v1/objects/fast/hostile";
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    for (head, status) in [
        (format!("PUT {start} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}{length}"), "400"),
        (
            format!("PUT {start} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}Content-Length: 6\r\n"),
            "400",
        ),
        (format!("PUT {start} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}{chunked}"), "400"),
        (format!("PUT {start} HTTP/1.1\r\nHost: 127.0.0.1\r\n{chunked}{length}"), "400"),
        (format!("PUT {start} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n"), "501"),
        (format!("PUT {start} HTTP/1.0\r\n{length}{chunked}"), "400"),
    ] {
        let case = Case::one(head.clone(), "PUT", format!("{head}\r\n0\r\n\r\n"));
        for role in [Role::Gateway, Role::Target] {
            let fast = case.run(&pair.with_path, url_of(&pair.with_path, role));
            let [Some(answer)] = &fast.answers[..] else { panic!("{role:?}, {head}: {fast:?}") };
            assert_eq!(answer.status_line.split(' ').nth(1), Some(status), "{role:?}, {head}");
            assert!(answer.body.contains("message"), "{role:?}, {head}: {answer:?}");
            assert!(fast.rest.is_empty(), "{role:?}, {head}: the connection ends");
            let plain = case.run(&pair.without_path, url_of(&pair.without_path, role));
            assert_ne!(fast, plain, "{role:?}, {head}: no exception is needed");
        }
    }
}

/// The end of a client's data is no reason to drop its answer (RFC 9112, 9.6). `hyper` drops it if
/// it reads that end before the answer is ready; the fast path never does.
#[test]
fn a_client_that_ends_its_data_after_a_request_gets_the_answer_of_the_fast_path() {
    let pair = Pair::shared();
    for (name, lines) in [("hot", ""), ("hot", "Range: bytes=1-5\r\n")] {
        let steps = [Step::Send(get(name, lines)), Step::End, Step::Read("GET")];
        let case = Case::new(format!("{name}, {lines:?}"), steps);
        let open = Case::one(case.name.clone(), "GET", get(name, lines));
        let expected = open.run(&pair.with_path, url_of(&pair.with_path, Role::Target)).answers;
        let fast = case.run(&pair.with_path, url_of(&pair.with_path, Role::Target));
        assert_eq!((&fast.answers, fast.rest.len()), (&expected, 0), "{}", case.name);
        let plain = case.run(&pair.without_path, url_of(&pair.without_path, Role::Target));
        assert!(plain.answers == expected || plain.answers == [None], "{plain:?}");
    }
}
