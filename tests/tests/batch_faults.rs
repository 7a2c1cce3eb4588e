//! Batches while targets die and join: every entry with the right bytes, in order, whichever target
//! sends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{Bucket, ErrorCode, ObjectName, placement};
use forebay_tests::cluster::{NodeHandle, folder_backend, native};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::{Cluster, Options, http};
use futures::StreamExt;

/// So many entries that each target still has to send most of its part when a reader has received a
/// sixth of the batch; sockets and clients buffer less than that.
const COUNT: usize = 6000;
const SIZE: usize = 30_000;

/// A cluster over a folder. Of a batch's entries one in ten is cold, one in a hundred missing.
struct World {
    cluster: Cluster,
    bucket: Bucket,
    /// The names of the batch, unsorted; every hundredth does not exist.
    asked: Vec<String>,
    _root: tempfile::TempDir,
}

fn is_missing(at: usize) -> bool {
    at % 100 == 57
}

async fn world() -> World {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let client = cluster.client();
    let bucket = native("files");
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let there = names(COUNT);
    fill_folder(root.path(), &there, SIZE);
    // 1,999 and 6,000 have no common divisor.
    let asked: Vec<String> = (0..COUNT)
        .map(|at| match is_missing(at) {
            true => format!("nowhere/{at}"),
            false => there[at * 1999 % COUNT].clone(),
        })
        .collect();
    let warm = asked.iter().enumerate().filter(|(at, _)| !is_missing(*at) && at % 10 != 3);
    let warm: Vec<String> = warm.map(|(_, name)| name.clone()).collect();
    let request = batch(&bucket, &warm);
    assert!(client.batch_all(&request).await.unwrap().iter().all(Result::is_ok));
    World { cluster, bucket, asked, _root: root }
}

fn batch(bucket: &Bucket, names: &[String]) -> BatchRequest {
    let entry = |name: &String| BatchEntry::whole(0, ObjectName::new(name).unwrap());
    let entries = names.iter().map(entry).collect();
    BatchRequest { buckets: vec![bucket.clone()], entries, ordered: true }
}

impl World {
    /// The target to kill: not `spared`, and one that owns entries at the end of the batch.
    fn victim(&self, spared: &str) -> String {
        let mut owners =
            self.asked.iter().rev().map(|name| self.cluster.owner(&self.bucket, name).id);
        owners.find(|id| id != spared).unwrap()
    }

    /// Entries that all targets except `victim` have sent.
    fn answered_by_others(&self, victim: &str) -> f64 {
        let others = self.cluster.targets.iter().filter(|target| target.id != victim);
        let of = |target: &NodeHandle| {
            let text = http::get(&format!("{}/metrics", target.url)).text();
            http::metric(&text, "forebay_batch_entries_total{", &[])
        };
        others.map(of).sum()
    }

    /// Entries that all targets except `victim` own while all are alive.
    fn share_of_others(&self, victim: &str) -> f64 {
        let map = self.cluster.map();
        let info = map.state.bucket(&self.bucket).unwrap();
        let owner = |name: &String| placement::owner(&map.state, info, name).unwrap().id.as_str();
        self.asked.iter().filter(|name| owner(name) != victim).count() as f64
    }

