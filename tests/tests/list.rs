//! Listings of native buckets: complete, ordered, in pages.

use forebay_tests::cluster::{Cluster, native};
use forebay_tests::http;
use forebay_v1::list::{ListMsg, MSGPACK, Page, entry_flags, flags};
use futures::StreamExt;

async fn put_all(client: &forebay_client::Client, bucket: &str, names: &[String]) {
    let bucket = native(bucket);
    futures::stream::iter(names)
        .map(|name| {
            let (client, bucket) = (client.clone(), bucket.clone());
            async move { client.put(&bucket, name, name.clone().into_bytes(), None).await.unwrap() }
        })
        .buffer_unordered(16)
        .collect::<Vec<_>>()
        .await;
}

#[tokio::test]
async fn pages_of_any_size_make_the_whole_listing_in_byte_order() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("pages");
    client.create_bucket(&bucket, None).await.unwrap();
    assert!(client.list_all(&bucket, "").await.unwrap().is_empty());

    let mut names: Vec<String> = (0..300).map(|n| format!("a/{n:03}")).collect();
    names.extend(
        ["a", "a.b", "b/ä", "b/z", "日本", "Z", "b/\u{10ffff}", "b/\u{ffff}"].map(str::to_owned),
    );
    put_all(&client, "pages", &names).await;
    names.sort_unstable();

    let all = client.list_all(&bucket, "").await.unwrap();
    let want: Vec<_> = names.iter().map(|n| (n.clone(), n.len() as u64)).collect();
    assert_eq!(all, want);

    for page_size in [1, 7, 100, names.len(), 10_000] {
        let mut got = Vec::new();
        let mut msg = ListMsg { page_size, props: "name,size".into(), ..ListMsg::default() };
        if page_size == 1 {
            // One by one is slow; the last few are enough.
            msg.start_after = names[names.len() - 6].clone();
        }
        loop {
            let page = client.list_page(&bucket, &msg).await.unwrap();
            assert!(!page.uuid.is_empty(), "every page carries the listing's id");
            assert!(page.entries.len() <= page_size);
            got.extend(page.entries.into_iter().map(|e| e.name));
            if page.token.is_empty() {
                break;
            }
            (msg.uuid, msg.token) = (page.uuid, page.token);
        }
        let want = if page_size == 1 { &names[names.len() - 5..] } else { &names[..] };
        assert_eq!(got, want, "pages of {page_size}");
    }
}

#[tokio::test]
async fn a_prefix_selects_and_deleted_objects_are_gone() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("prefixes");
    client.create_bucket(&bucket, None).await.unwrap();
    let names: Vec<String> =
        ["a/1", "a/2", "ab", "b/a/1", "ä/1"].into_iter().map(str::to_owned).collect();
    put_all(&client, "prefixes", &names).await;
    for (prefix, want) in [
        ("a", &["a/1", "a/2", "ab"][..]),
        ("a/", &["a/1", "a/2"]),
        ("a/2", &["a/2"]),
        ("ä", &["ä/1"]),
        ("zz", &[]),
    ] {
        let got = client.list_all(&bucket, prefix).await.unwrap();
        let got: Vec<_> = got.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(got, want, "prefix {prefix:?}");
    }
    client.delete(&bucket, "a/1").await.unwrap();
    let got = client.list_all(&bucket, "a/").await.unwrap();
    assert_eq!(got, [("a/2".to_owned(), 3)]);
}

#[tokio::test]
async fn a_foreign_client_gets_messagepack_only_when_it_asks_for_it() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("forms");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "12345", None).await.unwrap();
    let url = format!("{}/v1/buckets/forms", cluster.endpoint);
    let msg = ListMsg { flags: flags::NAME_SIZE, props: "name,size".into(), ..ListMsg::default() };
    let list = serde_json::json!({"action": "list", "value": msg.to_value()});

    let packed = http::request("GET", &url).header("accept", MSGPACK).json(&list).send();
    assert_eq!(packed.status, 200, "{}", packed.text());
    assert_eq!(packed.header("content-type"), Some(MSGPACK));
    let page = Page::from_msgpack(&packed.body).unwrap();
    assert_eq!((page.entries[0].name.as_str(), page.entries[0].size), ("x", 5));
    assert_eq!(page.entries[0].flags & entry_flags::PRESENT, entry_flags::PRESENT);

    let json = http::request("GET", &url).json(&list).send();
    assert_eq!(json.header("content-type"), Some("application/json; charset=utf-8"));
    let json = json.json();
    assert_eq!(json["entries"][0]["name"], "x");
    assert_eq!(json["entries"][0]["size"], "5");
}

#[tokio::test]
async fn buckets_are_listed_by_provider() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    for name in ["one", "two"] {
        client.create_bucket(&native(name), None).await.unwrap();
    }
    let mut all = client.list_buckets(None).await.unwrap();
    all.sort();
    assert_eq!(all, [native("one"), native("two")]);
    let clouds = client.list_buckets(Some(forebay_core::Provider::Aws)).await.unwrap();
    assert!(clouds.is_empty(), "{clouds:?}");
    client.destroy_bucket(&native("one")).await.unwrap();
    assert_eq!(client.list_buckets(None).await.unwrap(), [native("two")]);
}
