//! Parses heads of HTTP/1 requests as far as needed to find the end of a request, to refuse it, and
//! to decide whether the fast path may answer it (RFC 9112).

use httparse::{Error, Header, Request, Status};

/// Headers of a typical request.
pub(crate) const HEADERS: usize = 32;
/// Headers of a request or of an answer that is forwarded. An object may have 2 KB of metadata in
/// that many headers.
pub(crate) const MAX_HEADERS: usize = 512;
/// Largest head of a request, bytes.
pub(crate) const MAX_HEAD: usize = 64 << 10;

/// The first item in a buffer.
pub(crate) enum Next<'a, 'h> {
    /// A request whose end is known.
    Message(Message<'a, 'h>),
    /// A request that must not reach a handler, because parsers would disagree about it.
    Refused(Refused<'a>),
    /// An incomplete head.
    More,
    /// More headers than there is space for.
    Crowded,
    /// Not a request, or a request whose end cannot be determined.
    Unclear,
}

/// A request.
pub(crate) struct Message<'a, 'h> {
    /// Bytes of its head.
    pub(crate) head: usize,
    /// Bytes of its body; `None`: it is chunked.
    pub(crate) body: Option<u64>,
    pub(crate) kind: Kind<'a, 'h>,
}

/// A request that is refused because of its head.
pub(crate) struct Refused<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) why: Refusal,
}

impl Refused<'_> {
    /// An empty request in its place, after which the connection ends.
    pub(crate) fn stand_in(&self) -> String {
        let Self { method, target, .. } = self;
        format!("{method} {target} HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n")
    }
}

/// Why a request is refused before its body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Both `Content-Length` and `Transfer-Encoding`, or two of the first (RFC 9112, 6.3).
    Lengths,
    /// `Transfer-Encoding` other than `chunked` (RFC 9112, 6.1).
    Coding,
    /// HTTP/1.1 without `Host` or with two (RFC 9112, 3.2).
    Host,
}

/// How a request may be answered without `hyper`.
pub(crate) enum Kind<'a, 'h> {
    /// A GET without body that leaves the connection open.
    Get(RequestHead<'a, 'h>),
    /// A PUT with a body that leaves the connection open, without `Expect: 100-continue`.
    Put(RequestHead<'a, 'h>),
    Other,
}

/// The target and headers of a request, as sent.
pub struct RequestHead<'a, 'h> {
    /// Path and query.
    pub target: &'a str,
    headers: &'h [Header<'a>],
}

impl<'a> RequestHead<'a, '_> {
    /// Header names, in any case, and values.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + '_ {
        self.headers.iter().map(|header| (header.name, header.value))
    }
}

/// Parses the first item of `bytes`; `headers` is space for the headers of a request.
pub(crate) fn next<'a, 'h>(bytes: &'a [u8], headers: &'h mut [Header<'a>]) -> Next<'a, 'h> {
    if bytes.is_empty() {
        return Next::More;
    }
    let mut request = Request::new(headers);
    let head = match request.parse(bytes) {
        Ok(Status::Complete(head)) => head,
        Ok(Status::Partial) => return Next::More,
        Err(Error::TooManyHeaders) => return Next::Crowded,
        // `hyper` reports what is wrong.
        Err(_) => return Next::Unclear,
    };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Next::Unclear;
    };
    let headers: &[Header<'_>] = request.headers;
    // `hyper` drops a fragment from the target: an object of another name, which is left to it.
    let (mut length, mut stays) = (None, version == 1 && !target.contains('#'));
    let (mut lengths, mut codings, mut hosts, mut is_chunked) = (0, 0, 0, true);
    for header in headers {
        match header.name.len() {
            4 if header.name.eq_ignore_ascii_case("host") => hosts += 1,
            7 if header.name.eq_ignore_ascii_case("upgrade") => stays = false,
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                codings += 1;
                is_chunked &= header.value.eq_ignore_ascii_case(b"chunked");
            }
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                lengths += 1;
                let digits = header.value.iter().all(u8::is_ascii_digit);
                let value = std::str::from_utf8(header.value).ok().filter(|_| digits);
                length = value.and_then(|value| value.parse::<u64>().ok());
            }
            10 if header.name.eq_ignore_ascii_case("connection") => {
                stays &= header.value.eq_ignore_ascii_case(b"keep-alive");
            }
            6 if header.name.eq_ignore_ascii_case("expect") => stays = false,
            _ => {}
        }
    }
    let why = match (lengths, codings) {
        (0 | 1, 0) if version == 1 && hosts != 1 => Refusal::Host,
        (0, 0) => {
            return message(
                head,
                method,
                Some(0),
                stays.then_some(RequestHead { target, headers }),
            );
        }
        // An invalid length is left to `hyper`, which refuses the largest numbers, too.
        (1, 0) if length.is_none_or(|length| length > u64::MAX >> 1) => return Next::Unclear,
        (1, 0) => {
            return message(head, method, length, stays.then_some(RequestHead { target, headers }));
        }
        (0, _) if version != 1 => return Next::Unclear,
        (0, 1) if is_chunked && hosts == 1 => return message(head, method, None, None),
        (0, 1) if is_chunked => Refusal::Host,
        (0, _) => Refusal::Coding,
        _ => Refusal::Lengths,
    };
    Next::Refused(Refused { method, target, why })
}

