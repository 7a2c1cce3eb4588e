//! Shards through every front: members by name and by match, listings inside, batches, the index.

mod archives;
mod batches;
mod hostile;

use std::sync::Arc;

use archives::{FORMATS, Members, archive, read};
use forebay_archive::ShardIndexReply;
use forebay_core::Bucket;
use forebay_tests::cluster::{cloud, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Cluster, Minio, Options, Shared, http, wait};
use forebay_v1::list::{ListMsg, flags};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(Cluster::plain)
}

/// Members of all sizes, in no order.
fn members() -> Members {
    let names = ["d/2.cls", "d/2.txt", "a/1.txt", "a/1.cls", "a/empty", "a/10.txt", "größe 1%.bin"];
    let sizes = [300, 5_000, 513, 512, 0, 100_000, 3_000_000];
    names.iter().zip(sizes).map(|(n, size)| ((*n).to_owned(), content(n, size))).collect()
}

/// A bucket with one shard of each format, `dir/s.EXT`, and an object beside them.
async fn shards(cluster: &Cluster, name: &str) -> Bucket {
    let (client, bucket) = (cluster.client(), native(name));
    client.create_bucket(&bucket, None).await.unwrap();
    for format in FORMATS {
        let bytes = archive(format, &members());
        client.put(&bucket, &format!("dir/s{format}"), bytes, None).await.unwrap();
    }
    client.put(&bucket, "dir/s.txt", "plain", None).await.unwrap();
    bucket
}

#[tokio::test]
async fn a_member_of_every_format_comes_through_a_gateways_redirect() {
    let cluster = cluster();
    shards(&cluster, "members").await;
    for format in FORMATS {
        let url = cluster.object_url("members", &format!("dir/s{format}"));
        let first = http::get(&format!("{url}?provider=ais&archpath=a/1.txt"));
        assert_eq!(first.status, 301, "{}", first.text());
        for (name, data) in members() {
            let quoted = name.replace('%', "%25").replace(' ', "%20").replace('ö', "%C3%B6");
            let quoted = quoted.replace('ß', "%C3%9F");
            let got = http::request("GET", &format!("{url}?archpath={quoted}")).follow();
            assert_eq!(got.status, 200, "{format} {name}: {}", got.text());
            assert_same(&format!("{format} {name}"), &got.body, &data);
            assert_eq!(got.header("content-type"), Some("application/octet-stream"));
            assert_eq!(got.header("content-length"), Some(data.len().to_string().as_str()));
            assert_eq!(got.header("ais-checksum-value"), None, "that of the shard is not its own");
        }
        for alias in ["/a/1.txt", &format!("dir/s{format}/a/1.txt")] {
            let got = http::request("GET", &format!("{url}?archpath={alias}")).follow();
            assert_same(alias, &got.body, &content("a/1.txt", 513));
        }
        let part = http::request("GET", &format!("{url}?archpath=a/10.txt"))
            .header("range", "bytes=70000-70099")
            .follow();
        assert_eq!(part.status, 206, "{}", part.text());
        assert_eq!(part.header("content-range"), Some("bytes 70000-70099/100000"));
        assert_same("a range", &part.body, &content("a/10.txt", 100_000)[70_000..70_100]);
    }
}

#[tokio::test]
async fn what_is_not_in_a_shard_is_404_and_says_where_it_was_looked_for() {
    let cluster = cluster();
    shards(&cluster, "missing").await;
    for format in FORMATS {
        let url = cluster.object_url("missing", &format!("dir/s{format}"));
        let none = http::request("GET", &format!("{url}?archpath=a/none")).follow();
        assert_eq!(none.status, 404, "{}", none.text());
        let said = format!("a/none in ais://missing/dir/s{format} does not exist");
        assert!(none.message().contains(&said), "{}", none.message());
        assert_eq!(none.json()["tcode"], "ErrNotFound");
        let none = http::request("GET", &format!("{url}?archregx=zzz&archmode=regexp")).follow();
        assert_eq!(none.status, 404, "{}", none.text());
        let said = format!(
            "(archregx=zzz, archmode=regexp) in ais://missing/dir/s{format} does not exist"
        );
        assert!(none.message().contains(&said), "{}", none.message());
    }
    let url = cluster.object_url("missing", "no.tar");
    let none = http::request("GET", &format!("{url}?archpath=a")).follow();
    assert_eq!(none.status, 404);
    assert!(none.message().contains("ais://missing/no.tar does not exist"), "{}", none.message());
}

