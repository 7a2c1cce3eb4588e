//! Sorting shards: what is planned is what is written, all of it at once or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use forebay_client::Client;
use forebay_core::dsort::{Algorithm, DsortSpec, InputFormat, Overwrite, Reaction};
use forebay_core::job::{JobState, JobStatus};
use forebay_core::{ErrorCode, placement};
use forebay_tests::cluster::{command, native};
use forebay_tests::data::content;
use forebay_tests::{Cluster, Options, http, wait};
use forebay_v1::dsort::request_json;
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(120);
const FORMATS: [&str; 5] = [".tar", ".tgz", ".tar.lz4", ".tar.zst", ".zip"];

type Members = Vec<(String, Vec<u8>)>;
/// Time and mode of a member.
type Stat = (u64, u32);

/// 2020-01-01, the earliest time of members,
const YEAR: u64 = 1_577_836_800;
/// and the length of their range: one month.
const MONTH: u64 = 31 * 86_400;

/// Time and mode of a member, which differ for each; the time is odd if the format stores single
/// seconds.
fn stat(ext: &str, name: &str) -> Stat {
    let seed = name.bytes().fold(7u64, |all, b| all.wrapping_mul(31).wrapping_add(u64::from(b)));
    let odd = u64::from(ext != ".zip" || has_timestamp(name));
    (YEAR + seed % MONTH / 2 * 2 + odd, 0o400 + (seed % 0o400) as u32)
}

/// Whether a zip archive has the member's time also in an extra field, beside the DOS time.
fn has_timestamp(name: &str) -> bool {
    name.ends_with(".cls")
}

/// The time of DOS, which in these archives is of January 2020.
fn dos(mtime: u64) -> zip::DateTime {
    let (day, s) = ((mtime - YEAR) / 86_400 + 1, mtime % 86_400);
    let [day, hour, minute, second] = [day, s / 3600, s / 60 % 60, s % 60].map(|n| n as u8);
    zip::DateTime::from_date_and_time(2020, 1, day, hour, minute, second).unwrap()
}

fn of_dos(time: zip::DateTime) -> u64 {
    assert_eq!((time.year(), time.month()), (2020, 1));
    let [day, hour, minute, second] =
        [time.day(), time.hour(), time.minute(), time.second()].map(u64::from);
    YEAR + (day - 1) * 86_400 + hour * 3600 + minute * 60 + second
}

/// An archive, written by other people's writers.
fn archive(ext: &str, members: &Members) -> Vec<u8> {
    if ext == ".zip" {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, data) in members {
            let (mtime, mode) = stat(ext, name);
            let mut options = zip::write::FullFileOptions::default().unix_permissions(mode);
            if has_timestamp(name) {
                // The DOS time is in another time zone.
                let other = if mtime < YEAR + 3600 { mtime + 3600 } else { mtime - 3600 };
                options = options.last_modified_time(dos(other));
                let field = [&[1][..], &(mtime as i32).to_le_bytes()].concat();
                options.add_extra_field(0x5455, field, false).unwrap();
            } else {
                options = options.last_modified_time(dos(mtime));
            }
            zip.start_file(name, options).unwrap();
            zip.write_all(data).unwrap();
        }
        return zip.finish().unwrap().into_inner();
    }
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        let (mtime, mode) = stat(ext, name);
        header.set_mode(mode);
        header.set_mtime(mtime);
        tar.append_data(&mut header, name, &data[..]).unwrap();
    }
    let plain = tar.into_inner().unwrap();
    match ext {
        ".tgz" => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&plain).unwrap();
            gzip.finish().unwrap()
        }
        ".tar.lz4" => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(&plain).unwrap();
            lz4.finish().unwrap()
        }
        ".tar.zst" => zstd::encode_all(&plain[..], 1).unwrap(),
        _ => plain,
    }
}

fn members(ext: &str, bytes: &[u8]) -> Members {
    entries(ext, bytes).into_iter().map(|(name, data, _)| (name, data)).collect()
}