/// Builds a request; `asked` is set if it leaves the connection open and waits for nothing.
fn message<'a, 'h>(
    head: usize,
    method: &str,
    body: Option<u64>,
    asked: Option<RequestHead<'a, 'h>>,
) -> Next<'a, 'h> {
    let kind = match (method, body, asked) {
        ("GET", Some(0), Some(asked)) => Kind::Get(asked),
        ("PUT", Some(1..), Some(asked)) => Kind::Put(asked),
        _ => Kind::Other,
    };
    Next::Message(Message { head, body, kind })
}

#[cfg(test)]
mod tests {
    use httparse::EMPTY_HEADER;

    use super::*;

    fn message(text: &str) -> Option<(usize, u64, bool)> {
        match next(text.as_bytes(), &mut [EMPTY_HEADER; HEADERS]) {
            Next::Message(m) => Some((m.head, m.body?, !matches!(m.kind, Kind::Other))),
            _ => None,
        }
    }

    #[test]
    fn a_get_is_taken_with_its_headers() {
        let text =
            "GET /v1/objects/b/o?x=1 HTTP/1.1\r\nHost: h\r\nConnection: Keep-Alive\r\n\r\nGET";
        let mut headers = [EMPTY_HEADER; HEADERS];
        let found = next(text.as_bytes(), &mut headers);
        let Next::Message(Message { head, body: Some(0), kind: Kind::Get(get) }) = found else {
            panic!("it is one");
        };
        assert_eq!((head, get.target), (text.len() - 3, "/v1/objects/b/o?x=1"));
        let headers: Vec<_> = get.headers().collect();
        assert_eq!(headers, [("Host", &b"h"[..]), ("Connection", b"Keep-Alive")]);
    }

    #[test]
    fn a_request_ends_with_its_body() {
        let head = "PUT /o HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n";
        assert_eq!(message(head), Some((head.len(), 10, true)));
        let head = "POST /o HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n";
        assert_eq!(message(head), Some((head.len(), 10, false)));
        let head = "PUT /o HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(message(head), Some((head.len(), 0, false)));
        let head = "GET /o HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(message(head), Some((head.len(), 0, true)));
        let head = "GET /o HTTP/1.1\r\nHost:\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(message(head), Some((head.len(), 3, false)));
    }

    #[test]
    fn what_leaves_the_connection_or_waits_is_left_to_hyper() {
        for line in [
            "Connection: close",
            "connection: upgrade",
            "Upgrade: websocket",
            "Expect: 100-continue",
        ] {
            let head = format!("GET /o HTTP/1.1\r\nHost: h\r\n{line}\r\n\r\n");
            assert_eq!(message(&head), Some((head.len(), 0, false)), "{line}");
            let head = format!("PUT /o HTTP/1.1\r\nhost: h\r\n{line}\r\nContent-Length: 9\r\n\r\n");
            assert_eq!(message(&head), Some((head.len(), 9, false)), "{line}");
        }
    }

    #[test]
    fn what_ends_nobody_knows_where_is_not_taken_apart() {
        for head in [
            "PUT /o HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\n",
            "PUT /o HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\n",
            "PUT /o HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "PUT /o HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\u{1}\u{2}\r\n\r\n",
            "GET /o HTTP/1.1\r\nno colon\r\n\r\n",
        ] {
            let mut headers = [EMPTY_HEADER; HEADERS];
            let found = next(head.as_bytes(), &mut headers);
            assert!(matches!(found, Next::Unclear), "{head}");
        }
        let many: String = (0..=HEADERS).map(|n| format!("h{n}: x\r\n")).collect();
        let head = format!("GET /o HTTP/1.1\r\nHost: h\r\n{many}\r\n");
        let mut headers = [EMPTY_HEADER; HEADERS];
        assert!(matches!(next(head.as_bytes(), &mut headers), Next::Crowded));
        let mut headers = [EMPTY_HEADER; 2 * HEADERS];
        assert!(matches!(next(head.as_bytes(), &mut headers), Next::Message(_)));
    }

    #[test]
    fn a_chunked_body_has_no_length_and_is_left_to_hyper() {
        let head = "PUT /o HTTP/1.1\r\nHost: h\r\ntransfer-encoding: Chunked\r\n\r\n";
        let mut headers = [EMPTY_HEADER; HEADERS];
        let found = next(head.as_bytes(), &mut headers);
        let Next::Message(Message { head: end, body: None, kind: Kind::Other }) = found else {
            panic!("it is one");
        };
        assert_eq!(end, head.len());
    }