    /// Kills and adds targets at certain numbers of received entries.
    fn act(&self, seen: usize, victim: &str) {
        if seen == COUNT / 6 {
            self.cluster.kill9(victim);
        }
        if seen == COUNT / 3 {
            self.cluster.add_target("target-new");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_native_batch_is_whole_while_a_target_dies_and_another_joins() {
    let world = world().await;
    let client = world.cluster.client();
    let victim = world.victim("");
    let own_share = world.share_of_others(&victim);
    let before = world.answered_by_others(&victim);
    let mut stream = client.batch(&batch(&world.bucket, &world.asked)).unwrap();
    let mut seen = 0;
    while let Some(item) = stream.next().await {
        assert_eq!(item.index, seen, "request order");
        let name = &world.asked[seen];
        if is_missing(seen) {
            assert_eq!(item.result.unwrap_err().code, ErrorCode::ObjectNotFound, "{name}");
        } else {
            assert_same(name, &item.result.unwrap(), &content(name, SIZE));
        }
        seen += 1;
        tokio::task::block_in_place(|| world.act(seen, &victim));
    }
    assert_eq!(seen, COUNT, "every entry once");
    // The other targets sent theirs once: entries that were not lost are not requested again.
    let answered = world.answered_by_others(&victim) - before;
    assert!(answered > own_share, "others answer what the dead one owed");
    assert!(answered <= COUNT as f64, "{answered} answers to {COUNT} entries");
}

/// An answer in chunks, read as it comes.
struct Chunks {
    from: BufReader<TcpStream>,
    left: usize,
    ended: bool,
}

impl Chunks {
    fn ask(url: &str, body: &str) -> Self {
        let (address, path) = http::split(url);
        let mut to = TcpStream::connect(address).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(to, "GET {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n")
            .unwrap();
        to.write_all(body.as_bytes()).unwrap();
        let mut from = BufReader::new(to);
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while !line.trim().is_empty() {
            line.clear();
            from.read_line(&mut line).unwrap();
        }
        Self { from, left: 0, ended: false }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.from.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim().to_owned()),
        }
    }
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && !self.ended {
            self.left = usize::from_str_radix(&self.line()?, 16).unwrap();
            self.ended = self.left == 0;
        }
        if self.ended {
            return Ok(0);
        }
        let most = self.left.min(buf.len());
        let n = self.from.read(&mut buf[..most])?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= n;
        if self.left == 0 {
            self.line()?;
        }
        Ok(n)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_v1_batch_is_whole_while_a_target_dies_and_another_joins() {
    let world = world().await;
    tokio::task::block_in_place(|| {
        let entry = |name: &String| serde_json::json!({"objname": name, "bucket": "files", "provider": "ais"});
        let entries: Vec<_> = world.asked.iter().map(entry).collect();
        let body = serde_json::json!({
            "in": entries, "mime": ".tar", "coer": true, "onob": true, "strm": true
        });
        let url = format!("{}/v1/ml/moss/files?provider=ais", world.cluster.endpoint);
        let sent_on = http::request("GET", &url).json(&body).send();
        let there = sent_on.header("location").unwrap();
        let assembler =
            world.cluster.targets.iter().find(|t| there.starts_with(&t.url)).unwrap().id.clone();
        let victim = world.victim(&assembler);

        let own_share = world.share_of_others(&victim);
        let before = world.answered_by_others(&victim);

        let mut archive = tar::Archive::new(Chunks::ask(there, &body.to_string()));
        let mut seen = 0;
        for member in archive.entries().unwrap() {
            let mut member = member.unwrap();
            let path = String::from_utf8(member.path_bytes().into_owned()).unwrap();
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).unwrap();
            let name = &world.asked[seen];
            if is_missing(seen) {
                assert_eq!((path, bytes.len()), (format!("__404__/{name}"), 0));
            } else {
                assert_eq!(&path, name, "request order");
                assert_same(name, &bytes, &content(name, SIZE));
            }
            seen += 1;
            world.act(seen, &victim);
        }
        assert_eq!(seen, COUNT, "every entry once");
        let mut rest = archive.into_inner();
        std::io::copy(&mut rest, &mut std::io::sink()).unwrap();
        assert!(rest.ended, "the stream has its proper end");
        let answered = world.answered_by_others(&victim) - before;
        assert!(answered > own_share, "others answer what the dead one owed");
        assert!(answered <= COUNT as f64, "{answered} answers to {COUNT} entries");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_objects_of_a_dead_target_wait_for_it_in_a_v1_batch() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("own");
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(60);
    for name in &names {
        client.put(&bucket, name, content(name, 1000), None).await.unwrap();
    }
    let entries: Vec<_> = names.iter().map(|name| serde_json::json!({"objname": name})).collect();
    let body = serde_json::json!({"in": entries, "coer": true, "onob": true, "strm": true});
    let url = format!("{}/v1/ml/moss/own?provider=ais", cluster.endpoint);
    let sent_on = http::request("GET", &url).json(&body).send();
    let there = sent_on.header("location").unwrap().to_owned();
    let victim = cluster.targets.iter().find(|t| !there.starts_with(&t.url)).unwrap().id.clone();
    cluster.kill9(&victim);
    let reader = std::thread::spawn(move || http::request("GET", &there).json(&body).send());
    std::thread::sleep(Duration::from_millis(500));
    cluster.restart(&victim);
    let answer = reader.join().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut archive = tar::Archive::new(answer.body.as_slice());
    for (member, name) in archive.entries().unwrap().zip(&names) {
        let mut member = member.unwrap();
        let path = String::from_utf8(member.path_bytes().into_owned()).unwrap();
        assert_eq!(&path, name, "none is called missing that is there");
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        assert_same(name, &bytes, &content(name, 1000));
    }
}
