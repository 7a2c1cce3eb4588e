//! Decodes `multipart/form-data` of a browser's upload as it arrives: fields, then the file.

use bytes::{Buf, Bytes, BytesMut};
use forebay_core::bucket::Tag;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::auth::FormFields;
use super::bodies::{MAX_OBJECT_TAGS, tagging};
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// Maximum bytes before the file.
const MAX_FIELDS: usize = 64 * 1024;

fn malformed() -> S3Error {
    S3Code::MalformedPOSTRequest.into()
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Before the first boundary.
    Preamble,
    Headers,
    /// A field of this name.
    Field(String),
    File,
    /// After the file; further bytes are ignored.
    Done,
}

/// Decodes one form. Collects the fields before the file; returns the file's bytes as they arrive.
#[derive(Debug)]
pub struct FormDecoder {
    /// `\r\n--BOUNDARY`.
    delimiter: Vec<u8>,
    state: State,
    buffer: BytesMut,
    /// Bytes of the buffer that are known not to contain the start of this part's end: a body that
    /// arrives byte by byte is searched only once.
    searched: usize,
    /// Bytes consumed before the file.
    taken: usize,
    fields: FormFields,
    file_name: Option<String>,
}

impl FormDecoder {
    /// Parses the `Content-Type` header of the request.
    pub fn new(content_type: &str) -> S3Result<Self> {
        let not_a_form = || {
            S3Error::new(
                S3Code::InvalidRequest,
                "Bucket POST must be of the enclosure-type multipart/form-data",
            )
        };
        let (kind, parameters) = content_type.split_once(';').ok_or_else(not_a_form)?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return Err(not_a_form());
        }
        let boundary = parameter(parameters, "boundary").ok_or_else(not_a_form)?;
        if boundary.is_empty() || boundary.len() > 70 {
            return Err(not_a_form());
        }
        Ok(Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            state: State::Preamble,
            // The first boundary may be at the very beginning, without a line before it.
            buffer: BytesMut::from(&b"\r\n"[..]),
            searched: 0,
            taken: 0,
            fields: FormFields::new(),
            file_name: None,
        })
    }

    /// Decodes the next bytes of the body and appends the file's bytes to `file`.
    pub fn push(&mut self, input: Bytes, file: &mut Vec<Bytes>) -> S3Result<()> {
        self.buffer.extend_from_slice(&input);
        while self.step(file)? {}
        if !self.file_has_started() && self.taken + self.buffer.len() > MAX_FIELDS {
            return Err(S3Code::MaxPostPreDataLengthExceededError.into());
        }
        Ok(())
    }

    /// Whether all fields have been read. They must be checked before the file is stored.
    pub fn file_has_started(&self) -> bool {
        matches!(self.state, State::File | State::Done)
    }

    /// The fields so far, names in lower case.
    pub fn fields(&self) -> &FormFields {
        &self.fields
    }

    /// The client's name for the file, if given.
    pub fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// Ends the body, which must be after the end of a file.
    pub fn finish(self) -> S3Result<()> {
        match self.state {
            State::Done => Ok(()),
            State::File => Err(S3Code::IncompleteBody.into()),
            _ => Err(S3Error::new(
                S3Code::InvalidArgument,
                "POST requires exactly one file upload per request.",
            )),
        }
    }

    /// Processes the buffered bytes. Returns whether more can be processed.
    fn step(&mut self, file: &mut Vec<Bytes>) -> S3Result<bool> {
        match &self.state {
            State::Done => {
                self.buffer.clear();
                Ok(false)
            }
            State::Headers => self.read_headers(),
            State::Preamble | State::Field(_) | State::File => {
                let found = find(&self.buffer[self.searched..], &self.delimiter);
                let Some(at) = found.map(|at| self.searched + at) else {
                    // The rest may be the start of a boundary.
                    let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
                    if self.state != State::File {
                        self.searched = sure;
                    } else if sure > 0 {
                        file.push(self.buffer.split_to(sure).freeze());
                    }
                    return Ok(false);
                };
                // Two more bytes are needed to recognize the last boundary.
                if self.buffer.len() < at + self.delimiter.len() + 2 && self.state != State::File {
                    self.searched = at;
                    return Ok(false);
                }
                self.searched = 0;
                let content = self.buffer.split_to(at).freeze();
                self.buffer.advance(self.delimiter.len());
                self.taken += at + self.delimiter.len();
                self.end_part(content, file)
            }
        }
    }

    fn end_part(&mut self, content: Bytes, file: &mut Vec<Bytes>) -> S3Result<bool> {
        let last = self.buffer.starts_with(b"--");
        let after = if last { State::Done } else { State::Headers };
        match std::mem::replace(&mut self.state, after) {
            State::File => {
                if !content.is_empty() {
                    file.push(content);
                }
                self.state = State::Done;
            }
            State::Field(name) => {
                let value = String::from_utf8(content.to_vec()).map_err(|_| malformed())?;
                self.fields.insert(name, value);
            }
            _ => {}
        }
        if self.state == State::Done && self.file_name.is_none() {
            return Err(S3Error::new(
                S3Code::InvalidArgument,
                "POST requires exactly one file upload per request.",
            ));
        }
        Ok(true)
    }

    /// Reads the headers of a part, starting at the end of the boundary's line.
    fn read_headers(&mut self) -> S3Result<bool> {
        let end = b"\r\n\r\n";
        let Some(at) = find(&self.buffer[self.searched..], end) else {
            self.searched = self.buffer.len().saturating_sub(end.len() - 1);
            return Ok(false);
        };
        let at = self.searched + at;
        self.searched = 0;
        let headers = self.buffer.split_to(at);
        self.buffer.advance(4);
        self.taken += at + 4;
        let headers = std::str::from_utf8(&headers).map_err(|_| malformed())?;
        let disposition = headers
            .split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"))
            .map(|(_, value)| value)
            .ok_or_else(malformed)?;
        let name = parameter(disposition, "name").ok_or_else(malformed)?.to_ascii_lowercase();
        if name != "file" {
            self.state = State::Field(name);
            return Ok(true);
        }
        self.file_name = Some(parameter(disposition, "filename").unwrap_or_default());
        self.state = State::File;
        Ok(true)
    }
}

