//! Versions of objects, read by their ids while targets join, die and restart: the right bytes or
//! 503. After the rebalance no version is missing, and no deleted one has come back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_tests::cluster::{NodeHandle, command};
use forebay_tests::history::Random;
use forebay_tests::http::Answer;
use forebay_tests::s3::{OWNER, code, request, texts};
use forebay_tests::{Cluster, Options, wait};

/// Rebalances are slow on a busy machine.
const MOVED: Duration = Duration::from_secs(90);
const BUCKET: &str = "versions";
const OBJECTS: usize = 24;

/// A version of an object.
#[derive(Clone, Debug)]
struct Version {
    key: String,
    id: String,
    body: String,
}

/// The versions that are readable by their ids, and those that were deleted for good.
#[derive(Debug, Default)]
struct Known {
    live: Vec<Version>,
    deleted: Vec<Version>,
}

struct Fixture {
    cluster: Cluster,
    known: Mutex<Known>,
}

fn text(answer: &Answer) -> String {
    format!("{} {}", answer.status, answer.text())
}

/// Retries for as long as the response is 503.
fn patiently(what: &str, mut ask: impl FnMut() -> Answer) -> Answer {
    let mut last = ask();
    wait::until(what, MOVED, || {
        if last.status == 503 {
            std::thread::sleep(Duration::from_millis(100));
            last = ask();
        }
        last.status != 503
    });
    last
}

impl Fixture {
    /// A bucket that keeps versions, with three of each object, of which one was deleted of every third.
    fn start(targets: u16) -> Self {
        let cluster = Cluster::start(Options { targets, ..Options::default() });
        let fixture = Self { cluster, known: Mutex::default() };
        assert_eq!(fixture.send("PUT", BUCKET, &[], "").status, 200);
        let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        let answer = fixture.send("PUT", BUCKET, &[("versioning", "")], enabled);
        assert_eq!(answer.status, 200, "{}", answer.text());
        for n in 0..OBJECTS {
            (0..3).for_each(|_| fixture.put(&format!("o{n:02}")));
        }
        for n in (0..OBJECTS).step_by(3) {
            fixture.delete(&fixture.version(&format!("o{n:02}"), 1));
        }
        fixture
    }

    fn send(&self, method: &str, what: &str, query: &[(&str, &str)], body: &str) -> Answer {
        let request = request(method, &self.cluster.endpoint, what).body(body);
        query
            .iter()
            .fold(request, |request, (name, value)| request.query(name, value))
            .send_as(OWNER)
    }

    fn put(&self, key: &str) {
        let body = {
            let known = self.known.lock().unwrap();
            format!("{key} {} {}", known.live.len(), known.deleted.len())
        };
        let what = format!("{BUCKET}/{key}");
        let answer = patiently("a write", || self.send("PUT", &what, &[], &body));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.header("x-amz-version-id").expect("a version").to_owned();
        self.known.lock().unwrap().live.push(Version { key: key.to_owned(), id, body });
    }

    /// A version of an object, the oldest first.
    fn version(&self, key: &str, number: usize) -> Version {
        let known = self.known.lock().unwrap();
        known.live.iter().filter(|v| v.key == key).nth(number).unwrap().clone()
    }

    /// Deletes a version for good.
    fn delete(&self, version: &Version) {
        let answer = patiently("a deletion", || self.on("DELETE", version));
        assert_eq!(answer.status, 204, "{}", answer.text());
        self.forget(version);
    }

    fn forget(&self, version: &Version) {
        let mut known = self.known.lock().unwrap();
        known.live.retain(|v| v.id != version.id);
        known.deleted.push(version.clone());
    }

    fn on(&self, method: &str, version: &Version) -> Answer {
        let what = format!("{BUCKET}/{}", version.key);
        self.send(method, &what, &[("versionId", &version.id)], "")
    }

    /// Reads versions once; returns how many were 503. `whole`: none may be.
    fn read_all(&self, when: &str, whole: bool) -> usize {
        let (live, deleted) = {
            let known = self.known.lock().unwrap();
            (known.live.clone(), known.deleted.clone())
        };
        let mut away = 0;
        for version in &live {
            match self.on("GET", version) {
                answer if answer.status == 503 && !whole => {
                    assert!(answer.header("retry-after").is_some(), "{when}: {version:?}");
                    away += 1;
                }
                answer => {
                    let right = answer.status == 200 && answer.text() == version.body;
                    assert!(right, "{when}: {version:?}: {}", text(&answer));
                }
            }
            let head = self.on("HEAD", version).status;
            assert!(head == 200 || head == 503 && !whole, "{when}: HEAD of {version:?}: {head}");
        }
        for version in &deleted {
            let answer = self.on("GET", version);
            let missing = answer.status == 404 && code(&answer) == "NoSuchVersion";
            assert!(
                missing || answer.status == 503 && !whole,
                "{when}: deleted {version:?}: {}",
                text(&answer)
            );
        }
        away
    }

