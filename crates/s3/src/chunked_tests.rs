//! Chunked bodies: AWS's examples split anywhere, and invalid bodies.

use proptest::prelude::*;

use super::super::auth::SecretKey;
use super::*;

const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

/// The signer of AWS's examples, after a request with this signature.
fn signer(seed: &str) -> ChunkSigner {
    let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    ChunkSigner {
        key: SigningKey::derive(&secret, "20130524", "us-east-1", "s3"),
        time: "20130524T000000Z".to_owned(),
        scope: SCOPE.to_owned(),
        previous: seed.to_owned(),
    }
}

fn signed() -> Framing {
    Framing::Signed(signer("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"))
}

/// The 66,560 bytes of AWS's example of signed chunks.
fn signed_body() -> Vec<u8> {
    let mut body = Vec::new();
    for (size, signature) in [
        (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ] {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend(std::iter::repeat_n(b'a', size));
        body.extend_from_slice(b"\r\n");
    }
    body
}

fn signed_trailer() -> Framing {
    Framing::SignedTrailer(signer(
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
    ))
}

/// The same bytes with a checksum in a signed trailer, as AWS's other example has them.
fn signed_trailer_body() -> Vec<u8> {
    let mut body = Vec::new();
    for (size, signature) in [
        (65536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"),
        (1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
        (0, "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"),
    ] {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend(std::iter::repeat_n(b'a', size));
        if size > 0 {
            body.extend_from_slice(b"\r\n");
        }
    }
    body.extend_from_slice(
        b"x-amz-checksum-crc32c:sOO8/Q==\n\r\nx-amz-trailer-signature:\
          d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
    );
    body
}

/// Decodes a body in pieces of these sizes; the last size repeats.
fn decode(
    framing: Framing,
    body: &[u8],
    length: Option<u64>,
    pieces: &[usize],
) -> S3Result<(Vec<u8>, Trailers)> {
    let mut decoder = Decoder::new(framing, length);
    let mut out = Vec::new();
    let mut rest = Bytes::copy_from_slice(body);
    let mut sizes = pieces.iter().chain(std::iter::repeat(pieces.last().unwrap()));
    while !rest.is_empty() {
        let size = (*sizes.next().unwrap()).clamp(1, rest.len());
        decoder.push(rest.split_to(size), &mut out)?;
    }
    let trailers = decoder.finish()?;
    Ok((out.concat(), trailers))
}

#[test]
fn the_signed_bodies_of_the_documents_are_decoded() {
    let (bytes, trailers) = decode(signed(), &signed_body(), Some(66_560), &[1 << 20]).unwrap();
    assert_eq!(bytes, vec![b'a'; 66_560]);
    assert!(trailers.is_empty());
    let (bytes, trailers) =
        decode(signed_trailer(), &signed_trailer_body(), Some(66_560), &[1 << 20]).unwrap();
    assert_eq!(bytes.len(), 66_560);
    assert_eq!(trailers, [("x-amz-checksum-crc32c".to_owned(), "sOO8/Q==".to_owned())]);
}

#[test]
fn an_unsigned_trailer_is_read_in_all_its_spellings() {
    for end in [
        "0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n",
        "0\r\nX-Amz-Checksum-CRC32: NhCmhg==\r\n",
        "0\nx-amz-checksum-crc32:NhCmhg==\n\n",
        "0\r\n\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n",
        "0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n\r\n",
    ] {
        let body = format!("5\r\nhello\r\n{end}");
        let (bytes, trailers) =
            decode(Framing::UnsignedTrailer, body.as_bytes(), Some(5), &[3]).unwrap();
        assert_eq!(bytes, b"hello");
        assert_eq!(trailers, [("x-amz-checksum-crc32".to_owned(), "NhCmhg==".to_owned())]);
    }
    let (bytes, trailers) = decode(Framing::UnsignedTrailer, b"0\r\n\r\n", Some(0), &[9]).unwrap();
    assert!(bytes.is_empty() && trailers.is_empty());
}

#[test]
fn where_nobody_signs_all_framings_are_read() {
    let (bytes, _) = decode(Framing::Open, &signed_body(), Some(66_560), &[1000]).unwrap();
    assert_eq!(bytes.len(), 66_560);
    let body = b"5;chunk-signature=00\r\nhello\r\n0;chunk-signature=00\r\n\
        x-amz-checksum-crc32:NhCmhg==\r\nx-amz-trailer-signature:00\r\n\r\n";
    let (bytes, trailers) = decode(Framing::Open, body, Some(5), &[4]).unwrap();
    assert_eq!((bytes.as_slice(), trailers.len()), (&b"hello"[..], 1));
}

#[test]
fn a_body_that_was_changed_is_refused() {
    let change = |at: usize, to: u8| {
        let mut body = signed_body();
        body[at] = to;
        decode(signed(), &body, Some(66_560), &[4096]).unwrap_err().code
    };
    assert_eq!(change(100, b'b'), S3Code::SignatureDoesNotMatch);
    assert_eq!(change(30, b'0'), S3Code::SignatureDoesNotMatch);
    assert_eq!(change(8, b'C'), S3Code::AccessDenied, "no signature that we know");
    let text = String::from_utf8(signed_trailer_body()).unwrap();
    let other = text.replace("sOO8/Q==", "sOO8/A==");
    let e = decode(signed_trailer(), other.as_bytes(), None, &[4096]).unwrap_err();
    assert_eq!(e.code, S3Code::SignatureDoesNotMatch);
    let without = &text[..text.find("x-amz-trailer-sig").unwrap()];
    assert!(decode(signed_trailer(), without.as_bytes(), None, &[4096]).is_err());
    let mut swapped = signed_body();
    swapped.drain(..65536 + 90);
    assert!(decode(signed(), &swapped, None, &[4096]).is_err(), "a chunk may not be left out");
}

#[test]
fn a_body_that_is_cut_or_of_another_length_is_incomplete() {
    let body = signed_body();
    for cut in [0, 1, 50, 70_000.min(body.len() - 90), body.len() - 86] {
        let e = decode(signed(), &body[..cut], Some(66_560), &[4096]).unwrap_err();
        assert_eq!(e.code, S3Code::IncompleteBody, "{cut}");
    }
    let e = decode(signed(), &body, Some(66_561), &[4096]).unwrap_err();
    assert_eq!(e.code, S3Code::IncompleteBody);
    let e = decode(signed(), &body, Some(66_559), &[4096]).unwrap_err();
    assert_eq!(e.code, S3Code::InvalidRequest);
}

#[test]
fn the_sum_of_the_lengths_of_chunks_does_not_wrap() {
    for size in ["fffffffffffffffb", "ffffffffffffffff"] {
        let body = format!("5\r\nhello\r\n{size}\r\nhello");
        let e = decode(Framing::UnsignedTrailer, body.as_bytes(), Some(5), &[4096]).unwrap_err();
        assert_eq!(e.code, S3Code::InvalidRequest, "{size}");
    }
}

#[test]
fn malformed_chunked_bodies_are_refused() {
    let long = "5;x=".to_owned() + &"y".repeat(2000);
    for bad in [
        "\r\n",
        "hello",
        "-5\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\n",
        "fffffffffffffffff\r\n",
        "5\r\nhelloo\r\n",
        "0\r\n\r\nx",
        "0\r\na:b\r\n\r\nx",
        "0\r\na:b\r\n\r\n\r\n\r\n\r\n",
        "0\r\nnot a trailer\r\n",
        &long,
    ] {
        assert!(decode(Framing::UnsignedTrailer, bad.as_bytes(), None, &[7]).is_err(), "{bad}");
    }
    let many = "0\r\n".to_owned() + &"a:b\r\n".repeat(10_000);
    let e = decode(Framing::UnsignedTrailer, many.as_bytes(), None, &[4096]).unwrap_err();
    assert_eq!(e.code, S3Code::MalformedTrailerError);
}

proptest! {
    #[test]
    fn it_does_not_matter_where_a_body_is_cut(pieces in prop::collection::vec(1usize..9000, 1..40)) {
        let (bytes, _) = decode(signed(), &signed_body(), Some(66_560), &pieces).unwrap();
        prop_assert_eq!(bytes.len(), 66_560);
        let decoded = decode(signed_trailer(), &signed_trailer_body(), Some(66_560), &pieces);
        prop_assert_eq!(decoded.unwrap().1.len(), 1);
    }

    #[test]
    fn any_bytes_come_out_as_they_went_in(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
        pieces in prop::collection::vec(1usize..50, 1..10),
    ) {
        let mut body = Vec::new();
        for chunk in &chunks {
            body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let wanted = chunks.concat();
        let length = Some(wanted.len() as u64);
        let (bytes, _) = decode(Framing::UnsignedTrailer, &body, length, &pieces).unwrap();
        prop_assert_eq!(bytes, wanted);
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        near in "[0-9a-f;=:\r\nx-]{0,80}",
    ) {
        for body in [bytes.as_slice(), near.as_bytes()] {
            let _ = decode(Framing::UnsignedTrailer, body, None, &[3]);
            let _ = decode(signed_trailer(), body, Some(7), &[5]);
        }
    }
}