#[tokio::test]
async fn parameters_that_contradict_are_400_at_the_gateway() {
    let cluster = cluster();
    shards(&cluster, "refused").await;
    let url = cluster.object_url("refused", "dir/s.tar");
    for query in
        ["archregx=x&archmode=glob", "archpath=a&archmode=prefix", "archpath=a&archmime=rar"]
    {
        let refused = http::get(&format!("{url}?{query}"));
        assert_eq!(refused.status, 400, "{query}: {}", refused.text());
    }
    let range = http::request("GET", &format!("{url}?archregx=a&archmode=prefix"))
        .header("range", "bytes=0-1")
        .follow();
    assert_eq!(range.status, 400, "{}", range.text());
    let bad = http::request("GET", &format!("{url}?archregx=a(&archmode=regexp")).follow();
    assert_eq!(bad.status, 400, "{}", bad.text());
    let plain = cluster.object_url("refused", "dir/s.txt");
    let plain = http::request("GET", &format!("{plain}?archpath=a")).follow();
    assert_eq!(plain.status, 400, "{}", plain.text());
    assert!(plain.message().contains("ais://refused/dir/s.txt"), "{}", plain.message());
}

#[tokio::test]
async fn members_that_match_come_as_a_tar_in_the_archives_order() {
    let cluster = cluster();
    shards(&cluster, "matching").await;
    let all = members();
    for format in FORMATS {
        let url = cluster.object_url("matching", &format!("dir/s{format}"));
        for (query, want) in [
            ("archregx=[12]\\.txt$&archmode=regexp", vec![1, 2]),
            ("archregx=a/1&archmode=prefix", vec![2, 3, 5]),
            ("archregx=.cls&archmode=suffix", vec![0, 3]),
            ("archregx=/1&archmode=substr", vec![2, 3, 5]),
            ("archpath=&archregx=a/1&archmode=wdskey", vec![2, 3]),
            ("archregx=&archmode=prefix", (0..7).collect()),
        ] {
            let got = http::request("GET", &format!("{url}?{query}")).follow();
            assert_eq!(got.status, 200, "{format} {query}: {}", got.text());
            assert_eq!(got.header("content-type"), Some("application/x-tar"));
            let want: Members = want.into_iter().map(|i: usize| all[i].clone()).collect();
            assert!(read(".tar", &got.body) == want, "{format} {query}");
        }
        // Without a mode the text means nothing.
        let whole = http::request("GET", &format!("{url}?archregx=a")).follow();
        assert_same("the shard itself", &whole.body, &archive(format, &all));
    }
}

#[tokio::test]
async fn a_shard_format_is_given_by_the_request_or_detected() {
    let cluster = cluster();
    let (client, bucket) = (cluster.client(), native("unnamed"));
    client.create_bucket(&bucket, None).await.unwrap();
    for (name, format) in [("t", ".tar"), ("g", ".tgz"), ("l", ".tar.lz4"), ("z", ".zip")] {
        client.put(&bucket, name, archive(format, &members()), None).await.unwrap();
        let url = cluster.object_url("unnamed", name);
        for query in ["archpath=a/1.cls", &format!("archpath=a/1.cls&archmime={format}")] {
            let got = http::request("GET", &format!("{url}?{query}")).follow();
            assert_same(&format!("{name} {query}"), &got.body, &content("a/1.cls", 512));
        }
    }
}

async fn list(
    cluster: &Cluster,
    bucket: &Bucket,
    prefix: &str,
    page: usize,
) -> Vec<(String, u64, u16)> {
    let client = cluster.client();
    let mut msg = ListMsg {
        prefix: prefix.into(),
        props: "name,size".into(),
        flags: flags::ARCHIVE,
        page_size: page,
        ..ListMsg::default()
    };
    let mut rows = Vec::new();
    loop {
        let answer = client.list_page(bucket, &msg).await.unwrap();
        assert!(answer.entries.len() <= page);
        rows.extend(answer.entries.into_iter().map(|e| (e.name, e.size, e.flags)));
        if answer.token.is_empty() {
            return rows;
        }
        assert_eq!(answer.token, rows.last().unwrap().0, "the token is the last name");
        msg.token = answer.token;
    }
}