/// An archive, read by other people's readers.
fn entries(ext: &str, bytes: &[u8]) -> Vec<(String, Vec<u8>, Stat)> {
    let mut plain = Vec::new();
    match ext {
        ".zip" => {
            let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
            let read = |i| {
                let (mut data, mut file) = (Vec::new(), zip.by_index(i).unwrap());
                file.read_to_end(&mut data).unwrap();
                let exact = file.extra_data_fields().find_map(|field| match field {
                    zip::ExtraField::ExtendedTimestamp(times) => times.mod_time(),
                    _ => None,
                });
                let dos = || of_dos(file.last_modified().unwrap());
                let stat = (exact.map_or_else(dos, u64::from), file.unix_mode().unwrap() & 0o7777);
                (file.name().unwrap().into_owned(), data, stat)
            };
            return (0..zip::ZipArchive::new(Cursor::new(bytes)).unwrap().len())
                .map(read)
                .collect();
        }
        ".tgz" => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        }
        ".tar.lz4" => {
            lz4_flex::frame::FrameDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        }
        ".tar.zst" => plain = zstd::decode_all(bytes).unwrap(),
        _ => plain = bytes.to_vec(),
    }
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let (mut data, mut entry) = (Vec::new(), entry.unwrap());
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        entry.read_to_end(&mut data).unwrap();
        let stat = (entry.header().mtime().unwrap(), entry.header().mode().unwrap());
        (name, data, stat)
    };
    tar::Archive::new(&plain[..]).entries().unwrap().map(read).collect()
}

/// Shard `i` of the input: records of two members and a key, in no order, of a few sizes.
fn input(i: usize) -> Members {
    let key = |n: usize| format!("r{:02}", (n * 7 + i * 3) % 20);
    (0..10)
        .flat_map(|n| {
            let key = key(n);
            let size = if n == 4 { 1_500_000 } else { 700 * (n + 1) };
            [
                (format!("d/{key}.jpg"), content(&format!("{i}/{key}.jpg"), size).to_vec()),
                (format!("d/{key}.cls"), ((n * 31 + i) % 17).to_string().into_bytes()),
            ]
        })
        .collect()
}

/// The same with names that are unique over all shards: some readers of zip return one of two equal
/// names.
fn distinct(i: usize) -> Members {
    let named = |(name, data): (String, Vec<u8>)| (name.replace("d/", &format!("{i}/")), data);
    input(i).into_iter().map(named).collect()
}

async fn put_inputs(client: &Client, bucket: &str, ext: &str, input: fn(usize) -> Members) {
    client.create_bucket(&native(bucket), None).await.unwrap();
    for i in 0..4 {
        let bytes = archive(ext, &input(i));
        client.put(&native(bucket), &format!("in-{i}{ext}"), bytes, None).await.unwrap();
    }
}

/// A cluster with four shards in `ais://in`, and an empty `ais://out`.
async fn with_shards(targets: u16) -> Cluster {
    let cluster = Cluster::start(Options { targets, ..Options::default() });
    let client = cluster.client();
    put_inputs(&client, "in", ".tar", input).await;
    client.create_bucket(&native("out"), None).await.unwrap();
    cluster
}

fn dsort(cluster: &Cluster, words: &[&str]) -> Output {
    let mut line = command([&["dsort"], words].concat());
    line.args(["--endpoint", &cluster.endpoint]);
    line.output().unwrap()
}

#[track_caller]
fn done(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said} {text}", output.status);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[track_caller]
fn refused(output: &Output, code: i32, word: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(word), "{said}");
}

async fn all_objects(client: &Client, bucket: &str) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for (name, _) in client.list_all(&native(bucket), "").await.unwrap() {
        let bytes = client.get_bytes(&native(bucket), &name, None).await.unwrap();
        all.insert(name, bytes.to_vec());
    }
    all
}

async fn start(client: &Client, spec: &DsortSpec) -> String {
    client.start_dsort(request_json(spec).to_string().into_bytes()).await.unwrap()
}

