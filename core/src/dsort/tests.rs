//! Tests of plans, rule by rule.

use super::*;
use crate::error::{Error, ErrorCode};
use crate::name::{Bucket, Provider};
use crate::shard::Stat;

fn bucket(name: &str) -> Bucket {
    Bucket::new(Provider::Ais, name).unwrap()
}

fn spec(template: &str, shard_bytes: u64) -> DsortSpec {
    let new = DsortSpec::new(bucket("in"), bucket("out"));
    DsortSpec { template: template.into(), shard_bytes, input_ext: ".tar".into(), ..new }
}

/// A member whose time is its size.
fn member(name: &str, size: u64) -> (String, u64, Stat) {
    (name.to_owned(), size, Stat::new(size as i64, 0o600))
}

/// Input shards: the name of each, and its members with their sizes.
type Shards<'a> = &'a [(&'a str, &'a [(&'a str, u64)])];

fn records(shards: Shards<'_>) -> Records {
    let mut records = Records::default();
    for (shard, members) in shards {
        let members: Vec<_> = members.iter().map(|(name, size)| member(name, *size)).collect();
        records.add_shard(shard, &members, Reaction::Abort, &mut Vec::new()).unwrap();
    }
    records
}

fn planned(spec: &DsortSpec, shards: Shards<'_>) -> Result<Plan, Error> {
    plan(spec, None, records(shards), Inputs::default(), Vec::new())
}

/// `shard: member member …` of each output shard.
fn shown(plan: &Plan) -> Vec<String> {
    let names = |i: usize| plan.members(i).map(|m| m.name).collect::<Vec<_>>().join(" ");
    (0..plan.len()).map(|i| format!("{}: {}", plan.shard(i).name, names(i))).collect()
}

const TWO: Shards<'_> = &[
    ("in-0.tar", &[("b.jpg", 60), ("a.jpg", 60), ("b.cls", 1), ("d/c.jpg", 60)]),
    ("in-1.tar", &[("a.jpg", 60), ("a.seg.png", 60)]),
];

#[test]
fn members_of_one_base_name_in_one_shard_stay_together_and_those_of_two_shards_apart() {
    let plan = planned(&spec("o-{0..9}", 1), TWO).unwrap();
    assert_eq!(
        shown(&plan),
        ["o-0.tar: a.jpg", "o-1.tar: a.jpg a.seg.png", "o-2.tar: b.jpg b.cls", "o-3.tar: d/c.jpg"]
    );
    let sources: Vec<_> = (0..2).map(|i| plan.members(i).next().unwrap().source).collect();
    assert_eq!(sources, ["in-0.tar", "in-1.tar"]);
}

#[test]
fn members_keep_their_times_and_modes_in_the_plan() {
    let plan = planned(&spec("o-{0..9}", 1000), TWO).unwrap();
    let stats: Vec<_> = plan.members(0).map(|m| (m.name, m.stat)).collect();
    let of = |name, mtime| (name, Stat { mtime, mode: 0o600, local: false });
    let (a, b) = ([of("a.jpg", 60), of("a.jpg", 60)], [of("b.jpg", 60), of("b.cls", 1)]);
    assert_eq!(stats, [&a[..], &[of("a.seg.png", 60)], &b, &[of("d/c.jpg", 60)]].concat());
}

#[test]
fn a_shard_is_full_with_the_record_that_reaches_the_size_and_the_last_is_smaller() {
    let plan = planned(&spec("o-{0..9}", 121), TWO).unwrap();
    let bytes: Vec<u64> = plan.shards().map(|s| s.bytes).collect();
    assert_eq!(bytes, [180, 121]);
    assert_eq!(plan.totals.records, 4);
    assert_eq!((plan.totals.members, plan.totals.bytes, plan.totals.inputs), (6, 301, 2));
}

#[test]
fn without_a_size_the_names_of_the_template_share_the_bytes() {
    let plan = planned(&spec("o-{0..1}", 0), TWO).unwrap();
    assert_eq!(plan.len(), 2);
}

#[test]
fn each_algorithm_has_its_order() {
    let shards: Shards<'_> =
        &[("in-0.tar", &[("b", 1), ("a", 1), ("c", 1)]), ("in-1.tar", &[("a", 1)])];
    let order = |algorithm: Algorithm, decreasing: bool| {
        let spec = DsortSpec { algorithm, decreasing, ..spec("o-%d", 100) };
        let plan = planned(&spec, shards).unwrap();
        let at = |m: PlannedMember<'_>| format!("{}{}", m.name, &m.source[3..4]);
        plan.members(0).map(at).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order(Algorithm::Alphanumeric, false), "a0 a1 b0 c0");
    assert_eq!(order(Algorithm::Alphanumeric, true), "c0 b0 a0 a1");
    assert_eq!(order(Algorithm::None, false), "b0 a0 c0 a1");
    // md5sum: a is 0cc1…, b is 92eb…, c is 4a8a….
    assert_eq!(order(Algorithm::Md5, false), "a0 a1 c0 b0");
    assert_eq!(order(Algorithm::Md5, true), "b0 c0 a0 a1");
}

#[test]
fn a_shuffle_is_fixed_by_its_seed_alone() {
    let names: Vec<String> = (0..100).map(|i| format!("{i:03}")).collect();
    let members: Vec<(&str, u64)> = names.iter().map(|n| (n.as_str(), 1)).collect();
    let order = |seed| {
        let spec = DsortSpec { algorithm: Algorithm::Shuffle { seed }, ..spec("o-%d", 1000) };
        let plan = planned(&spec, &[("in-0.tar", &members)]).unwrap();
        plan.members(0).map(|m| m.name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    assert_ne!(order(1), names);
    // Golden values: another order would break the repeatability of jobs.
    assert_eq!(order(7)[..4], ["067", "027", "071", "029"]);
}

#[test]
fn an_order_by_content_reads_the_key_of_each_record() {
    let shards: Shards<'_> = &[(
        "in-0.tar",
        &[("x.jpg", 9), ("x.cls", 2), ("y.cls", 1), ("y.jpg", 9), ("z.cls", 2), ("z.jpg", 9)],
    )];
    let sorted = |kind, keys: [&str; 3], decreasing| {
        let algorithm = Algorithm::Content { ext: ".cls".into(), kind };
        let spec = DsortSpec { algorithm, decreasing, ..spec("o-%d", 1000) };
        let mut records = records(shards);
        records.check_keys(".cls").unwrap();
        assert_eq!(records.key_member(1, ".cls"), Some(("y.cls", 1)));
        for key in keys {
            records.push_key(kind, key.as_bytes())?;
        }
        let plan = plan(&spec, None, records, Inputs::default(), Vec::new())?;
        let firsts = plan.records(0).map(|(key, _)| key.to_owned());
        Ok::<_, Error>(firsts.collect::<Vec<_>>().concat())
    };
    assert_eq!(sorted(ContentType::Int, ["10", "9", "-1\n"], false).unwrap(), "zyx");
    assert_eq!(sorted(ContentType::Int, ["10", "9", "-1"], true).unwrap(), "xyz");
    assert_eq!(sorted(ContentType::Float, ["1e3", "2.5", "10"], false).unwrap(), "yzx");
    assert_eq!(sorted(ContentType::String, ["10", "9", "-1"], false).unwrap(), "zxy");
    // Equal keys: by name.
    assert_eq!(sorted(ContentType::Int, ["1", "1", "1"], true).unwrap(), "xyz");
    for (kind, bad) in [(ContentType::Int, "1.5"), (ContentType::Float, "NaN")] {
        let error = sorted(kind, ["1", bad, "2"], false).unwrap_err();
        assert!(error.message.contains("\"y\" in in-0.tar"), "{error}");
    }
    let error = records(shards).check_keys(".txt").unwrap_err();
    assert!(error.message.contains("3 records") && error.message.contains("\"x\""), "{error}");
}

#[test]
fn duplicates_abort_warn_or_are_ignored_and_the_first_is_kept() {
    let twice = [member("a.jpg", 1), member("b.jpg", 2), member("a.jpg", 3)];
    let add = |reaction| {
        let (mut records, mut warnings) = (Records::default(), Vec::new());
        let added = records.add_shard("in.tar", &twice, reaction, &mut warnings)?;
        let sizes: Vec<u64> = (0..2).flat_map(|r| records.members(r)).map(|(_, n)| n).collect();
        Ok::<_, Error>((added.duplicates, sizes, warnings.len()))
    };
    assert_eq!(add(Reaction::Ignore).unwrap(), (1, vec![1, 2], 0));
    assert_eq!(add(Reaction::Warn).unwrap(), (1, vec![1, 2], 1));
    let error = add(Reaction::Abort).unwrap_err();
    assert!(error.message.contains("in.tar") && error.message.contains("a.jpg"), "{error}");
}

fn mapped(text: &str, missing: Reaction) -> Result<(Vec<String>, u64, Vec<String>), Error> {
    let mut notes = Vec::new();
    let map = KeyMap::parse(text, "\t", Reaction::Abort, &mut notes)?;
    let mut spec = spec("", 1000);
    spec.key_map = Some(KeyMapSource::text(text, ""));
    spec.on.ekm_missing_key = missing;
    let plan = plan(&spec, Some(&map), records(TWO), Inputs::default(), notes)?;
    Ok((shown(&plan), plan.totals.unmapped_records, plan.notes))
}

#[test]
fn a_key_map_gives_each_record_its_template() {
    let expected = ["x-0.tar: a.jpg a.jpg a.seg.png", "y-00.tar: b.jpg b.cls d/c.jpg"];
    let lines = "a\tx-%d\nb.cls\ty-{00..09}.tar\n\nc.jpg\ty-{00..09}.tar\n";
    assert_eq!(mapped(lines, Reaction::Abort).unwrap().0, expected);
    let json = r#"{"x-%d": ["^a[.]"], "y-{00..09}.tar": ["b", "/c"]}"#;
    assert_eq!(mapped(json, Reaction::Abort).unwrap().0, expected);
    // A key that equals a name takes precedence over a matching pattern.
    let both = r#"{"x-%d": "[a-c]", "y-@09": ["b.jpg"]}"#;
    assert_eq!(mapped(both, Reaction::Abort).unwrap().0[1], "y-00.tar: b.jpg b.cls");
}

#[test]
fn records_missing_in_a_key_map_abort_warn_or_are_left_out() {
    let part = "a\tx-%d";
    let (shards, left_out, notes) = mapped(part, Reaction::Ignore).unwrap();
    assert_eq!((shards.len(), left_out, notes.len()), (1, 2, 1));
    assert_eq!(mapped(part, Reaction::Warn).unwrap().2.len(), 3);
    let error = mapped(part, Reaction::Abort).unwrap_err();
    assert!(error.message.contains("\"b\" of in-0.tar"), "{error}");
    let none = mapped("nobody\tx-%d", Reaction::Ignore).unwrap_err();
    assert_eq!(none.code, ErrorCode::Unprocessable);
}

#[test]
fn malformed_lines_abort_warn_or_are_ignored() {
    let text = "a\tx-%d\nno separator\nb\tx-%d\tmore\n";
    let read = |reaction| {
        let mut warnings = Vec::new();
        KeyMap::parse(text, "\t", reaction, &mut warnings).map(|_| warnings)
    };
    assert_eq!(read(Reaction::Ignore).unwrap(), [""; 0]);
    assert_eq!(read(Reaction::Warn).unwrap().len(), 2);
    let error = read(Reaction::Abort).err().unwrap();
    assert!(error.message.contains("line 2"), "{error}");
    let bad = |text: &str| {
        KeyMap::parse(text, " ", Reaction::Ignore, &mut Vec::new()).err().map(|e| e.message)
    };
    assert!(bad("a shard").unwrap().contains("no place for a number"));
    assert!(bad("a( x-%d").unwrap().contains("regular expression"));
    assert!(bad("{\"x\": 7}").unwrap().contains("cannot be read"));
    assert!(bad("").unwrap().contains("no keys"));
}

#[test]
fn too_few_names_are_refused_with_how_many_are_needed() {
    let error = planned(&spec("o-{0..2}", 1), TWO).err().unwrap();
    assert!(error.message.contains("3 names") && error.message.contains("4 shards"), "{error}");
}

#[test]
fn outputs_never_take_the_place_of_inputs_unless_that_is_wanted() {
    let mut spec = spec("in-{0..9}", 1000);
    assert!(planned(&spec, TWO).is_ok(), "another bucket");
    spec.destination = spec.source.clone();
    assert_eq!(planned(&spec, TWO).err().unwrap().code, ErrorCode::Conflict);
    spec.overwrite = Overwrite::Always;
    let plan = planned(&spec, TWO).unwrap();
    spec.overwrite = Overwrite::Never;
    assert!(plan.refuse(&spec, &plan.outputs(), "in-0.tar").is_err());
    assert!(plan.refuse(&spec, &plan.outputs(), "in-1.tar").is_ok());
    spec.template = "new-{0..9}".into();
    assert!(planned(&spec, TWO).is_ok(), "names that cannot collide");
}

#[test]
fn the_output_has_the_extension_asked_for_else_that_of_the_input() {
    let name = |output: &str, template: &str, input: &str| {
        let mut spec = spec(template, 1000);
        (spec.output_ext, spec.input_ext) = (output.into(), String::new());
        let shards: Shards<'_> = &[(input, &[("a", 1)])];
        planned(&spec, shards).map(|p| p.shard(0).name.to_owned()).map_err(|e| e.message)
    };
    assert_eq!(name(".zip", "o-%d", "i.tar").unwrap(), "o-0.zip");
    assert_eq!(name("", "o-%d", "i.tgz").unwrap(), "o-0.tgz");
    assert_eq!(name("", "o-%d.tar.lz4", "i.tgz").unwrap(), "o-0.tar.lz4");
    assert!(name(".zip", "o-%d.tar", "i.tgz").is_err());
}

#[test]
fn compressed_output_is_cut_by_what_compressing_saved_of_the_input() {
    let mut spec = spec("o-%d", 100);
    spec.output_ext = ".tgz".into();
    let inputs = Inputs { packed_bytes: 50, unpacked_bytes: 100, ..Inputs::default() };
    let shards: Shards<'_> = &[("i.tgz", &[("a", 100), ("b", 100), ("c", 100)])];
    let plan = plan(&spec, None, records(shards), inputs, Vec::new()).unwrap();
    assert_eq!(plan.shards().map(|s| s.bytes).collect::<Vec<_>>(), [200, 100]);
}

#[test]
fn nothing_to_sort_is_an_error() {
    assert_eq!(planned(&spec("o-%d", 1), &[]).err().unwrap().code, ErrorCode::ObjectNotFound);
}

#[test]
fn memory_is_a_few_bytes_a_record_and_bounded() {
    let members: Vec<_> = (0..100_000).map(|i| member(&format!("{i:06}.jpg"), 1)).collect();
    let mut records = Records::default();
    records.add_shard("in.tar", &members, Reaction::Abort, &mut Vec::new()).unwrap();
    assert_eq!(records.memory() / 100_000, 16 + 24 + 10);
    let mut spec = spec("o-%d", 1);
    spec.memory = Memory::Bytes(64 << 20);
    assert!(records.check_memory(&spec, 1 << 40).is_ok());
    spec.memory = Memory::Bytes(1 << 20);
    let error = records.check_memory(&spec, 1 << 40).unwrap_err();
    assert!(error.message.contains("max_mem_usage"), "{error}");
}
