//! Operations of v1 on single objects beside reads and writes: copy, rename, presence, locks,
//! promotion of files, blob downloads, and the short form of their URLs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Bucket;
use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::content;
use forebay_tests::http::{self, Answer};
use forebay_tests::{Cluster, Options, Shared, wait};
use serde_json::json;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(20);

struct World {
    cluster: Cluster,
    /// Of the folder backend.
    folders: TempDir,
    /// Of files that may be promoted.
    files: TempDir,
}

static WORLD: Shared<World> = Shared::new();

fn world() -> Arc<World> {
    WORLD.get(|| {
        let (folders, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = files.path().to_str().unwrap().to_owned();
        let cluster = Cluster::start(Options {
            folder_roots: vec![folders.path().to_owned()],
            env: vec![("FOREBAY_PROMOTE__ROOT".into(), root)],
            ..Options::default()
        });
        World { cluster, folders, files }
    })
}

impl World {
    async fn native(&self, name: &str) -> Bucket {
        let bucket = native(name);
        self.cluster.client().create_bucket(&bucket, None).await.unwrap();
        bucket
    }

    /// A bucket over a folder.
    async fn backed(&self, name: &str) -> (Bucket, PathBuf) {
        let root = self.folders.path().join(name);
        std::fs::create_dir(&root).unwrap();
        let bucket = native(name);
        let backend = Some(folder_backend(&root));
        self.cluster.client().create_bucket(&bucket, backend).await.unwrap();
        (bucket, root)
    }

    fn url(&self, path_and_query: &str) -> String {
        format!("{}{path_and_query}", self.cluster.endpoint)
    }

    fn copy(&self, from: &str, to: &str, more: &str) -> Answer {
        let to = to.replace('#', "%23").replace('/', "%2F").replace(' ', "%20");
        let url = self.url(&format!("/v1/objects/{from}?provider=ais&object_to={to}{more}"));
        http::request("PUT", &url).follow()
    }

    fn act(&self, path: &str, action: &serde_json::Value) -> Answer {
        http::request("POST", &self.url(path)).json(action).follow()
    }

    fn head(&self, object: &str, query: &str) -> Answer {
        http::request("HEAD", &self.url(&format!("/v1/objects/{object}?{query}"))).follow()
    }

    /// Waits until a job is over; returns its status in v1's form.
    fn job(&self, id: &str) -> serde_json::Value {
        let ask = || {
            let question = json!({"id": id, "kind": ""});
            let url = self.url("/v1/cluster?what=status");
            let answer = http::request("GET", &url).json(&question).send();
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()
        };
        wait::until("the job is over", TIMEOUT, || ask()["end_time"] != 0);
        ask()
    }
}

#[tokio::test]
async fn a_copy_has_bytes_and_metadata_wherever_it_belongs() {
    let world = world();
    let client = world.cluster.client();
    let (from, to) = (world.native("copy-from").await, world.native("copy-to").await);
    let bytes = content("x", 3 << 20);
    client.put(&from, "dir/x", bytes.clone(), None).await.unwrap();
    let custom = json!({"action": "", "value": {"k": "v", "w": "a, b=c"}});
    let url = world.url("/v1/objects/copy-from/dir/x");
    assert_eq!(http::request("PATCH", &url).json(&custom).follow().status, 200);

    // Enough names that some belong to other targets than the source does.
    for n in 0..6 {
        let answer = world.copy("copy-from/dir/x", &format!("ais/@#/copy-to/c {n}"), "");
        assert_eq!((answer.status, answer.text()), (200, String::new()));
        let name = format!("c {n}");
        assert!(client.get_bytes(&to, &name, None).await.unwrap() == bytes, "{name}");
        let head = client.head(&to, &name).await.unwrap();
        assert_eq!(head.custom["k"], "v");
        assert_eq!(head.custom["w"], "a, b=c");
    }
    let answer = world.copy("copy-from/dir/x", "ais/@#/copy-from/dir/y", "&latest-ver=false");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(client.get_bytes(&from, "dir/y", None).await.unwrap() == bytes);
    // A request without a body has not emptied its source; nor has a copy onto itself.
    assert_eq!(world.copy("copy-from/dir/x", "ais/@#/copy-from/dir/x", "").status, 200);
    assert!(client.get_bytes(&from, "dir/x", None).await.unwrap() == bytes);
}

#[tokio::test]
async fn a_copy_that_cannot_be_says_what_is_missing() {
    let world = world();
    world.native("copy-bad").await;
    let client = world.cluster.client();
    client.put(&native("copy-bad"), "x", "bytes", None).await.unwrap();
    let none = world.copy("copy-bad/x", "ais/@#/nowhere/x", "");
    assert_eq!(
        (none.status, none.message().as_str()),
        (404, "bucket \"ais://nowhere\" does not exist")
    );
    let none = world.copy("copy-bad/none", "ais/@#/copy-bad/y", "");
    assert_eq!(none.status, 404);
    assert!(none.message().contains("ais://copy-bad/none does not exist"), "{}", none.message());
    for bad in ["copy-bad", "ais/@#/copy-bad/", "xyz/@#/b/o", "ais/@#/copy-bad/a/../b"] {
        let refused = world.copy("copy-bad/x", bad, "");
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
    }
    assert_eq!(client.get_bytes(&native("copy-bad"), "x", None).await.unwrap(), "bytes");
}

#[tokio::test]
async fn latest_copies_what_the_backend_has_and_sync_forgets_what_it_lost() {
    let world = world();
    let client = world.cluster.client();
    let (from, root) = world.backed("sync-from").await;
    let to = world.native("sync-to").await;
    std::fs::write(root.join("x"), "first").unwrap();
    assert_eq!(client.get_bytes(&from, "x", None).await.unwrap(), "first");
    std::fs::write(root.join("x"), "second, longer").unwrap();
    let copied = async |more: &str| {
        let answer = world.copy("sync-from/x", "ais/@#/sync-to/x", more);
        assert_eq!(answer.status, 200, "{}", answer.text());
        client.get_bytes(&to, "x", None).await.unwrap()
    };
    assert_eq!(copied("").await, "first", "the copy that is cached");
    assert_eq!(copied("&latest-ver=true").await, "second, longer");
    assert_eq!(client.get_bytes(&from, "x", None).await.unwrap(), "first", "still cached");

    std::fs::remove_file(root.join("x")).unwrap();
    assert_eq!(copied("").await, "first");
    let gone = world.copy("sync-from/x", "ais/@#/sync-to/x", "&latest-ver=true");
    assert_eq!(gone.status, 404, "{}", gone.text());
    assert_eq!(copied("").await, "first", "latest removes nothing");
    let gone = world.copy("sync-from/x", "ais/@#/sync-to/x", "&synchronize=true");
    assert_eq!(gone.status, 404, "{}", gone.text());
    for bucket in ["sync-from", "sync-to"] {
        assert_eq!(world.head(&format!("{bucket}/x"), "").status, 404, "{bucket}");
    }

    std::fs::write(root.join("cold"), "never read").unwrap();
    let answer = world.copy("sync-from/cold", "ais/@#/sync-to/cold", "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(client.get_bytes(&to, "cold", None).await.unwrap(), "never read");
}

#[tokio::test]
async fn a_renamed_object_has_one_name() {
    let world = world();
    let client = world.cluster.client();
    let bucket = world.native("rename").await;
    let rename = |bucket: &str, name: &str, to: &str| {
        let action = json!({"action": "rename-obj", "name": to});
        world.act(&format!("/v1/objects/{bucket}/{name}?provider=ais"), &action)
    };
    for n in 0..4 {
        client
            .put(&bucket, &format!("old{n}"), format!("bytes {n}").into_bytes(), None)
            .await
            .unwrap();
        let answer = rename("rename", &format!("old{n}"), &format!("new/{n}"));
        assert_eq!((answer.status, answer.text()), (200, String::new()));
        let got = client.get_bytes(&bucket, &format!("new/{n}"), None).await.unwrap();
        assert_eq!(got, format!("bytes {n}"));
        assert_eq!(world.head(&format!("rename/old{n}"), "").status, 404);
    }
    assert_eq!(rename("rename", "new/0", "new/0").status, 400);
    assert_eq!(rename("rename", "new/0", "a/../b").status, 400);
    assert_eq!(rename("rename", "new/0", "").status, 400);
    assert_eq!(rename("rename", "none", "other").status, 404);
    let (_, root) = world.backed("rename-backed").await;
    std::fs::write(root.join("x"), "x").unwrap();
    assert_eq!(rename("rename-backed", "x", "y").status, 501);
    assert!(root.join("x").exists());
}

#[tokio::test]
async fn presence_is_where_head_looks() {
    let world = world();
    let client = world.cluster.client();
    let (bucket, root) = world.backed("presence").await;
    std::fs::write(root.join("x"), "bytes").unwrap();
    let status = |query: &str| world.head("presence/x", query).status;
    let present = |query: &str| {
        let answer = world.head("presence/x", query);
        assert_eq!(answer.status, 200, "{query}");
        answer.header("ais-present").map(str::to_owned)
    };
    assert_eq!(present("props=size").as_deref(), Some("false"));
    assert_eq!(present("presence=5&props=size").as_deref(), Some("false"));
    assert_eq!(present("presence=1"), None, "without properties");
    for query in ["presence=2", "presence=3", "presence=4"] {
        assert_eq!(status(query), 404, "{query}");
    }
    client.get_bytes(&bucket, "x", None).await.unwrap();
    for query in ["presence=0&props=size", "presence=2&props=size", "presence=4", "latest-ver=true"]
    {
        assert_eq!(present(query).as_deref(), Some("true"), "{query}");
    }
    assert_eq!(present("presence=3"), None);
    assert_eq!(status("presence=5"), 400, "it is here");
    for bad in ["presence=6", "presence=x", "props=name,cached"] {
        assert_eq!(status(bad), 400, "{bad}");
    }

    std::fs::write(root.join("x"), "other bytes").unwrap();
    assert_eq!(status("latest-ver=true"), 409);
    std::fs::remove_file(root.join("x")).unwrap();
    let gone = world.head("presence/x", "latest-ver=true");
    assert_eq!(gone.status, 410);
    assert!(gone.header("hdr-error").unwrap().contains("\"status\":410"));
    assert_eq!(status(""), 200, "the copy is served for as long as it is fresh");
}

#[tokio::test]
async fn a_lock_that_nobody_holds_is_free() {
    let world = world();
    let bucket = world.native("locks").await;
    world.cluster.client().put(&bucket, "x", "bytes", None).await.unwrap();
    let answer = world.act("/v1/objects/locks/x?provider=ais", &json!({"action": "check-lock"}));
    assert_eq!((answer.status, answer.text()), (200, String::new()));
    let answer = world.act("/v1/objects/locks/x?provider=ais", &json!({"action": "no-such"}));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.message().contains("no-such"));
}

fn write_files(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

#[tokio::test]
async fn files_under_the_root_become_objects_once() {
    let world = world();
    let client = world.cluster.client();
    let bucket = world.native("promoted").await;
    let folder = world.files.path().join("in");
    let many: Vec<String> = (0..20).map(|n| format!("f{n:02}")).collect();
    let files: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "first")).collect();
    write_files(&folder, &files);
    write_files(&folder, &[("sub/deep/ü", "inner")]);
    let promote = |source: &str, value: serde_json::Value| {
        let action = json!({"action": "promote", "name": source, "value": value});
        world.act("/v1/objects/promoted?provider=ais", &action)
    };
    let source = folder.to_str().unwrap();
    let done = |value: serde_json::Value| {
        let answer = promote(source, value);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let status = world.job(&answer.text());
        assert_eq!((&status["err"], &status["aborted"]), (&json!(""), &json!(false)));
    };
    done(json!({"src": source, "obj": "p/", "rcr": false}));
    let listed = client.list_all(&bucket, "").await.unwrap();
    let names: Vec<_> = listed.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, many.iter().map(|n| format!("p/{n}")).collect::<Vec<_>>());

    // Without `overwrite`, promotion leaves existing objects and their files as they are.
    write_files(&folder, &[("f00", "second")]);
    done(json!({"src": source, "obj": "p/", "rcr": true, "dls": true}));
    assert_eq!(client.get_bytes(&bucket, "p/f00", None).await.unwrap(), "first");
    assert_eq!(client.get_bytes(&bucket, "p/sub/deep/ü", None).await.unwrap(), "inner");
    assert!(folder.join("f00").exists() && !folder.join("sub/deep/ü").exists());
    done(json!({"src": source, "obj": "p/", "rcr": true, "dls": true, "ovw": true}));
    assert_eq!(client.get_bytes(&bucket, "p/f00", None).await.unwrap(), "second");
    assert_eq!(
        std::fs::read_dir(&folder)
            .unwrap()
            .filter(|e| { e.as_ref().unwrap().file_type().unwrap().is_file() })
            .count(),
        0
    );
}

