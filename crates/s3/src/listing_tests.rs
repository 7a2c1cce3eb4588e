//! Pages of listings, compared with a full listing that is cut afterwards.

use proptest::prelude::*;

use super::*;

fn scope(prefix: &str, delimiter: Option<&str>, max: u32) -> ListScope {
    let delimiter = delimiter.map(str::to_owned);
    ListScope { prefix: prefix.to_owned(), delimiter, encode: false, max }
}

fn object(key: &str) -> ListedObject {
    ListedObject { key: key.to_owned(), ..ListedObject::default() }
}

/// One page over sorted keys, read like a store: from [`PageBuilder::start`], and if `jump` is set,
/// continuing at the builder's `skip_to`.
fn page(keys: &[&str], scope: &ListScope, after: &str, jump: bool) -> ObjectPage {
    let mut builder = PageBuilder::new(scope, after);
    let mut from = builder.start();
    while let Some(key) = keys.iter().find(|k| ***k > *from) {
        from = match builder.offer(key, || object(key)) {
            Taken::Full => return builder.finish(false),
            Taken::Grouped if jump => builder.skip_to(key).unwrap(),
            Taken::Grouped | Taken::More => (*key).to_owned(),
        };
    }
    builder.finish(false)
}

/// All pages, as rows: keys and common prefixes in order.
fn pages(keys: &[&str], scope: &ListScope, jump: bool) -> Vec<String> {
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let page = page(keys, scope, &after, jump);
        let count = page.objects.len() + page.common_prefixes.len();
        assert!(count <= scope.max as usize);
        let mut here: Vec<String> = page.objects.iter().map(|o| o.key.clone()).collect();
        here.extend(page.common_prefixes.clone());
        here.sort();
        assert_eq!(here.last().cloned().unwrap_or_default(), page.last);
        rows.extend(here);
        if !page.truncated {
            return rows;
        }
        assert!(count > 0, "a truncated page has rows");
        after = page.last;
    }
}

const KEYS: [&str; 6] = ["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/thud", "cquux/x/y", "d"];

#[test]
fn keys_are_grouped_behind_the_prefix_up_to_the_delimiter() {
    let list = |prefix: &str| {
        let page = page(&KEYS, &scope(prefix, Some("/"), 1000), "", true);
        let keys: Vec<_> = page.objects.into_iter().map(|o| o.key).collect();
        (keys.join(" "), page.common_prefixes.join(" "), page.truncated)
    };
    assert_eq!(list(""), ("asdf d".into(), "boo/ cquux/".into(), false));
    assert_eq!(list("boo/"), ("boo/bar".into(), "boo/baz/".into(), false));
    assert_eq!(list("boo"), (String::new(), "boo/".into(), false));
    assert_eq!(list("nope"), (String::new(), String::new(), false));
    let whole = page(&KEYS, &scope("", None, 1000), "", true);
    assert_eq!((whole.objects.len(), whole.common_prefixes.len()), (6, 0));
}

#[test]
fn a_page_goes_on_where_the_last_one_ended() {
    let two = scope("", Some("/"), 2);
    let first = page(&KEYS, &two, "", true);
    assert_eq!((first.last.as_str(), first.truncated), ("boo/", true));
    let second = page(&KEYS, &two, "boo/", true);
    assert_eq!((second.common_prefixes, second.objects.len()), (vec!["cquux/".to_owned()], 1));
    assert!(!second.truncated);
}

#[test]
fn a_key_as_a_marker_lists_the_rest_of_its_prefix_too() {
    // A client may start anywhere: `boo/bar` is not a row of a page, so `boo/` was not listed yet.
    let from = page(&KEYS, &scope("", Some("/"), 9), "boo/bar", false);
    assert_eq!(from.common_prefixes, ["boo/", "cquux/"]);
}

#[test]
fn truncation_is_exact() {
    for (max, truncated) in [(5, true), (6, false), (7, false), (0, false)] {
        let page = page(&KEYS, &scope("", None, max), "", true);
        assert_eq!(page.truncated, truncated, "{max}");
        assert_eq!(page.objects.len(), max.min(6) as usize);
    }
    let grouped = page(&["a/1", "a/2"], &scope("", Some("/"), 1), "", true);
    assert!(!grouped.truncated, "keys of a prefix that is listed are no further rows");
}

#[test]
fn a_key_that_is_a_prefix_of_others_stands_beside_them() {
    let keys = ["ds", "ds/", "ds/part-1", "ds//x"];
    let mut sorted = keys;
    sorted.sort_unstable();
    let page = page(&sorted, &scope("", Some("/"), 9), "", true);
    assert_eq!(page.objects[0].key, "ds");
    assert_eq!(page.common_prefixes, ["ds/"]);
    let inside = super::common_prefix("ds//x", "ds/", Some("/"));
    assert_eq!(inside, Some("ds//"));
}

proptest! {
    #[test]
    fn pages_of_any_size_are_the_whole_listing(
        keys in prop::collection::btree_set("[ab/]{1,5}|[a-c]/ü/[xy]", 0..30),
        prefix in "[ab/]{0,2}",
        delimiter in prop::option::of("/|b|//|ü"),
        max in 1u32..5,
        jump in any::<bool>(),
    ) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let delimiter = delimiter.as_deref();
        let mut wanted: Vec<String> = keys
            .iter()
            .filter(|k| k.starts_with(&prefix))
            .map(|k| common_prefix(k, &prefix, delimiter).unwrap_or(k).to_owned())
            .collect();
        wanted.sort();
        wanted.dedup();
        prop_assert_eq!(pages(&keys, &scope(&prefix, delimiter, max), jump), wanted);
    }
}