    #[test]
    fn requests_about_which_readers_would_disagree_are_refused() {
        let (length, chunked) = ("Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n");
        let gzip = "Transfer-Encoding: gzip\r\n";
        for (version, lines, why) in [
            ("1.1", format!("Host: h\r\n{length}{chunked}"), Some(Refusal::Lengths)),
            ("1.1", format!("{chunked}Host: h\r\n{length}"), Some(Refusal::Lengths)),
            ("1.1", format!("Host: h\r\n{length}{length}"), Some(Refusal::Lengths)),
            ("1.1", format!("Host: h\r\n{gzip}{length}"), Some(Refusal::Lengths)),
            ("1.1", format!("Host: h\r\n{gzip}"), Some(Refusal::Coding)),
            ("1.1", format!("Host: h\r\n{gzip}{chunked}"), Some(Refusal::Coding)),
            ("1.1", format!("Host: h\r\n{chunked}{chunked}"), Some(Refusal::Coding)),
            (
                "1.1",
                "Host: h\r\nTransfer-Encoding: gzip, chunked\r\n".into(),
                Some(Refusal::Coding),
            ),
            ("1.1", "Host: h\r\nTransfer-Encoding:\r\n".into(), Some(Refusal::Coding)),
            ("1.1", String::new(), Some(Refusal::Host)),
            ("1.1", "Host: a\r\nhost: a\r\n".into(), Some(Refusal::Host)),
            ("1.1", length.into(), Some(Refusal::Host)),
            ("1.1", chunked.into(), Some(Refusal::Host)),
            ("1.0", format!("{length}{chunked}"), Some(Refusal::Lengths)),
            ("1.0", String::new(), None),
            ("1.0", length.into(), None),
        ] {
            let head = format!("PUT /o HTTP/{version}\r\n{lines}\r\n");
            let found = match next(head.as_bytes(), &mut [EMPTY_HEADER; HEADERS]) {
                Next::Refused(refused) => {
                    assert_eq!((refused.method, refused.target), ("PUT", "/o"));
                    Some(refused.why)
                }
                Next::Message(Message { kind: Kind::Other, .. }) => None,
                _ => panic!("{head}"),
            };
            assert_eq!(found, why, "{head}");
        }
    }

    /// Mutated heads; `FOREBAY_FUZZ_SECONDS` and `FOREBAY_FUZZ_SEED` as in the fuzz tests of `core`.
    #[test]
    fn fuzz_heads() {
        use rand::rngs::StdRng;
        use rand::{RngExt, SeedableRng};

        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let seconds: f64 = number("FOREBAY_FUZZ_SECONDS").unwrap_or(0.1);
        let seed = number("FOREBAY_FUZZ_SEED").unwrap_or(1.0) as u64;
        let mut random = StdRng::seed_from_u64(seed);
        let seeds = [
            "GET /v1/objects/b/o?x=1 HTTP/1.1\r\nHost: h\r\nConnection: Keep-Alive\r\n\r\n",
            "PUT /o HTTP/1.1\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n0123456789",
            "POST /o HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ];
        let edges =
            ["\r\n", "\n", ": ", "Content-Length: ", "\0", "HTTP/1.1", "18446744073709551616"];
        let started = std::time::Instant::now();
        for n in 0u64.. {
            if n > 100 && started.elapsed().as_secs_f64() > seconds {
                break;
            }
            let mut bytes = seeds[random.random_range(0..seeds.len())].as_bytes().to_vec();
            for _ in 0..random.random_range(0..5) {
                let at = random.random_range(0..=bytes.len());
                match random.random_range(0..4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, random.random()),
                    2 => drop(bytes.drain(at..(at + 3).min(bytes.len()))),
                    _ => {
                        let edge = edges[random.random_range(0..edges.len())].bytes();
                        drop(bytes.splice(at..at, edge));
                    }
                }
            }
            let found = |bytes: &[u8]| match next(bytes, &mut [EMPTY_HEADER; HEADERS]) {
                Next::Message(m) => Some(Some((m.head, m.body))),
                Next::Unclear | Next::Crowded | Next::Refused(_) => Some(None),
                Next::More => None,
            };
            let whole = found(&bytes);
            // The verdict on a prefix stays the same when more bytes arrive.
            for end in 0..bytes.len() {
                if let Some(part) = found(&bytes[..end]) {
                    assert_eq!(Some(part), whole, "seed {seed}, input {n}: {bytes:?}");
                    assert!(part.is_none_or(|(head, _)| head <= end));
                }
            }
        }
    }

    #[test]
    fn every_part_of_a_head_wants_more() {
        let head = "GET /v1/objects/b/o HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n";
        for end in 0..head.len() {
            let mut headers = [EMPTY_HEADER; HEADERS];
            let found = next(&head.as_bytes()[..end], &mut headers);
            assert!(matches!(found, Next::More), "{end}");
        }
    }
}
