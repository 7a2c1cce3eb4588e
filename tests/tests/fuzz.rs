//! Fuzz tests of every parser of client bytes: no panic, no endless work, and the same result
//! however the bytes are split.
//!
//! `FOREBAY_FUZZ_SECONDS` is the time of each test (0.1 s if unset), `FOREBAY_FUZZ_SEED` the seed
//! of its input. `make fuzz` runs them for longer.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, VecDeque};
use std::io::{Cursor, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_archive::{Limits, ReadAt, ShardIndex, TarIndexer, read_index};
use forebay_core::batch::BatchRequest;
use forebay_core::batch_stream::{Decoder, Encoder, Row};
use forebay_core::intra::ListPage;
use forebay_core::list_page::Detail;
use forebay_core::object::{ListEntry, RowKind};
use forebay_core::shard::ArchiveFormat;
use forebay_s3::auth::{SecretKey, authenticate};
use forebay_s3::chunked::{self, Framing};
use forebay_s3::form::FormDecoder;
use forebay_s3::{Element, Front, Request, RequestHead, token};
use forebay_v1::action::{ActionMsg, selection};
use forebay_v1::batch::MossRequest;
use forebay_v1::list::{Entry, ListMsg, Page};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Time limit for one input, on a busy machine.
const TIME_OF_ONE: Duration = Duration::from_secs(5);
/// Maximum bytes of an input.
const MAX_INPUT: usize = 64 << 10;

/// A seeded random number generator (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Splits bytes into pieces of random lengths.
    fn pieces<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let longest = *self.of(&[1, 7, 600, 70_000]);
            let (piece, rest) = bytes.split_at((1 + self.below(longest)).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// Edge values for parsers, as bytes and as text.
const EDGES: [&[u8]; 14] = [
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\x00",
    b"\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"0",
    b"-1",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"777777777777",
    b"\r\n",
    b"\xc3\x28",
    b"%00%ff..//",
];

fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.of(seeds).clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len() + 1);
        let len = (1 + random.below(16)).min(bytes.len() - at);
        match random.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.next() as u8,
            2 => drop(bytes.drain(at..at + len)),
            3 => bytes.truncate(at),
            4 => {
                let again = bytes[at..at + len].repeat(1 + random.below(40));
                bytes.splice(at..at, again);
            }
            5 => drop(bytes.splice(at..at + len, random.of(&EDGES).iter().copied())),
            6 => drop(bytes.splice(at..at, random.of(&EDGES).iter().copied())),
            7 => {
                let other = random.of(seeds);
                let from = random.below(other.len() + 1);
                let part = other[from..].iter().take(1 + random.below(600)).copied();
                drop(bytes.splice(at..at, part));
            }
            _ => {
                let tail = bytes.split_off(at);
                bytes = [tail, bytes].concat();
            }
        }
        bytes.truncate(MAX_INPUT);
    }
    bytes
}

/// Runs `parse` over seeds and mutations of them, until the time is over.
fn fuzz(name: &str, seeds: &[Vec<u8>], parse: impl Fn(&[u8], &mut Random)) {
    let seconds = std::env::var("FOREBAY_FUZZ_SECONDS").ok();
    let seconds: f64 = seconds.map_or(0.1, |text| text.parse().unwrap());
    let seed = std::env::var("FOREBAY_FUZZ_SEED").ok();
    let seed: u64 = seed.map_or(1, |text| text.parse().unwrap());
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (started, mut inputs) = (Instant::now(), 0u64);
    while inputs < 64 || started.elapsed().as_secs_f64() < seconds {
        let input = match seeds.get(inputs as usize) {
            Some(seed) => seed.clone(),
            None => mutate(&mut random, seeds),
        };
        let mut timed = || {
            let started = Instant::now();
            let done = catch_unwind(AssertUnwindSafe(|| parse(&input, &mut random)));
            (done.is_ok(), started.elapsed())
        };
        let (mut done, mut took) = timed();
        // A busy machine may have paused this process for that long, but hardly twice.
        if done && took > TIME_OF_ONE {
            (done, took) = timed();
        }
        if !done || took > TIME_OF_ONE {
            let file = std::env::temp_dir().join(format!("forebay-fuzz-{name}-{seed}-{inputs}"));
            std::fs::write(&file, &input).unwrap();
            panic!(
                "{name}: input {inputs} of seed {seed} fails after {took:?}: {}",
                file.display()
            );
        }
        inputs += 1;
    }
    println!("{name}: {inputs} inputs");
}

fn limits() -> Limits {
    Limits { unpacked: 64 << 20, grace: 1 << 20, ..Limits::default() }
}