async fn over(client: &Client, id: &str) -> JobStatus {
    wait::until_async("the job is over", TIMEOUT, || async {
        client.job(id).await.unwrap().is_over()
    })
    .await;
    client.job(id).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_shows_what_a_run_writes_in_every_order() {
    let cluster = with_shards(3).await;
    let client = cluster.client();
    let of: BTreeMap<String, Members> = (0..4).map(|i| (format!("in-{i}.tar"), input(i))).collect();
    let orders = ["alpha", "alpha:dec", "none", "md5", "shuffle:7", "content:.cls:int:dec"];
    for (i, order) in orders.into_iter().enumerate() {
        let to = format!("ais://out/{i}-");
        let words = ["ais://in", &to, "--sort", order, "--size=100KB", "-o", "json"];
        let planned = done(&dsort(&cluster, &[&words[..], &["--dry-run"]].concat()));
        let ran = done(&dsort(&cluster, &[&words[..], &["--wait"]].concat()));
        assert_eq!((&ran["state"], &ran["errors"]), (&json!("done"), &json!(0)), "{ran}");
        assert_eq!((&ran["objects"], &ran["total_objects"]), (&json!(80), &json!(80)), "{ran}");
        let mut keys = Vec::new();
        for shard in planned.as_array().unwrap() {
            let name = shard["shard"].as_str().unwrap();
            let bytes = client.get_bytes(&native("out"), name, None).await.unwrap();
            assert!(bytes.len() as u64 >= shard["bytes"].as_u64().unwrap());
            let (want, got) = (shard["members"].as_array().unwrap(), members(".tar", &bytes));
            assert_eq!(got.len(), want.len(), "{name}");
            for (got, want) in got.iter().zip(want) {
                let source = &of[want["object"].as_str().unwrap()];
                assert_eq!(json!(got.0), want["name"]);
                assert!(source.contains(got), "{} is another's", got.0);
                keys.push((got.0.clone(), String::from_utf8_lossy(&got.1).into_owned()));
            }
        }
        // The key follows its image: records are whole.
        assert!(keys.chunks(2).all(|r| r[0].0.replace(".jpg", ".cls") == r[1].0), "{order}");
        let names: Vec<&str> = keys.iter().map(|k| k.0.as_str()).step_by(2).collect();
        match order {
            "alpha" => assert!(names.is_sorted()),
            "alpha:dec" => assert!(names.iter().rev().is_sorted()),
            "none" => assert_eq!(names[0], input(0)[0].0),
            "shuffle:7" => assert!(!names.is_sorted()),
            "content:.cls:int:dec" => {
                let numbers = keys.iter().skip(1).step_by(2).map(|k| k.1.parse::<u64>().unwrap());
                assert!(numbers.rev().is_sorted());
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shuffle_is_the_same_bytes_on_one_target_and_on_three() {
    let mut written = Vec::new();
    for targets in [1, 3] {
        let cluster = with_shards(targets).await;
        let client = cluster.client();
        for ext in [".tar", ".tgz", ".zip"] {
            let spec = DsortSpec {
                algorithm: Algorithm::Shuffle { seed: 42 },
                template: format!("o-%04d{ext}"),
                shard_bytes: 200_000,
                ..DsortSpec::new(native("in"), native("out"))
            };
            let status = over(&client, &start(&client, &spec).await).await;
            assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
        }
        written.push(all_objects(&client, "out").await);
    }
    assert!(written[0].len() > 6, "{:?}", written[0].keys());
    assert!(written[0] == written[1], "{:?} {:?}", written[0].keys(), written[1].keys());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_format_becomes_every_other_and_members_keep_names_bytes_times_and_modes() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let client = cluster.client();
    for from in FORMATS {
        let bucket = from.trim_start_matches('.').replace('.', "-");
        put_inputs(&client, &bucket, from, distinct).await;
        let summary = |(name, data): (String, Vec<u8>)| {
            let stat = stat(from, &name);
            (name, data, stat)
        };
        let all: BTreeSet<_> = (0..4).flat_map(distinct).map(summary).collect();
        let stats: BTreeSet<Stat> = all.iter().map(|(.., stat)| *stat).collect();
        assert!(stats.len() > all.len() / 2, "times and modes differ");
        for to in FORMATS {
            let out = format!("{bucket}-to-{}", to.trim_start_matches('.').replace('.', "-"));
            client.create_bucket(&native(&out), None).await.unwrap();
            let spec = DsortSpec {
                input: InputFormat::parse("in-{0..3}").unwrap(),
                input_ext: from.into(),
                output_ext: to.into(),
                template: "o-{0..99}".into(),
                algorithm: Algorithm::Shuffle { seed: 1 },
                shard_bytes: 500_000,
                ..DsortSpec::new(native(&bucket), native(&out))
            };
            let status = over(&client, &start(&client, &spec).await).await;
            assert_eq!(status.state, JobState::Done, "{from} {to}: {:?}", status.messages);
            let written = all_objects(&client, &out).await;
            assert!(written.len() > 2, "{from} {to}");
            let got: BTreeSet<_> = written.values().flat_map(|bytes| entries(to, bytes)).collect();
            let without = |all: &BTreeSet<(String, Vec<u8>, Stat)>| -> Vec<(String, Stat)> {
                all.iter().map(|(name, _, stat)| (name.clone(), *stat)).collect()
            };
            assert_eq!(without(&got), without(&all), "{from} {to}");
            assert!(got == all, "{from} {to}: other bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_refused_and_nothing_is_written() {
    let cluster = with_shards(3).await;
    let client = cluster.client();
    let twice = vec![("x.jpg".to_owned(), vec![1]), ("x.jpg".to_owned(), vec![2])];
    client.put(&native("in"), "twice.tar", archive(".tar", &twice), None).await.unwrap();
    client.put(&native("in"), "broken.tar", b"no archive".to_vec(), None).await.unwrap();
    let run = |words: &[&str]| dsort(&cluster, words);
    let few = ["ais://in/in-", "ais://out", "--size=1KB", "--template=o-{0..1}"];
    refused(&run(&few), 2, "has 2 names, 36 shards");
    refused(&run(&[&few[..], &["--dry-run"]].concat()), 2, "36 shards");
    refused(&run(&["ais://in/in-", "ais://out", "--template=shard"]), 2, "no place for a number");
    refused(&run(&["ais://in/none", "ais://out"]), 4, "no records");
    refused(&run(&["ais://nowhere", "ais://out"]), 4, "ais://nowhere");
    refused(&run(&["ais://in/in-", "ais://nowhere"]), 4, "ais://nowhere");
    refused(&run(&["ais://in/twice", "ais://out"]), 1, "two members named \"x.jpg\"");
    refused(&run(&["ais://in/broken", "ais://out"]), 2, "broken.tar");
    let missing = ["ais://in/in-{0..5}.tar", "ais://out", "--missing-shards=abort"];
    refused(&run(&missing), 4, "in-4.tar does not exist");
    refused(&run(&["ais://in/in-", "ais://out", "--sort=content:.txt:int"]), 1, "no member .txt");
    let map = ["ais://in/in-", "ais://out", "--ekm", r#"{"x-%d": "r0"}"#];
    refused(&run(&map), 1, "does not know record");
    refused(&run(&["ais://in/in-", "ais://out", "--sort=beta"]), 2, "beta");
    assert_eq!(client.list_all(&native("out"), "").await.unwrap(), []);

    // Existing objects are not overwritten, and input shards only with `--overwrite`.
    client.put(&native("out"), "shard-000000.tar", b"mine".to_vec(), None).await.unwrap();
    refused(&run(&["ais://in/in-", "ais://out"]), 6, "ais://out/shard-000000.tar exists already");
    let within = ["ais://in/in-", "ais://in", "--template=in-{0..9}"];
    refused(&run(&within), 6, "is one of the input shards");
    let mine = client.get_bytes(&native("out"), "shard-000000.tar", None).await.unwrap();
    assert_eq!(mine, "mine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_may_be_sorted_in_place_when_that_is_asked_for() {
    let cluster = with_shards(3).await;
    let client = cluster.client();
    let before: BTreeSet<_> = (0..4).flat_map(input).collect();
    let words = ["ais://in", "ais://in", "--template=in-{0..9}", "--overwrite=always"];
    let rest = ["--size=100KB", "--sort=shuffle:3", "--wait", "-o", "json"];
    done(&dsort(&cluster, &[&words[..], &rest].concat()));
    let after = all_objects(&client, "in").await;
    let got: BTreeSet<_> = after.values().flat_map(|bytes| members(".tar", bytes)).collect();
    assert!(got == before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_map_comes_from_a_file_or_from_an_object_by_its_url() {
    let cluster = with_shards(2).await;
    let client = cluster.client();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("map.txt");
    std::fs::write(&file, "d/r0 low-{0..9}\nd/r1 high-@9\nnonsense\n").unwrap();
    let map = file.to_str().unwrap();
    let words = ["ais://in", "ais://out", "--ekm", map, "--ekm-sep= ", "--size=1GiB"];
    let run = |more: &[&str]| dsort(&cluster, &[&words[..], more].concat());
    refused(&run(&[]), 2, "line 3 of the external key map");
    done(&run(&["--ekm-malformed-line=warn", "--wait", "-o", "json"]));
    let written = all_objects(&client, "out").await;
    let names: Vec<&str> = written.keys().map(String::as_str).collect();
    assert_eq!(names, ["high-0.tar", "low-0.tar"]);
    for (name, bytes) in &written {
        let prefix = if name.starts_with("low") { "d/r0" } else { "d/r1" };
        assert!(members(".tar", bytes).iter().all(|(m, _)| m.starts_with(prefix)), "{name}");
    }

    let json = r#"{"url-%d.tar": ["r0"]}"#;
    client.put(&native("in"), "map.json", json, None).await.unwrap();
    let spec = json!({
        "input_bck": {"name": "in"}, "output_bck": {"name": "out"}, "output_shard_size": "1GiB",
        "ekm_file": cluster.object_url("in", "map.json"), "ekm_missing_key": "warn",
    });
    let status = over(&client, &client.start_dsort(spec.to_string().into()).await.unwrap()).await;
    assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    assert!(status.notes.iter().any(|n| n.contains("does not know record")), "{:?}", status.notes);
    let by_url = client.get_bytes(&native("out"), "url-0.tar", None).await.unwrap();
    assert_eq!(by_url, written["low-0.tar"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_and_missing_shards_are_reported_or_ignored() {
    let cluster = with_shards(2).await;
    let client = cluster.client();
    let twice = vec![("x.jpg".to_owned(), vec![1]), ("x.jpg".to_owned(), vec![2])];
    client.put(&native("in"), "in-4.tar", archive(".tar", &twice), None).await.unwrap();
    for (reaction, notes) in [(Reaction::Ignore, 2), (Reaction::Warn, 5)] {
        let mut spec = DsortSpec {
            input: InputFormat::parse("in-{0..6}").unwrap(),
            input_ext: ".tar".into(),
            template: "o-%d".into(),
            shard_bytes: 1 << 30,
            ..DsortSpec::new(native("in"), native("out"))
        };
        (spec.on.duplicated_records, spec.on.missing_shards) = (reaction, reaction);
        let status = over(&client, &start(&client, &spec).await).await;
        assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
        // Counts of both, each of the three in words, and what was written.
        assert_eq!(status.notes.len(), notes + 1, "{:?}", status.notes);
        let bytes = client.get_bytes(&native("out"), "o-0.tar", None).await.unwrap();
        let last = members(".tar", &bytes).pop().unwrap();
        assert_eq!(last, ("x.jpg".to_owned(), vec![1]), "the first of them");
    }
}

/// A source whose records fill many shards, for jobs that are disturbed.
async fn many(cluster: &Cluster) -> DsortSpec {
    let client = cluster.client();
    for bucket in ["many", "out"] {
        client.create_bucket(&native(bucket), None).await.unwrap();
    }
    for i in 0..10 {
        let member = |n| {
            let name = format!("{i}-{n:03}.bin");
            (name.clone(), content(&name, 200_000).to_vec())
        };
        let bytes = archive(".tar", &(0..30).map(member).collect());
        client.put(&native("many"), &format!("in-{i}.tar"), bytes, None).await.unwrap();
    }
    DsortSpec {
        template: "o-{000..999}".into(),
        shard_bytes: 1,
        algorithm: Algorithm::Shuffle { seed: 5 },
        overwrite: Overwrite::Never,
        ..DsortSpec::new(native("many"), native("out"))
    }
}

/// Temporary files of parts on any disk.
fn aside(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![(dir.to_owned(), false)]);
    while let Some((folder, within)) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let within = within || entry.file_name() == "uploads";
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push((entry.path(), within)),
                Ok(_) if within => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

async fn started(client: &Client, id: &str) {
    wait::until_async("some shards lie aside", TIMEOUT, || async {
        let job = client.job(id).await.unwrap();
        assert!(!job.is_over(), "{job:?}");
        job.dsort.is_some_and(|r| r.targets.values().map(|t| t.created).sum::<u64>() > 5)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_seen_of_a_job_before_all_is_written_nor_left_of_one_that_is_cancelled() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let spec = many(&cluster).await;
    let id = start(&client, &spec).await;
    started(&client, &id).await;
    assert_eq!(client.list_all(&native("out"), "").await.unwrap(), []);
    assert!(!aside(cluster.dir()).is_empty());
    client.stop_job(&id).await.unwrap();
    let status = over(&client, &id).await;
    assert_eq!((status.state, status.total_objects), (JobState::Stopped, 300));
    wait::until("what lay aside is gone", TIMEOUT, || aside(cluster.dir()).is_empty());
    assert_eq!(client.list_all(&native("out"), "").await.unwrap(), []);

    // The same job again writes all of them.
    let status = over(&client, &start(&client, &spec).await).await;
    assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    assert_eq!(client.list_all(&native("out"), "").await.unwrap().len(), 300);
    assert_eq!(aside(cluster.dir()), [] as [PathBuf; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_lost_for_a_while_costs_a_pause() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let spec = many(&cluster).await;
    let id = start(&client, &spec).await;
    started(&client, &id).await;
    let runs = runner(&cluster, &id);
    let other = cluster.targets.iter().find(|t| t.id != runs).unwrap();
    cluster.kill9(&other.id);
    cluster.restart(&other.id);
    let status = over(&client, &id).await;
    assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    let written = all_objects(&client, "out").await;
    let got: BTreeSet<String> =
        written.values().flat_map(|b| members(".tar", b)).map(|(name, _)| name).collect();
    assert_eq!((written.len(), got.len()), (300, 300));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_target_dies_fails_and_leaves_nothing() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let id = start(&client, &many(&cluster).await).await;
    started(&client, &id).await;
    let runs = runner(&cluster, &id);
    cluster.kill9(&runs);
    cluster.restart(&runs);
    let status = over(&client, &id).await;
    assert_eq!(status.state, JobState::Failed);
    assert!(status.messages[0].contains(&runs), "{:?}", status.messages);
    assert_eq!(client.list_all(&native("out"), "").await.unwrap(), []);
    wait::until("what lay aside is gone", TIMEOUT, || aside(cluster.dir()).is_empty());
}

/// The target that runs a job.
fn runner(cluster: &Cluster, id: &str) -> String {
    let map = cluster.map();
    let nodes = map.state.alive_targets();
    placement::highest(nodes, placement::digest(id)).unwrap().id.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v1_tells_what_each_target_did_and_forgets_a_job_when_asked() {
    let cluster = with_shards(3).await;
    let client = cluster.client();
    let url = |rest: &str| format!("{}/v1/sort{rest}", cluster.endpoint);
    let spec = json!({
        "input_bck": {"name": "in"}, "output_bck": {"name": "out"}, "output_format": "o-{0..99}",
        "output_shard_size": "100KB", "input_extension": ".tar", "description": "for a test",
    });
    let answer = http::request("POST", &url("")).json(&spec).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.text();
    assert_eq!(over(&client, &id).await.state, JobState::Done);
    let rows = http::get(&url(&format!("?uuid={id}"))).json();
    let rows = rows.as_object().unwrap();
    assert_eq!(rows.len(), 3);
    let total = |phase: &str, key: &str| -> u64 {
        let of = |row: &Value| row["Metrics"][phase][key].as_str().unwrap().parse::<u64>().unwrap();
        rows.values().map(of).sum()
    };
    assert_eq!(total("local_extraction", "extracted_count"), 4);
    assert_eq!(total("local_extraction", "extracted_record_count"), 40);
    let shards = client.list_all(&native("out"), "").await.unwrap().len() as u64;
    assert_eq!(total("shard_creation", "to_create"), shards);
    assert_eq!(total("shard_creation", "created_count"), shards);
    for row in rows.values() {
        for phase in ["local_extraction", "meta_sorting", "shard_creation"] {
            assert_eq!(row["Metrics"][phase]["finished"], true, "{row}");
        }
        assert_eq!((&row["aborted"], &row["archived"]), (&json!(false), &json!(true)));
    }
    let listed = |query: &str| http::get(&url(query)).json().as_array().unwrap().len();
    assert_eq!(listed(""), 1);
    assert_eq!((listed("?regex=test$"), listed("?regex=^test")), (1, 0));
    assert_eq!(listed("?only_active=true"), 0);
    // An abort after the end does nothing; an unknown id is not found.
    let delete = |rest: &str| http::request("DELETE", &url(rest)).send().status;
    assert_eq!(delete(&format!("/abort?uuid={id}")), 200);
    assert_eq!(delete("/abort?uuid=srt-nobody"), 404);
    assert_eq!(http::get(&url("?uuid=srt-nobody")).status, 404);
    assert_eq!(delete(&format!("?uuid={id}")), 200);
    assert_eq!((delete(&format!("?uuid={id}")), listed("")), (404, 0));
    assert_eq!(client.job(&id).await.unwrap_err().code(), ErrorCode::JobNotFound);
    let bad = json!({"input_bck": {"name": "in"}, "output_format": "o"});
    assert_eq!(http::request("POST", &url("")).json(&bad).send().status, 400);
}