#[tokio::test]
async fn a_listing_shows_shards_with_their_members_and_sizes() {
    let cluster = cluster();
    let bucket = shards(&cluster, "listing").await;
    let mut want: Vec<(String, u64, u16)> = Vec::new();
    for format in FORMATS {
        let shard = format!("dir/s{format}");
        let size = cluster.client().head(&bucket, &shard).await.unwrap().size;
        let inside =
            |(name, data): (String, Vec<u8>)| (format!("{shard}/{name}"), data.len() as u64, 192);
        want.extend(members().into_iter().map(inside));
        want.push((shard, size, 576));
    }
    want.push(("dir/s.txt".into(), 5, 64));
    want.sort();
    for page in [3, 7, 1000] {
        assert_eq!(list(&cluster, &bucket, "", page).await, want, "pages of {page}");
    }
    let under = |prefix: &str| -> Vec<_> {
        want.iter().filter(|row| row.0.starts_with(prefix)).cloned().collect()
    };
    for prefix in ["dir/s.tar", "dir/s.tar/", "dir/s.zip/a/1", "dir/s.zip/x", "dir/s.t"] {
        assert_eq!(list(&cluster, &bucket, prefix, 4).await, under(prefix), "{prefix}");
    }
    let plain = ListMsg { props: "name".into(), page_size: 100, ..ListMsg::default() };
    let plain = cluster.client().list_page(&bucket, &plain).await.unwrap();
    assert_eq!(plain.entries.len(), 7, "without the flag shards stay closed");
}

#[tokio::test]
async fn the_index_route_says_where_each_member_lies() {
    let cluster = cluster();
    let bucket = shards(&cluster, "index").await;
    for format in FORMATS {
        let url = format!("{}/api/v1/shard/index/dir/s{format}?provider=ais", cluster.endpoint);
        let first = http::get(&url);
        assert_eq!(first.status, 307, "{}", first.text());
        let owner = cluster.owner(&bucket, &format!("dir/s{format}"));
        assert!(first.header("location").unwrap().starts_with(&owner.url));
        let reply: ShardIndexReply =
            serde_json::from_value(http::request("GET", &url).follow().json()).unwrap();
        assert_eq!(reply.version, "1");
        let listed: Vec<_> = reply.members.iter().map(|m| (m.0.clone(), m.2)).collect();
        let want: Vec<_> = members().iter().map(|m| (m.0.clone(), m.1.len() as u64)).collect();
        assert_eq!(listed, want, "{format}");
        if format == ".tar" {
            let (_, offset, size) = reply.members[2];
            let range = forebay_core::size::RangeSpec::From(offset, Some(offset + size - 1));
            let got = cluster.client().get_bytes(&bucket, "dir/s.tar", Some(range)).await.unwrap();
            assert_same("a plain range of the shard", &got, &content("a/1.txt", 513));
        }
    }
    let none = http::request(
        "GET",
        &format!("{}/api/v1/shard/index/none.tar?provider=ais", cluster.endpoint),
    );
    assert_eq!(none.follow().status, 404);
    assert!(cluster.metric("forebay_http_requests_total", &["api=\"api\"", "op=\"shard\""]) > 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cold_shard_is_read_once_however_many_of_its_members_are_asked_for() {
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { env: minio.env(), ..Options::default() });
    minio.create_bucket("cold").await;
    let all: Members =
        (0..16).map(|n| (format!("m/{n:02}"), content(&n.to_string(), 300_000))).collect();
    for format in [".tar", ".tgz", ".zip"] {
        let shard = format!("s{format}");
        minio.put("cold", &shard, archive(format, &all)).await;
        cluster.client().head_bucket(&cloud("cold")).await.unwrap();
        let before = minio.count("GetObject");
        let url = format!("{}/v1/objects/cold/{shard}?provider=aws", cluster.endpoint);
        let read = |name: String| {
            let url = format!("{url}&archpath={name}");
            tokio::task::spawn_blocking(move || http::request("GET", &url).follow())
        };
        let readers: Vec<_> = all.iter().map(|(name, _)| read(name.clone())).collect();
        for (reader, (name, data)) in readers.into_iter().zip(&all) {
            let got = reader.await.unwrap();
            assert_eq!(got.status, 200, "{name}: {}", got.text());
            assert_same(name, &got.body, data);
        }
        wait::until("MinIO has counted its reads", std::time::Duration::from_secs(20), || {
            minio.count("GetObject") > before
        });
        assert_eq!(minio.count("GetObject") - before, 1, "{format}");
    }
}
