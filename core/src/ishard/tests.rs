//! Tests that compare plans with plans written by hand.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;
use crate::error::{Error, ErrorCode};
use crate::name::{Bucket, Provider};

pub(super) fn spec() -> IshardSpec {
    let bucket = |name| Bucket::new(Provider::Ais, name).unwrap();
    IshardSpec { template: "s-%d".into(), ..IshardSpec::new(bucket("src"), bucket("dst")) }
}

pub(super) fn listing(files: &[(&str, u64)]) -> Listing {
    let mut files = files.to_vec();
    files.sort_unstable();
    let mut listing = Listing::default();
    files.iter().for_each(|(name, size)| listing.push(name, *size).unwrap());
    listing
}

/// Names only; each of ten bytes.
fn tens(names: &[&str]) -> Listing {
    listing(&names.iter().map(|n| (*n, 10)).collect::<Vec<_>>())
}

/// `name: member member …` of each shard.
pub(super) fn shown(plan: &Plan) -> Vec<String> {
    let members = |i| plan.files(i).map(|f| f.member).collect::<Vec<_>>().join(" ");
    plan.shards().enumerate().map(|(i, s)| format!("{}: {}", s.name, members(i))).collect()
}

fn planned(spec: &IshardSpec, listing: Listing) -> Vec<String> {
    shown(&plan(spec, listing).unwrap())
}

fn refused(spec: &IshardSpec, listing: Listing) -> Error {
    match plan(spec, listing) {
        Ok(plan) => panic!("planned {:?}", shown(&plan)),
        Err(e) => e,
    }
}

/// Annotations beside images of two classes, in the layout of ImageNet.
fn imagenet() -> Listing {
    listing(&[
        ("IN/Annotations/n03/n03_01.xml", 100),
        ("IN/Annotations/n03/n03_02.xml", 100),
        ("IN/Annotations/n69/n69_01.xml", 100),
        ("IN/Data/train/n03/n03_01.JPEG", 3000),
        ("IN/Data/train/n03/n03_02.JPEG", 3000),
        ("IN/Data/train/n03/n03_02.loss", 8),
        ("IN/Data/train/n69/n69_01.JPEG", 3000),
        ("IN/Data/val/n03/val_0001.JPEG", 3000),
    ])
}

#[test]
fn base_file_name_joins_what_lies_in_parallel_folders() {
    let s = IshardSpec { size: ShardSize::Count(2), ..spec() };
    assert_eq!(
        planned(&s, imagenet()),
        [
            "s-0.tar: n03_01.JPEG n03_01.xml n03_02.JPEG n03_02.loss n03_02.xml",
            "s-1.tar: n69_01.JPEG n69_01.xml val_0001.JPEG",
        ]
    );
    let documented = IshardSpec { key: "base_filename".parse().unwrap(), ..s.clone() };
    assert_eq!(planned(&documented, imagenet()), planned(&s, imagenet()));
}

#[test]
fn full_name_keeps_folders_apart_and_collapse_lets_them_meet() {
    let s = IshardSpec { key: KeyMode::FullName, size: ShardSize::Count(2), ..spec() };
    assert_eq!(
        planned(&s, imagenet()),
        [
            "s-0.tar: IN/Annotations/n03/n03_01.xml IN/Annotations/n03/n03_02.xml",
            "s-1.tar: IN/Annotations/n69/n69_01.xml",
            "s-2.tar: IN/Data/train/n03/n03_01.JPEG IN/Data/train/n03/n03_02.JPEG \
             IN/Data/train/n03/n03_02.loss",
            "s-3.tar: IN/Data/train/n69/n69_01.JPEG",
            "s-4.tar: IN/Data/val/n03/val_0001.JPEG",
        ]
    );
    let s = IshardSpec { collapse: true, ..s };
    assert_eq!(
        planned(&s, imagenet()),
        [
            "s-0.tar: IN/Annotations/n03/n03_01.xml IN/Annotations/n03/n03_02.xml",
            "s-1.tar: IN/Data/train/n03/n03_01.JPEG IN/Data/train/n03/n03_02.JPEG \
             IN/Data/train/n03/n03_02.loss",
            "s-2.tar: IN/Data/train/n69/n69_01.JPEG IN/Data/val/n03/val_0001.JPEG",
            "s-3.tar: IN/Annotations/n69/n69_01.xml",
        ]
    );
}