fn members(index: ShardIndex) -> Vec<(String, u64, u64)> {
    index.members.into_iter().map(|m| (m.name, m.offset, m.size)).collect()
}

fn tar_seeds() -> Vec<Vec<u8>> {
    let long = "d/".repeat(80) + "name";
    let mut gnu = tar::Builder::new(Vec::new());
    for (name, len) in [("a.txt", 5), ("b/c.jpg", 513), ("empty", 0), (long.as_str(), 700)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(len);
        header.set_mode(0o644);
        gnu.append_data(&mut header, name, &vec![b'x'; len as usize][..]).unwrap();
    }
    let mut pax = tar::Builder::new(Vec::new());
    pax.append_pax_extensions([("mtime", b"1700000000.5".as_slice()), ("path", long.as_bytes())])
        .unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(9);
    header.set_cksum();
    pax.append(&header, &b"123456789"[..]).unwrap();
    let mut other = tar::Header::new_gnu();
    other.set_entry_type(tar::EntryType::Symlink);
    other.set_size(0);
    pax.append_link(&mut other, "link", "target").unwrap();
    vec![gnu.into_inner().unwrap(), pax.into_inner().unwrap()]
}

/// Repairs the checksum of each header, so that the rest of it is parsed.
fn repair_checksums(tar: &mut [u8]) {
    for block in tar.chunks_exact_mut(512).filter(|b| b[257..262] == *b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

fn parse_tar(bytes: &[u8], random: &mut Random) {
    let whole = read_index(ArchiveFormat::Tar, &bytes, &limits()).map(members);
    let mut indexer = TarIndexer::new(ArchiveFormat::Tar, limits());
    let fed = random.pieces(bytes).into_iter().try_for_each(|piece| indexer.feed(piece));
    let fed = fed.and_then(|()| indexer.finish()).map(members);
    match (whole, fed) {
        (Ok(whole), Ok(fed)) => assert_eq!(whole, fed),
        (whole, fed) => assert_eq!(whole.is_ok(), fed.is_ok(), "{whole:?} {fed:?}"),
    }
}

#[test]
fn fuzz_tar() {
    fuzz("tar", &tar_seeds(), |bytes, random| {
        parse_tar(bytes, random);
        let mut mended = bytes.to_vec();
        repair_checksums(&mut mended);
        parse_tar(&mended, random);
    });
}

#[test]
fn fuzz_pax() {
    let seeds = ["30 mtime=1350244992.023960108\n", "16 path=a b=c\n13 size=1000\n", "4 =\n"];
    let more = ["26 GNU.sparse.name=a/real\n", "20 SCHILY.xattr.a=\0\n", "9 size=5\n\0\0\0"];
    let seeds: Vec<_> = seeds.iter().chain(&more).map(|s| s.as_bytes().to_vec()).collect();
    fuzz("pax", &seeds, |records, random| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_size(records.len() as u64);
        header.set_cksum();
        let mut file = tar::Header::new_ustar();
        file.set_size(0);
        file.set_cksum();
        let mut bytes = [header.as_bytes(), records].concat();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes.extend_from_slice(file.as_bytes());
        bytes.resize(bytes.len() + 2048, 0);
        parse_tar(&bytes, random);
    });
}

fn zip_seeds() -> Vec<Vec<u8>> {
    let make = |method| {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        for (name, len) in [("a", 10), ("d/b", 3000), ("empty", 0)] {
            zip.start_file(name, options).unwrap();
            zip.write_all(&vec![b'z'; len]).unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    vec![make(zip::CompressionMethod::Stored), make(zip::CompressionMethod::Deflated)]
}

#[test]
fn fuzz_zip() {
    fuzz("zip", &zip_seeds(), |bytes, _| {
        let Ok(index) = read_index(ArchiveFormat::Zip, &bytes, &limits()) else { return };
        for member in index.members.iter().take(20) {
            let packed = index.packed(member).unwrap();
            let source: &dyn ReadAt = &bytes;
            let Ok(range) = forebay_archive::zip::data_range(source, member, &packed) else {
                continue;
            };
            let data = &bytes[range.start as usize..range.end as usize];
            let Ok(read) = forebay_archive::zip::unpack(member, &packed, data) else {
                continue;
            };
            let mut all = Vec::new();
            if read.take(4 << 20).read_to_end(&mut all).is_ok() {
                assert!(all.len() as u64 <= member.size);
            }
        }
    });
}

#[test]
fn fuzz_packed() {
    let tar = &tar_seeds()[0];
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(tar).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(tar).unwrap();
    let zst = zstd::encode_all(&tar[..], 1).unwrap();
    let seeds = [gz.finish().unwrap(), lz4.finish().unwrap(), zst];
    fuzz("packed", &seeds, |bytes, _| {
        for format in [ArchiveFormat::TarGz, ArchiveFormat::TarLz4, ArchiveFormat::TarZst] {
            let _ = read_index(format, &bytes, &limits());
        }
        let _ = ShardIndex::decode(bytes);
    });
}

#[test]
fn fuzz_msgpack() {
    let entry = |n: usize| Entry { name: format!("n{n}"), size: n as u64, ..Entry::default() };
    let page = Page { entries: (0..20).map(entry).collect(), ..Page::default() };
    let row = |n: usize| ListEntry {
        name: format!("a/{n}"),
        kind: RowKind::Object,
        ..ListEntry::default()
    };
    let list = ListPage { entries: (0..20).map(row).collect(), more: true };
    let mut seeds = vec![page.to_msgpack()];
    seeds.extend([Detail::All, Detail::Size].map(|detail| list.encode(detail).unwrap()));
    // Wrong lengths, and depth.
    seeds.extend([vec![0xdd, 0xff, 0xff, 0xff, 0xff], vec![0xdb, 0xff, 0xff, 0xff, 0xff, b'x']]);
    seeds.push(vec![0x91; 60_000]);
    fuzz("msgpack", &seeds, |bytes, _| {
        let _ = Page::from_msgpack(bytes);
        let _ = ListPage::decode(bytes, Detail::All);
        let _ = ListPage::decode(bytes, Detail::Size);
    });
}

#[test]
fn fuzz_json() {
    let seeds = [
        r#"{"action":"delete-listrange","value":{"objnames":["a","b/c"]}}"#,
        r#"{"action":"list","value":{"prefix":"a","props":"name,size","pagesize":"10"}}"#,
        r#"{"action":"x","value":{"template":"shard-{0000..0099..3}.tar","prefix":"é"}}"#,
        r#"{"buckets":[{"name":"b"}],"entries":[{"bucket":0,"name":"o","range":[1,2]}]}"#,
        r#"{"mime":".tar","in":[{"objname":"a","bucket":"b","archpath":"m"}],"strm":true}"#,
        r#"[[[[[[[[{"a":1e999}]]]]]]]]"#,
    ];
    let mut seeds: Vec<_> = seeds.iter().map(|s| s.as_bytes().to_vec()).collect();
    seeds.push(vec![b'['; 60_000]);
    fuzz("json", &seeds, |bytes, _| {
        if let Ok(message) = ActionMsg::parse(bytes) {
            let _ = selection(&message.value);
            let _ = ListMsg::from_value(&message.value);
        }
        if let Ok(moss) = MossRequest::parse(bytes) {
            let _ = (moss.format(), moss.resolve(None).map(|all| all.len()));
        }
        if let Ok(batch) = serde_json::from_slice::<BatchRequest>(bytes) {
            let _ = batch.check_size();
            batch.entries.iter().for_each(|entry| drop(entry.resolve(10)));
        }
    });
}

#[test]
fn fuzz_tokens() {
    let seeds: Vec<_> = ["", "a", "é/ü", "x\n"].iter().map(|t| token::encode(t)).collect();
    let seeds: Vec<_> = seeds.into_iter().map(String::into_bytes).collect();
    fuzz("tokens", &seeds, |bytes, _| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(last) = token::decode(&text)
            && !text.is_empty()
        {
            assert_eq!(token::decode(&token::encode(&last)).unwrap(), last);
        }
    });
}

#[test]
fn fuzz_sigv4() {
    const NOW: u64 = 1_369_353_600;
    let keys = BTreeMap::from([("key".to_owned(), SecretKey::new("secret"))]);
    let credential = "key/20130524/us-east-1/s3/aws4_request";
    let signed = format!(
        "authorization: AWS4-HMAC-SHA256 Credential={credential}, \
         SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={}\n\
         x-amz-date: 20130524T000000Z\nhost: h\nx-amz-content-sha256: UNSIGNED-PAYLOAD",
        "f".repeat(64)
    );
    let presigned = format!(
        "/s3/b/o?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date=\
         20130524T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=ff\nhost: h"
    );
    let seeds = [
        format!("/s3/b/a%20b?list-type=2&prefix=%C3%A9\n{signed}"),
        presigned,
        "/s3/b/o?AWSAccessKeyId=key&Signature=x&Expires=1369353700\nhost: b.s3.test".to_owned(),
        format!("/s3/b/o?partNumber=1&uploadId=x\nx-amz-copy-source: /b/o?versionId=1\n{signed}"),
        "/s3/b?delete\nauthorization: AWS key:signature\ndate: Fri, 24 May 2013 00:00:00 GMT"
            .into(),
    ];
    let seeds: Vec<_> = seeds.into_iter().map(String::into_bytes).collect();
    let front = Front::new("/s3", vec!["s3.test".into()]);
    fuzz("sigv4", &seeds, |bytes, random| {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split('\n');
        let target = lines.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")).take(64) {
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes()))
            {
                headers.append(name, value);
            }
        }
        let methods = [Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::HEAD];
        let method = random.of(&methods);
        let head = RequestHead { method, path, query, headers: &headers };
        let _ = authenticate(&head, &front, &keys, NOW);
        let _ = Request::parse(&head, &front);
    });
}

