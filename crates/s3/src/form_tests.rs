//! Forms of browsers and scripts, split anywhere.

use proptest::prelude::*;

use super::*;

const TYPE: &str = "multipart/form-data; boundary=\"xYz\"";

/// A form with fields before its file and one after it.
fn body(file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in [("kEy", "up/${filename}"), ("acl", "private"), ("empty", "")] {
        body.extend_from_slice(
            format!(
                "--xYz\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x\"\r\n\
                     Content-Type: text/plain\r\n\r\n{value}\r\n"
            )
            .as_bytes(),
        );
    }
    body.extend_from_slice(
        b"--xYz\r\ncontent-disposition:form-data;name=file;filename=\"a \\\"b;c=.txt\"\r\n\r\n",
    );
    body.extend_from_slice(file);
    body.extend_from_slice(
        b"\r\n--xYz\r\nContent-Disposition: form-data; name=\"submit\"\r\n\r\nx\r\n--xYz--\r\n",
    );
    body
}

fn decode(body: &[u8], piece: usize) -> S3Result<(FormFields, Option<String>, Vec<u8>)> {
    let mut form = FormDecoder::new(TYPE)?;
    let mut file = Vec::new();
    for piece in body.chunks(piece) {
        form.push(Bytes::copy_from_slice(piece), &mut file)?;
    }
    let (fields, name) = (form.fields().clone(), form.file_name().map(str::to_owned));
    form.finish()?;
    Ok((fields, name, file.concat()))
}

#[test]
fn fields_come_first_and_name_key_and_headers() {
    let (mut fields, name, file) = decode(&body(b"hello"), 7).unwrap();
    assert_eq!(file, b"hello");
    assert_eq!(fields.len(), 3, "what is behind the file is ignored");
    let form = PostForm::read(&mut fields, name.as_deref()).unwrap();
    assert_eq!(form.key, "up/a \"b;c=.txt");
    assert_eq!(fields["key"], form.key);
    assert_eq!(form.headers["x-amz-acl"], "private");
    assert_eq!((form.status, form.redirect), (204, None));
}

#[test]
fn a_redirect_tells_what_was_stored() {
    let mut fields = FormFields::from([
        ("key".to_owned(), "a b".to_owned()),
        ("success_action_redirect".to_owned(), "http://x/y".to_owned()),
    ]);
    let form = PostForm::read(&mut fields, None).unwrap();
    let url = form.redirect_url("b", "e1").unwrap();
    assert_eq!(url, "http://x/y?bucket=b&key=a%20b&etag=%22e1%22");
}

#[test]
fn a_form_is_an_upload_whatever_its_fields_are_named() {
    let names = [
        "x-amz-copy-source",
        "x-amz-content-sha256",
        "x-amz-trailer",
        "x-amz-date",
        "authorization",
        "if-match",
        "content-length",
    ];
    let mut fields: FormFields = names.iter().map(|n| ((*n).to_owned(), "x".to_owned())).collect();
    fields.insert("key".to_owned(), "k".to_owned());
    fields.insert("x-amz-meta-a".to_owned(), "1".to_owned());
    let form = PostForm::read(&mut fields, None).unwrap();
    let kept: Vec<&str> = form.headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(kept, ["x-amz-meta-a"]);
}

#[test]
fn what_is_no_form_is_refused() {
    for bad in ["", "text/plain", "multipart/form-data", "multipart/form-data; boundary="] {
        assert!(FormDecoder::new(bad).is_err(), "{bad}");
    }
    let whole = body(b"hello");
    let cut = |at: usize| decode(&whole[..at], 11).unwrap_err().code;
    assert_eq!(cut(0), S3Code::InvalidArgument);
    assert_eq!(cut(100), S3Code::InvalidArgument);
    let file_at = whole.windows(5).position(|w| w == b"hello").unwrap();
    assert_eq!(cut(file_at + 3), S3Code::IncompleteBody);
    let no_name = b"--xYz\r\nX: y\r\n\r\nz\r\n--xYz--\r\n";
    assert_eq!(decode(no_name, 5).unwrap_err().code, S3Code::MalformedPOSTRequest);
    let no_file = b"--xYz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nz\r\n--xYz--\r\n";
    assert_eq!(decode(no_file, 5).unwrap_err().code, S3Code::InvalidArgument);
    let endless = vec![b'x'; MAX_FIELDS + 1];
    let e = decode(&endless, 4096).unwrap_err();
    assert_eq!(e.code, S3Code::MaxPostPreDataLengthExceededError);
    assert!(PostForm::read(&mut FormFields::new(), None).is_err());
}

proptest! {
    #[test]
    fn a_file_comes_out_as_it_went_in(
        file in prop::collection::vec(prop_oneof![
            any::<u8>().prop_map(|b| vec![b]),
            Just(b"\r\n--xY".to_vec()),
            Just(b"\r\n".to_vec()),
        ], 0..40),
        piece in 1usize..60,
    ) {
        let file = file.concat();
        let wanted_end = file.windows(7).any(|w| w == b"\r\n--xYz");
        prop_assume!(!wanted_end);
        prop_assert_eq!(decode(&body(&file), piece).unwrap().2, file);
    }

    #[test]
    fn no_bytes_make_it_panic(text in "(--xYz|\r\n|: |;|name=|\"|file|[a-z]){0,30}") {
        let _ = decode(text.as_bytes(), 3);
    }
}