#[test]
fn collapse_all_dir_drops_the_slashes_of_keys() {
    let s = IshardSpec { key: KeyMode::CollapseAllDir, size: ShardSize::Count(3), ..spec() };
    assert_eq!(
        planned(&s, imagenet()),
        [
            "s-0.tar: INAnnotationsn03n03_01.xml INAnnotationsn03n03_02.xml \
             INAnnotationsn69n69_01.xml",
            "s-1.tar: INDatatrainn03n03_01.JPEG INDatatrainn03n03_02.JPEG \
             INDatatrainn03n03_02.loss INDatatrainn69n69_01.JPEG",
            "s-2.tar: INDatavaln03val_0001.JPEG",
        ]
    );
}

#[test]
fn a_pattern_takes_its_group_and_what_it_does_not_match_keeps_its_name() {
    let key = r"train/[^/]+/([^/]+)$".parse().unwrap();
    let s = IshardSpec { key, size: ShardSize::Count(100), collapse: true, ..spec() };
    assert_eq!(
        planned(&s, imagenet()),
        ["s-0.tar: n03_01.JPEG n03_02.JPEG n03_02.loss n69_01.JPEG \
          IN/Annotations/n03/n03_01.xml IN/Annotations/n03/n03_02.xml \
          IN/Annotations/n69/n69_01.xml IN/Data/val/n03/val_0001.JPEG"]
    );
    // A class as one sample: its files have numbers, since they would have one name.
    let key = r".*/([^/]+)/[^/]+$".parse().unwrap();
    let s =
        IshardSpec { key, size: ShardSize::Count(1), on_duplicate: OnDuplicate::Rename, ..spec() };
    assert_eq!(
        planned(&s, imagenet()),
        [
            "s-0.tar: n03.JPEG n03.1.JPEG n03.2.JPEG n03.loss n03.xml n03.1.xml",
            "s-1.tar: n69.JPEG n69.xml",
        ]
    );
}

#[test]
fn bytes_close_a_shard_when_they_are_reached() {
    let s = IshardSpec { size: ShardSize::Bytes(3100), ..spec() };
    let plan = plan(&s, imagenet()).unwrap();
    let sizes: Vec<_> = plan.shards().map(|s| (s.samples, s.files, s.bytes)).collect();
    assert_eq!(sizes, [(1, 2, 3100), (1, 3, 3108), (1, 2, 3100), (1, 1, 3000)]);
    assert_eq!(plan.totals.bytes, 12_308);
    assert_eq!((plan.totals.files, plan.totals.samples, plan.totals.shards), (8, 4, 4));
}