#[tokio::test]
async fn nothing_outside_of_the_root_becomes_an_object() {
    let world = world();
    world.native("promote-bad").await;
    let root = world.files.path();
    write_files(&root.join("one"), &[("file", "bytes")]);
    std::fs::create_dir_all(root.join("empty")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
    let promote = |source: &str, more: serde_json::Value| {
        let mut value = json!({"src": source, "obj": ""});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let action = json!({"action": "promote", "name": source, "value": value});
        world.act("/v1/objects/promote-bad?provider=ais", &action)
    };
    let root = root.to_str().unwrap();
    for bad in [
        "/etc/passwd",
        "",
        "relative",
        &format!("{root}/../x"),
        &format!("{root}/link"),
        &format!("{root}/link/passwd"),
        &format!("{root}/none"),
        &format!("{root}/empty"),
    ] {
        let refused = promote(bad, json!({}));
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
    }
    let one = format!("{root}/one/file");
    assert_eq!(promote(&one, json!({"obj": "a/../b"})).status, 400);
    assert_eq!(promote(&one, json!({"rcr": "yes"})).status, 400);
    assert_eq!(promote(&one, json!({"tid": "nosuchnode"})).status, 404);
    let listed = world.cluster.client().list_all(&native("promote-bad"), "").await.unwrap();
    assert_eq!(listed, []);
    let answer = promote(&one, json!({"tid": world.cluster.targets[0].id, "obj": "named"}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    world.job(&answer.text());
    let bytes = world.cluster.client().get_bytes(&native("promote-bad"), "named", None).await;
    assert_eq!(bytes.unwrap(), "bytes");
}

#[tokio::test]
async fn a_blob_download_brings_an_object_by_ranges() {
    let world = world();
    let (bucket, root) = world.backed("blobs").await;
    let bytes = content("big", 5_000_000);
    std::fs::write(root.join("big"), &bytes).unwrap();
    std::fs::write(root.join("got"), &bytes).unwrap();
    let start = |bucket: &str, name: &str, value: serde_json::Value| {
        let action = json!({"action": "blob-download", "name": name, "value": value});
        world.act(&format!("/v1/objects/{bucket}?provider=ais"), &action)
    };
    let answer = start("blobs", "big", json!({"chunk-size": 1 << 20, "num-workers": 3}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(world.job(&answer.text())["kind"], "blob-download");
    assert_eq!(world.head("blobs/big", "presence=2").status, 200, "it is here");
    let got = world.cluster.client().get_bytes(&bucket, "big", None).await.unwrap();
    assert!(got == bytes);
    let again = start("blobs", "big", json!({"latest-ver": true}));
    assert_eq!(world.job(&again.text())["err"], "", "nothing to do");

    let get = |object: &str, headers: &[(&str, &str)]| {
        let mut request = http::request("GET", &world.url(&format!("/v1/objects/{object}")));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.follow()
    };
    let asked = [("ais-blob-download", "true"), ("ais-blob-chunk", "1mb")];
    let answer = get("blobs/got", &asked);
    assert!(answer.status == 200 && answer.body == bytes, "{}", answer.status);
    for bad in [("ais-blob-chunk", "many"), ("ais-blob-workers", "1000")] {
        assert_eq!(get("blobs/got", &[asked[0], bad]).status, 400, "{bad:?}");
    }
    world.native("no-blobs").await;
    assert_eq!(get("no-blobs/x", &asked).status, 400);
    assert_eq!(start("no-blobs", "x", json!({})).status, 400);
    assert_eq!(start("blobs", "none", json!({})).status, 404);
    assert_eq!(start("blobs", "big", json!({"chunk-size": "x"})).status, 400);
    assert_eq!(start("blobs", "", json!({})).status, 400);
}

#[tokio::test]
async fn easy_urls_are_short_for_those_of_v1() {
    let world = world();
    let bucket = world.native("easy").await;
    let put = http::request("PUT", &world.url("/ais/easy/d/e/x%20y")).body("bytes").follow();
    assert_eq!(put.status, 200, "{}", put.text());
    let client = world.cluster.client();
    assert_eq!(client.get_bytes(&bucket, "d/e/x y", None).await.unwrap(), "bytes");
    let got = http::request("GET", &world.url("/ais/easy/d/e/x%20y")).follow();
    assert_eq!((got.status, got.text().as_str()), (200, "bytes"));
    let listed = http::get(&world.url("/ais/easy"));
    assert_eq!(listed.status, 200, "{}", listed.text());
    assert!(listed.text().contains("d/e/x y"));
    assert!(http::get(&world.url("/ais")).text().contains("easy"));
    assert_eq!(http::request("HEAD", &world.url("/ais/easy")).send().status, 200);
    assert_eq!(http::request("PUT", &world.url("/ais/easy")).body("x").follow().status, 400);
    assert_eq!(http::get(&world.url("/ais//x")).status, 400);
    assert_eq!(http::get(&world.url("/xyz/easy/x")).status, 400);
    let gone = http::request("DELETE", &world.url("/ais/easy/d/e/x%20y")).follow();
    assert_eq!(gone.status, 200, "{}", gone.text());
}
