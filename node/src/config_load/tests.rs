//! Tests of loading a configuration.

#![allow(clippy::unwrap_used)]

use forebay_core::config::CachePolicy;

use super::*;

fn flags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn flags_set_nested_keys_of_any_type() {
    let c = load(
        None,
        &flags(&[
            ("listen.http", "127.0.0.1:9"),
            ("cache.high", "70"),
            ("cache.low", "60"),
            ("cluster.gateways", r#"["http://a:1"]"#),
            ("node.id", "target-1"),
        ]),
    )
    .unwrap()
    .config;
    assert_eq!(c.listen.http, "127.0.0.1:9");
    assert_eq!((c.cache.high, c.cluster.gateways.len()), (70, 1));
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_name() {
    let e = load(None, &flags(&[("listen.htpp", "x")])).unwrap_err();
    assert_eq!(e.hint.as_deref(), Some("did you mean `http`?"), "{e}");
    let e = load(None, &flags(&[("lisetn.http", "x")])).unwrap_err();
    assert_eq!(e.hint.as_deref(), Some("did you mean `listen`?"), "{e}");
}

#[test]
fn a_variable_with_one_underscore_after_the_section_is_recognized() {
    for (key, value, expected) in [
        ("FOREBAY_LIMITS_BATCHES", "512", Some("FOREBAY_LIMITS__BATCHES")),
        ("FOREBAY_LIMITS_BATCHES", "many", Some("FOREBAY_LIMITS__BATCHES")),
        ("FOREBAY_LISTEN_HTTP", "a:1", Some("FOREBAY_LISTEN__HTTP")),
        ("FOREBAY_S3_DELETE_NONEMPTY_BUCKETS", "true", Some("FOREBAY_S3__DELETE_NONEMPTY_BUCKETS")),
        ("FOREBAY_TLS_SKIP_VERIFY", "1", None),
        ("FOREBAY_ENDPOINT", "http://a:1", None),
        ("FOREBAY_LOG", "debug", None),
        ("FOREBAY_LIMITS__BATCHES", "512", None),
        ("HOME", "/", None),
    ] {
        assert_eq!(meant(key, value).as_deref(), expected, "{key}={value}");
    }
}

#[test]
fn a_retired_value_of_an_old_file_is_replaced_with_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("target.toml");
    for old in ["sieve", "s3-fifo"] {
        std::fs::write(&path, format!("[cache]\nhigh = 85\npolicy = \"{old}\"\n")).unwrap();
        let loaded = load(Some(&path), &[]).unwrap();
        assert_eq!(loaded.config.cache.policy, CachePolicy::Density);
        assert_eq!(loaded.config.cache.high, 85);
        let [warning] = loaded.warnings.try_into().unwrap();
        let expected = format!("target.toml:3: cache.policy: \"{old}\" is no longer available");
        assert!(warning.contains(&expected), "{warning}");
    }
    let loaded = load(None, &flags(&[("cache.policy", "sieve")])).unwrap();
    assert!(loaded.warnings[0].starts_with("flag for cache.policy: "), "{:?}", loaded.warnings);
    let loaded = load(None, &flags(&[("cache.policy", "lru")])).unwrap();
    assert_eq!((loaded.config.cache.policy, loaded.warnings.len()), (CachePolicy::Lru, 0));
}

fn refused(file: &str, overrides: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("target.toml");
    std::fs::write(&path, file).unwrap();
    let text = load(Some(&path), &flags(overrides)).unwrap_err().to_string();
    text.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn an_error_names_the_line_of_the_file_and_the_key() {
    for (file, expected) in [
        ("[listen]\nhttp = \"a:1\"\n\n[cache]\nhigh = \"80%\"\n", "target.toml:5: cache.high: "),
        ("[cache]\nlow = 3\nhihg = 8\n", "target.toml:3: cache.hihg: unknown field"),
        ("cache.high = [1]\n", "target.toml:1: cache.high: "),
        ("[[disk]]\npath = \"/a\"\n[[disk]]\npath = 7\n", "target.toml:4: disk[1].path: "),
        ("\n[nothing]\n", "target.toml:2: nothing: unknown field"),
    ] {
        let error = refused(file, &[]);
        assert!(error.contains(expected), "{file}: {error}");
    }
}

#[test]
fn an_error_shows_no_value_that_may_be_a_secret() {
    for (file, expected) in [
        ("[[s3.keys]]\naccess = \"a\"\nsecret = \"planted\n", "target.toml:3: "),
        ("[[s3.keys]]\naccess = \"a\"\nsecret = planted\n", "target.toml:3: "),
        ("[[s3.keys]]\nsecret = [\"planted\"]\n", "target.toml:2: s3.keys[0].secret: "),
        ("[s3]\nkeys = \"planted\"\n", "target.toml:2: s3.keys: invalid value, expected "),
        ("[audit]\nurl = [\"http://a:planted@h\"]\n", "target.toml:2: audit.url: "),
        ("[[auth.issuer]]\nurl = {planted = \"planted\"}\n", "target.toml:2: auth.issuer[0]."),
    ] {
        let error = refused(file, &[]);
        assert!(error.contains(expected) && !error.contains("planted"), "{file}: {error}");
    }
    let keys = ("s3.keys", "[{access = \"a\", secret = \"planted\"");
    let error = refused("", &[keys]);
    assert!(error.contains("flag for s3.keys") && !error.contains("planted"), "{error}");
    let number = ("s3.keys", "[{access = \"a\", secret = 1234567}]");
    let error = refused("", &[number]);
    assert!(error.contains("expected a string") && !error.contains("1234567"), "{error}");
}

#[test]
fn an_error_names_the_flag_that_overrides_the_file() {
    let error = refused("[cache]\nhigh = 80\n", &[("cache.high", "most")]);
    assert!(error.contains("flag for cache.high: cache.high: invalid type"), "{error}");
}

#[test]
fn only_variables_with_two_underscores_are_settings() {
    assert_eq!(env_path("FOREBAY_LISTEN__HTTP").as_deref(), Some("listen.http"));
    assert_eq!(env_path("FOREBAY_ENDPOINT"), None);
    assert_eq!(env_path("HOME__X"), None);
}