#[test]
fn fuzz_aws_chunked() {
    let seeds = [
        "5\r\nhello\r\n0\r\n\r\n",
        "3;chunk-signature=abc\r\nabc\r\n0;chunk-signature=def\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
        "a\r\n0123456789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:f\r\n\r\n",
        "ffffffffffffffff\r\n",
    ];
    let seeds: Vec<_> = seeds.iter().map(|s| s.as_bytes().to_vec()).collect();
    fuzz("aws_chunked", &seeds, |bytes, random| {
        for framing in [Framing::UnsignedTrailer, Framing::Open] {
            let decoded = |pieces: Vec<&[u8]>| {
                let mut decoder = chunked::Decoder::new(framing.clone(), None);
                let mut out = Vec::new();
                for piece in pieces {
                    decoder.push(Bytes::copy_from_slice(piece), &mut out).ok()?;
                }
                Some((out.concat(), decoder.finish().ok()?))
            };
            assert_eq!(decoded(vec![bytes]), decoded(random.pieces(bytes)));
        }
    });
}

#[test]
fn fuzz_batch_frames() {
    let mut encoder = Encoder::default();
    let mut stream = vec![Encoder::header(7)];
    for index in 0..5u32 {
        let payload = Bytes::from(vec![index as u8; 100 * index as usize]);
        let total = payload.len() as u64;
        encoder.push(Row { index, status: 0, more: false, total, payload });
    }
    stream.extend(encoder.flush());
    stream.push(encoder.end());
    let seeds = [stream.concat(), Encoder::header(1).to_vec()];
    fuzz("batch_frames", &seeds, |bytes, random| {
        let decoded = |decoder: Decoder, pieces: Vec<&[u8]>| {
            let (mut decoder, mut rows) = (decoder, VecDeque::new());
            for piece in pieces {
                decoder.decode(piece, &mut rows).ok()?;
            }
            let rows: Vec<_> = rows.into_iter().map(|row| (row.index, row.payload)).collect();
            Some((rows, decoder.is_complete()))
        };
        let whole = decoded(Decoder::new(), vec![bytes]);
        assert_eq!(whole, decoded(Decoder::new(), random.pieces(bytes)));
        let whole = decoded(Decoder::of_entries(None), vec![bytes]);
        assert_eq!(whole, decoded(Decoder::of_entries(None), random.pieces(bytes)));
    });
}