/// The request of a form, from its fields.
#[derive(Clone, Debug)]
pub struct PostForm {
    pub key: String,
    /// The fields as headers of a `PutObject`, to be parsed by [`super::put_headers`].
    pub headers: HeaderMap,
    pub tags: Vec<Tag>,
    pub redirect: Option<String>,
    /// 200, 201 or 204.
    pub status: u16,
}

impl PostForm {
    /// Parses the fields, and stores the final key among them (`${filename}` replaced) so that the
    /// policy is checked against it.
    pub fn read(fields: &mut FormFields, file_name: Option<&str>) -> S3Result<Self> {
        let Some(key) = fields.get_mut("key").filter(|k| !k.is_empty()) else {
            return Err(S3Error::new(
                S3Code::InvalidArgument,
                "Bucket POST must contain a field named 'key'.  If it is specified, please check \
                 the order of the fields.",
            )
            .detail("ArgumentName", "key"));
        };
        *key = key.replace("${filename}", file_name.unwrap_or_default());
        let key = key.clone();
        if key.is_empty() {
            return Err(S3Error::argument(
                "key",
                "",
                "User key must have a length greater than 0.",
            ));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in fields.iter() {
            let name = if name == "acl" { "x-amz-acl" } else { name };
            if !is_header(name) {
                continue;
            }
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| malformed())?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| malformed())?;
            headers.insert(name, value);
        }
        let tags = match fields.get("tagging").filter(|t| !t.is_empty()) {
            Some(xml) => tagging(xml.as_bytes(), MAX_OBJECT_TAGS)?,
            None => Vec::new(),
        };
        let redirect = ["success_action_redirect", "redirect"]
            .iter()
            .find_map(|name| fields.get(*name))
            .filter(|r| !r.is_empty())
            .cloned();
        let status = match fields.get("success_action_status").map(String::as_str) {
            Some("200") => 200,
            Some("201") => 201,
            _ => 204,
        };
        Ok(Self { key, headers, tags, redirect, status })
    }

    /// The URL to redirect the browser to after an upload, if the form has one.
    pub fn redirect_url(&self, bucket: &str, etag: &str) -> Option<String> {
        let base = self.redirect.as_deref()?;
        let joint = if base.contains('?') { '&' } else { '?' };
        let value = |text: &str| super::encode::encode_query(text.as_bytes()).into_owned();
        Some(format!(
            "{base}{joint}bucket={}&key={}&etag=%22{}%22",
            value(bucket),
            value(&self.key),
            value(etag)
        ))
    }
}

/// Whether a field stands for a header of an upload. Headers that would change the operation, such
/// as the source of a copy, cannot be set in a form.
fn is_header(name: &str) -> bool {
    const PREFIXES: [&str; 4] =
        ["x-amz-meta-", "x-amz-checksum-", "x-amz-server-side-encryption", "x-amz-object-lock-"];
    matches!(name, "x-amz-acl" | "x-amz-storage-class" | "content-md5")
        || super::put_headers::CONTENT_HEADERS.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// A parameter of a header such as `form-data; name="key"`.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.rsplit(';').next()?.trim();
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted_string(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// The text up to the closing quote, and the rest.
fn quoted_string(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            // Browsers send backslashes in file names unescaped.
            '\\' if text[at + 1..].starts_with('"') => {
                value.push('"');
                chars.next();
            }
            c => value.push(c),
        }
    }
    None
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|b| *b == first) {
        if text[from + at..].starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