    /// The ids that a listing of versions has are those that are there.
    fn listed(&self, when: &str) {
        let answer = self.send("GET", BUCKET, &[("versions", "")], "");
        assert_eq!(answer.status, 200, "{when}: {}", answer.text());
        let mut listed = texts(&answer, "ListVersionsResult", "VersionId");
        let mut live: Vec<_> =
            self.known.lock().unwrap().live.iter().map(|v| v.id.clone()).collect();
        listed.sort();
        live.sort();
        assert_eq!(listed, live, "{when}");
    }

    fn rebalance(&self, enabled: bool) {
        self.cluster.configure(&format!("rebalance.enabled={enabled}"));
    }

    fn wait_rebalanced(&self) {
        wait::until("all is in its place, and nobody is away", MOVED, || {
            self.cluster.map().state.is_quiescent()
        });
    }

    fn kill(&self, target: &NodeHandle) {
        self.cluster.kill9(&target.id);
        wait::until("the map has it dead", MOVED, || !self.cluster.is_alive(&target.id));
    }

    /// Reads random versions from another thread while `work` runs.
    fn while_read(&self, when: &str, work: impl FnOnce()) {
        let (stop, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(7);
                while !stop.load(Ordering::Relaxed) {
                    let version = {
                        let known = self.known.lock().unwrap();
                        known.live[random.below(known.live.len() as u64) as usize].clone()
                    };
                    let answer = self.on("GET", &version);
                    let right = answer.status == 200 && answer.text() == version.body;
                    // Deleted since it was chosen.
                    let gone = || {
                        let known = self.known.lock().unwrap();
                        answer.status == 404 && known.deleted.iter().any(|v| v.id == version.id)
                    };
                    assert!(
                        right || answer.status == 503 || gone(),
                        "{when}: {version:?}: {}",
                        text(&answer)
                    );
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
            // A failure of the work must end the reader, or the scope waits for ever.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            stop.store(true, Ordering::Relaxed);
            if let Err(panic) = done {
                std::panic::resume_unwind(panic);
            }
        });
        assert!(reads.load(Ordering::Relaxed) > 0, "{when}: nothing was read");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_read_by_id_while_a_target_joins_and_dies_before_they_moved() {
    let fixture = Fixture::start(2);
    fixture.read_all("two targets", true);
    fixture.listed("two targets");
    fixture.rebalance(false);
    fixture.cluster.add_target("target-03");
    assert!(!fixture.cluster.map().state.is_rebalance_complete());
    fixture.read_all("nothing moved", true);
    // A write at the new owner removes no version that still lies on the old one.
    for n in 0..OBJECTS {
        fixture.put(&format!("o{n:02}"));
    }
    for n in 0..OBJECTS {
        fixture.delete(&fixture.version(&format!("o{n:02}"), 1));
    }
    fixture.read_all("written and deleted", true);

    fixture.kill(&fixture.cluster.targets[0]);
    let away = fixture.read_all("one is dead", false);
    assert!(away > 0, "some lie with it");
    let missing = Version { key: "o00".into(), id: "ffff0123456789ab".into(), body: String::new() };
    let answer = fixture.on("GET", &missing);
    assert_eq!(answer.status, 503, "it may lie with the dead one: {}", answer.text());
    assert!(answer.text().contains(&fixture.cluster.targets[0].id), "{}", answer.text());
    fixture.cluster.restart(&fixture.cluster.targets[0].id);
    fixture.while_read("while all moves", || {
        fixture.rebalance(true);
        fixture.wait_rebalanced();
    });
    fixture.read_all("all moved", true);
    fixture.listed("all moved");
    assert_eq!(fixture.on("GET", &missing).status, 404, "now everybody can tell");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_read_by_id_while_a_target_is_removed() {
    let fixture = Fixture::start(3);
    let endpoint = &fixture.cluster.endpoint;
    fixture.while_read("while it is removed", || {
        let id = &fixture.cluster.targets[1].id;
        let node = ["node", "remove", id, "--wait", "--endpoint", endpoint];
        let done = command(node).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        fixture.wait_rebalanced();
    });
    fixture.read_all("it is removed", true);
    fixture.listed("it is removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_deleted_while_another_target_was_away_stays_deleted() {
    let fixture = Fixture::start(2);
    fixture.rebalance(false);
    fixture.cluster.add_target("target-03");
    let away = fixture.cluster.targets[0].clone();
    fixture.kill(&away);
    let (mut deleted, mut refused) = (0, 0);
    for n in 0..OBJECTS {
        let version = fixture.version(&format!("o{n:02}"), 0);
        let answer = fixture.on("DELETE", &version);
        match answer.status {
            204 => {
                fixture.forget(&version);
                deleted += 1;
            }
            status => {
                assert_eq!(status, 503, "{}", answer.text());
                refused += 1;
            }
        }
    }
    assert!(deleted > 0 && refused > 0, "{deleted} deleted, {refused} may lie with who is away");
    fixture.read_all("one is away and versions were deleted", false);
    fixture.cluster.restart(&away.id);
    fixture.while_read("while all moves", || {
        fixture.rebalance(true);
        fixture.wait_rebalanced();
    });
    fixture.read_all("all moved", true);
    fixture.listed("all moved");
}
