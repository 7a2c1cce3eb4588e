//! Conditions and their precedence in RFC 9110 and AWS.

use super::*;

const AT: u64 = 1_369_353_600;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
}

fn object(etag: &str) -> Present<'_> {
    Present { etag, mtime_ns: AT * 1_000_000_000 + 500_000_000, size: 3 }
}

fn read(pairs: &[(&'static str, &str)]) -> Result<(), S3Code> {
    ReadConditions::of_read(&headers(pairs)).check(object("e1")).map_err(|e| e.code)
}

const BEFORE: &str = "Thu, 23 May 2013 00:00:00 GMT";
const EXACT: &str = "Fri, 24 May 2013 00:00:00 GMT";
const AFTER: &str = "Sat, 25 May 2013 00:00:00 GMT";

#[test]
fn reads_are_made_when_their_conditions_hold() {
    let failed = Err(S3Code::PreconditionFailed);
    let same = Err(S3Code::NotModified);
    for (pairs, wanted) in [
        (&[("if-match", "\"e1\"")][..], Ok(())),
        (&[("if-match", "e1")], Ok(())),
        (&[("if-match", "\"x\", \"e1\"")], Ok(())),
        (&[("if-match", "*")], Ok(())),
        (&[("if-match", "\"x\"")], failed),
        (&[("if-none-match", "\"e1\"")], same),
        (&[("if-none-match", "W/\"e1\"")], same),
        (&[("if-none-match", "x")], Ok(())),
        (&[("if-modified-since", BEFORE)], Ok(())),
        (&[("if-modified-since", EXACT)], same),
        (&[("if-modified-since", "yesterday")], Ok(())),
        (&[("if-unmodified-since", AFTER)], Ok(())),
        (&[("if-unmodified-since", EXACT)], Ok(())),
        (&[("if-unmodified-since", BEFORE)], failed),
        (&[("if-match", "e1"), ("if-unmodified-since", BEFORE)], Ok(())),
        (&[("if-none-match", "x"), ("if-modified-since", AFTER)], Ok(())),
        (&[("if-match", "e1"), ("if-none-match", "e1")], same),
        (&[], Ok(())),
    ] {
        assert_eq!(read(pairs), wanted, "{pairs:?}");
    }
}

#[test]
fn a_range_is_sent_of_the_version_that_if_range_names() {
    for (validator, holds) in [
        ("\"e1\"", true),
        ("e1", true),
        ("\"e2\"", false),
        ("W/\"e1\"", false),
        (EXACT, true),
        (BEFORE, false),
        (AFTER, false),
        ("", false),
    ] {
        assert_eq!(if_range_holds(validator, object("e1")), holds, "{validator}");
    }
}

#[test]
fn the_source_of_a_copy_has_conditions_of_its_own() {
    let check = |pairs: &[(&'static str, &str)]| {
        let conditions = ReadConditions::of_copy(&headers(pairs));
        conditions.check_copy(object("e1")).map_err(|e| e.code)
    };
    assert_eq!(check(&[("if-match", "x")]), Ok(()), "that one is of the destination");
    assert_eq!(check(&[("x-amz-copy-source-if-match", "\"e1\"")]), Ok(()));
    let failed = Err(S3Code::PreconditionFailed);
    assert_eq!(check(&[("x-amz-copy-source-if-match", "x")]), failed);
    assert_eq!(check(&[("x-amz-copy-source-if-none-match", "e1")]), failed);
}

#[test]
fn a_write_replaces_only_what_it_says() {
    let put = |pairs: &[(&'static str, &str)], there: Option<&str>| {
        let conditions = WriteConditions::parse(&headers(pairs)).unwrap();
        conditions.check_put(there.map(object)).map_err(|e| e.code)
    };
    let failed = Err(S3Code::PreconditionFailed);
    assert_eq!(put(&[("if-none-match", "*")], None), Ok(()));
    assert_eq!(put(&[("if-none-match", "*")], Some("e1")), failed);
    assert_eq!(put(&[("if-none-match", "\"e1\"")], Some("e1")), failed);
    assert_eq!(put(&[("if-none-match", "x")], Some("e1")), Ok(()));
    assert_eq!(put(&[("if-match", "e1")], Some("e1")), Ok(()));
    assert_eq!(put(&[("if-match", "*")], Some("e1")), Ok(()));
    assert_eq!(put(&[("if-match", "x")], Some("e1")), failed);
    assert_eq!(put(&[("if-match", "*")], None), Err(S3Code::NoSuchKey));
    assert_eq!(put(&[], Some("e1")), Ok(()));
}

#[test]
fn a_deletion_deletes_only_what_it_says() {
    let delete = |pairs: &[(&'static str, &str)], there: Option<&str>| {
        let conditions = WriteConditions::parse(&headers(pairs)).unwrap();
        conditions.check_delete(there.map(object)).map_err(|e| e.code)
    };
    let failed = Err(S3Code::PreconditionFailed);
    let time = "x-amz-if-match-last-modified-time";
    assert_eq!(delete(&[("if-match", "e1")], Some("e1")), Ok(()));
    assert_eq!(delete(&[("if-match", "x")], Some("e1")), failed);
    assert_eq!(delete(&[("if-match", "x")], None), Ok(()), "there is nothing to delete");
    assert_eq!(delete(&[("if-match", "*")], Some("")), Ok(()), "a delete marker");
    assert_eq!(delete(&[("if-match", "x")], Some("")), failed);
    assert_eq!(delete(&[(time, EXACT)], Some("e1")), Ok(()));
    assert_eq!(delete(&[(time, AFTER)], Some("e1")), failed);
    assert_eq!(delete(&[("x-amz-if-match-size", "3")], Some("e1")), Ok(()));
    assert_eq!(delete(&[("x-amz-if-match-size", "4")], Some("e1")), failed);
    for (name, bad) in [(time, "soon"), ("x-amz-if-match-size", "-1")] {
        assert!(WriteConditions::parse(&headers(&[(name, bad)])).is_err());
    }
}