#[test]
fn fuzz_forms() {
    let part = |name: &str, value: &str| {
        format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file = part("file\"; filename=\"f", "bytes of a file");
    let whole = part("key", "k") + &part("policy", "e30=") + &file + "--B--\r\n";
    let seeds = [whole.into_bytes(), (part("key", "\r\n--B") + "--B--").into_bytes()];
    fuzz("forms", &seeds, |bytes, random| {
        let decoded = |pieces: Vec<&[u8]>| {
            let mut form = FormDecoder::new("multipart/form-data; boundary=B").ok()?;
            let mut file = Vec::new();
            for piece in pieces {
                form.push(Bytes::copy_from_slice(piece), &mut file).ok()?;
            }
            let fields = format!("{:?}", form.fields());
            form.finish().ok()?;
            Some((fields, file.concat()))
        };
        assert_eq!(decoded(vec![bytes]), decoded(random.pieces(bytes)));
    });
}

#[test]
fn fuzz_xml() {
    let seeds = [
        "<Delete><Object><Key>a&amp;b</Key></Object><Quiet>true</Quiet></Delete>",
        "<?xml version=\"1.0\"?><s:Delete xmlns:s='x' a='1' b='2'><![CDATA[<x>]]></s:Delete>",
        "<Delete><!-- c -->&#x20;</Delete>",
    ];
    let seeds: Vec<_> = seeds.iter().map(|s| s.as_bytes().to_vec()).collect();
    fuzz("xml", &seeds, |bytes, _| drop(Element::parse(bytes, "Delete")));
}