#[test]
fn a_count_is_a_count_whatever_the_files_weigh() {
    let names: Vec<String> = (0..25).map(|n| format!("{n:02}.txt")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(|n| (n.as_str(), 1)).collect();
    let s = IshardSpec { size: ShardSize::Count(10), ..spec() };
    let samples = |s: &IshardSpec| {
        plan(s, listing(&files)).unwrap().shards().map(|s| s.samples).collect::<Vec<_>>()
    };
    assert_eq!(samples(&s), [10, 10, 5]);
    assert_eq!(samples(&IshardSpec { collapse: true, ..s }), [10, 10, 5]);
}

#[test]
fn the_first_dot_begins_the_extension_unless_the_last_is_wanted() {
    let files = || tens(&["a.jpg", "a.seg.png"]);
    let s = IshardSpec { size: ShardSize::Count(1), ..spec() };
    assert_eq!(planned(&s, files()), ["s-0.tar: a.jpg a.seg.png"]);
    let s = IshardSpec { ext_mode: ExtMode::Last, ..s };
    assert_eq!(planned(&s, files()), ["s-0.tar: a.jpg", "s-1.tar: a.seg.png"]);
}

#[test]
fn a_key_that_is_also_a_folder_is_not_lost() {
    let s = IshardSpec { key: KeyMode::FullName, size: ShardSize::Count(9), ..spec() };
    let files = || tens(&["a/b.jpg", "a.jpg", "a/b/c.jpg", "a-b.jpg"]);
    assert_eq!(
        planned(&s, files()),
        ["s-0.tar: a.jpg a-b.jpg", "s-1.tar: a/b.jpg", "s-2.tar: a/b/c.jpg"]
    );
    let s = IshardSpec { collapse: true, ..s };
    assert_eq!(planned(&s, files()), ["s-0.tar: a.jpg a-b.jpg a/b.jpg a/b/c.jpg"]);
}

/// Complete, missing one, extra one, both.
fn uneven() -> Listing {
    tens(&["c.jpg", "c.xml", "m.jpg", "e.jpg", "e.xml", "e.txt", "b.xml", "b.txt"])
}

#[test]
fn each_action_on_missing_extensions_does_what_it_says() {
    let s = IshardSpec { sample_exts: vec![".jpg".into(), "xml".into()], ..spec() };
    let all = ["s-0.tar: b.txt b.xml c.jpg c.xml e.jpg e.txt e.xml m.jpg"];
    assert_eq!(planned(&s, uneven()), all);

    let warn = IshardSpec { missing: MissingAction::Warn, ..s.clone() };
    let warned = plan(&warn, uneven()).unwrap();
    assert_eq!(shown(&warned), all);
    assert_eq!((warned.totals.incomplete_samples, warned.totals.extra_files), (2, 2));
    let notes = warned.notes.join("\n");
    for text in ["sample b lacks .jpg", "sample m lacks .xml", "b.txt is none", "e.txt is none"] {
        assert!(notes.contains(text), "{notes}");
    }

    let exclude = IshardSpec { missing: MissingAction::Exclude, ..s.clone() };
    let excluded = plan(&exclude, uneven()).unwrap();
    assert_eq!(shown(&excluded), ["s-0.tar: c.jpg c.xml e.jpg e.xml"]);
    let t = &excluded.totals;
    assert_eq!((t.dropped_samples, t.dropped_files, t.dropped_bytes), (2, 4, 40));

    let abort = IshardSpec { missing: MissingAction::Abort, ..s };
    for (files, said) in [
        (&["m.jpg"][..], "sample m lacks .xml"),
        (&["e.jpg", "e.xml", "e.txt"], "e.txt is none"),
        (&["b.xml", "b.txt"], "b.txt is none"),
    ] {
        let e = refused(&abort, tens(files));
        assert_eq!(e.code, ErrorCode::Unprocessable);
        assert!(e.message.contains(said), "{e}");
    }
    assert_eq!(planned(&abort, tens(&["c.jpg", "c.xml"])), ["s-0.tar: c.jpg c.xml"]);
}

#[test]
fn extensions_differ_by_case_unless_that_is_ignored() {
    let s =
        IshardSpec { sample_exts: vec![".jpeg".into()], missing: MissingAction::Exclude, ..spec() };
    assert_eq!(refused(&s, tens(&["a.JPEG"])).code, ErrorCode::Unprocessable);
    let s = IshardSpec { ext_ignore_case: true, ..s };
    assert_eq!(planned(&s, tens(&["a.JPEG"])), ["s-0.tar: a.JPEG"]);
}

#[test]
fn two_files_of_one_name_are_named_both_unless_one_is_to_be_kept() {
    let files = || tens(&["train/x.jpg", "train/x.xml", "val/x.jpg", "val/x.1.jpg"]);
    let e = refused(&spec(), files());
    assert_eq!(e.code, ErrorCode::Unprocessable);
    assert!(e.message.contains("\"train/x.jpg\" and \"val/x.jpg\""), "{e}");

    let keep = IshardSpec { on_duplicate: OnDuplicate::KeepFirst, ..spec() };
    let kept = plan(&keep, files()).unwrap();
    assert_eq!(shown(&kept), ["s-0.tar: x.1.jpg x.jpg x.xml"]);
    let from: Vec<_> = kept.files(0).map(|f| f.source.to_owned()).collect();
    assert_eq!(from, ["val/x.1.jpg", "train/x.jpg", "train/x.xml"]);
    assert_eq!((kept.totals.duplicates, kept.totals.dropped_files), (1, 1));

    let rename = IshardSpec { on_duplicate: OnDuplicate::Rename, ..spec() };
    assert_eq!(planned(&rename, files()), ["s-0.tar: x.1.jpg x.jpg x.2.jpg x.xml"]);
    // Duplicates among files that are left out are not an error.
    let s =
        IshardSpec { sample_exts: vec!["xml".into()], missing: MissingAction::Exclude, ..spec() };
    assert_eq!(planned(&s, files()), ["s-0.tar: x.xml"]);
}

#[test]
fn orders_are_over_all_folders_and_a_seed_is_an_order() {
    let files = || tens(&["a/2.x", "b/1.x", "c/3.x", "c/4.x"]);
    let s = |sort: &str| IshardSpec {
        key: KeyMode::FullName,
        size: ShardSize::Count(3),
        sort: sort.parse().unwrap(),
        ..spec()
    };
    assert_eq!(planned(&s("alpha"), files()), ["s-0.tar: a/2.x b/1.x c/3.x", "s-1.tar: c/4.x"]);
    assert_eq!(planned(&s("alpha:dec"), files()), ["s-0.tar: c/4.x c/3.x b/1.x", "s-1.tar: a/2.x"]);
    let shuffled: BTreeSet<_> =
        (0..50).map(|seed| planned(&s(&format!("shuffle:{seed}")), files())).collect();
    assert!(shuffled.len() > 12, "{} orders of four", shuffled.len());
    assert_eq!(planned(&s("shuffle:7"), files()), planned(&s("shuffle:7"), files()));
    assert_eq!(planned(&s("shuffle"), files()), planned(&s("shuffle:0"), files()));
    for bad in ["beta", "alpha:up", "shuffle:", "shuffle:x", "shuffle:-1"] {
        assert!(bad.parse::<Sort>().is_err(), "{bad}");
    }
}

#[test]
fn an_external_key_map_names_shards_by_its_first_matching_rule() {
    let ekm = Ekm::parse(r#"{"z-%d.tar": ["/cat/"], "a-%d": ["cat", "dog"]}"#).unwrap();
    let s = IshardSpec { ekm, size: ShardSize::Count(2), ..spec() };
    let files =
        || tens(&["i/cat/1.x", "i/cat/2.x", "i/cat/3.x", "i/dog/4.x", "l/1.y", "i/emu/5.x"]);
    let plan_skip = plan(&s, files()).unwrap();
    assert_eq!(
        shown(&plan_skip),
        ["z-0.tar: 1.x 1.y 2.x", "z-1.tar: 3.x", "a-0.tar: 4.x"],
        "a sample goes where one of its files belongs"
    );
    assert_eq!((plan_skip.totals.unmatched_samples, plan_skip.totals.dropped_files), (1, 1));
    let own = IshardSpec { ekm_unmatched: EkmUnmatched::Template, ..s.clone() };
    assert_eq!(planned(&own, files())[3], "s-0.tar: 5.x");
    let abort = IshardSpec { ekm_unmatched: EkmUnmatched::Abort, ..s.clone() };
    assert!(refused(&abort, files()).message.contains("i/emu/5.x"));
    // Serialization for a target keeps the order of the rules.
    let text = serde_json::to_string(&s).unwrap();
    assert_eq!(serde_json::from_str::<IshardSpec>(&text).unwrap(), s);
    for bad in ["[]", r#"{"a-%d": ["x"], "a-%d": ["y"]}"#, r#"{"a": 1}"#] {
        assert!(Ekm::parse(bad).is_err(), "{bad}");
    }
    let same = Ekm::parse(r#"{"s-{0..9}": "cat", "s-%d": "dog"}"#).unwrap();
    assert!(refused(&IshardSpec { ekm: same, ..s }, files()).message.contains("\"s-0.tar\""));
}

#[test]
fn too_few_names_are_refused_with_both_numbers() {
    let s = IshardSpec { size: ShardSize::Count(1), template: "s-{0..6}".into(), ..spec() };
    let names: Vec<String> = (0..9).map(|n| format!("{n}.x")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let e = refused(&s, tens(&names));
    assert!(e.message.contains("has 7 names, 9 shards"), "{e}");
    assert_eq!(planned(&s, tens(&names[..7])).len(), 7);
    let twice = IshardSpec { template: "{1..11}{1..11}".into(), ..s };
    let many: Vec<String> = (0..120).map(|n| format!("{n}.x")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(refused(&twice, tens(&many)).message.contains("\"111.tar\""));
}

#[test]
fn what_can_never_work_is_refused_before_anything_else() {
    let bad: [fn(&mut IshardSpec); 8] = [
        |s| s.ext = ".rar".into(),
        |s| s.size = ShardSize::Count(0),
        |s| s.size = ShardSize::Bytes(0),
        |s| s.sample_exts = vec![".jpg".into(), String::new()],
        |s| s.missing = MissingAction::Abort,
        |s| s.template = "shard".into(),
        |s| s.key = KeyMode::Regex("(".into()),
        |s| s.ekm = Ekm(vec![EkmRule { template: "a-%d".into(), patterns: vec!["[".into()] }]),
    ];
    for (i, spoil) in bad.into_iter().enumerate() {
        let mut s = spec();
        spoil(&mut s);
        assert_eq!(s.check().unwrap_err().code, ErrorCode::InvalidArgument, "{i}");
    }
    assert_eq!(refused(&spec(), Listing::default()).code, ErrorCode::ObjectNotFound);
    assert_eq!(refused(&spec(), tens(&["d/"])).code, ErrorCode::Unprocessable);
    assert!(
        serde_json::from_str::<IshardSpec>(
            r#"{"source":{"name":"a"},"destination":{"name":"b"},"shard_size":1}"#
        )
        .is_err()
    );
    let short: IshardSpec = serde_json::from_str(
        r#"{"source":{"name":"a"},"destination":{"name":"b"},"size":"16MiB","sort":"shuffle:3"}"#,
    )
    .unwrap();
    assert_eq!((short.size, short.sort), (ShardSize::Bytes(16 << 20), Sort::Shuffle { seed: 3 }));
    assert_eq!("10".parse::<ShardSize>().unwrap(), ShardSize::Count(10));
}

#[test]
fn nothing_is_written_over_what_is_there_or_what_is_read() {
    let s = spec();
    let plan_one = plan(&s, tens(&["a.x"])).unwrap();
    for name in ["other", "s-1.tar"] {
        assert_eq!(plan_one.outputs(&s).refuse(&s, name), Ok(()));
    }
    for name in ["s-0.tar", "manifest.jsonl"] {
        let e = plan_one.outputs(&s).refuse(&s, name).unwrap_err();
        assert_eq!(e.code, ErrorCode::Conflict);
        assert!(e.message.contains(&format!("ais://dst/{name}")), "{e}");
        let over = IshardSpec { overwrite: Overwrite::Always, ..s.clone() };
        assert_eq!(plan_one.outputs(&over).refuse(&over, name), Ok(()));
    }
    assert_eq!(plan_one.output_prefix(&s), "");
    let below = IshardSpec { destination_prefix: "out/".into(), ..s.clone() };
    let plan_below = plan(&below, tens(&["a.x"])).unwrap();
    assert_eq!(plan_below.output_prefix(&below), "out/");
    assert_eq!(plan_below.shard(0).name, "out/s-0.tar");
    let onto = IshardSpec { destination: s.source.clone(), overwrite: Overwrite::Always, ..s };
    assert_eq!(refused(&onto, tens(&["a.x", "s-0.tar"])).code, ErrorCode::Conflict);
    let manifest =
        IshardSpec { template: "manifest-%d".into(), manifest: "manifest-0.tar".into(), ..spec() };
    assert!(refused(&manifest, tens(&["a.x"])).message.contains("two outputs"));
}

#[test]
fn a_hundred_thousand_objects_are_planned() {
    let mut listing = Listing::default();
    for n in 0..50_000 {
        listing.push(&format!("data/{:03}/{n:08}.cls", n / 100), 3).unwrap();
        listing.push(&format!("data/{:03}/{n:08}.jpg", n / 100), 1000).unwrap();
    }
    let s = IshardSpec { size: ShardSize::Bytes(1 << 20), ..spec() };
    let made = plan(&s, listing).unwrap();
    assert_eq!((made.totals.samples, made.totals.files), (50_000, 100_000));
    assert_eq!(made.totals.shards, 48);
}
