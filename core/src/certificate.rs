//! The names and the validity of a certificate, read from its DER form.
//!
//! Nothing here verifies a certificate; that is the task of TLS.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const LONG_TIME: u8 = 0x18;
const VERSION: u8 = 0xA0;
const EXTENSIONS: u8 = 0xA3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// Object ids: attributes of names, and the extension with further names.
const ATTRIBUTES: [(&[u8], &str); 3] =
    [(&[0x55, 4, 3], "CN"), (&[0x55, 4, 10], "O"), (&[0x55, 4, 11], "OU")];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1D, 0x11];

/// Names and validity of one certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CertificateInfo {
    /// As `CN=…, O=…`.
    pub subject: String,
    /// In the same form as `subject`.
    pub issuer: String,
    /// Host names and IP addresses for which it is valid.
    pub names: Vec<String>,
    /// Start of its validity, unix seconds.
    pub not_before_s: i64,
    /// End of its validity, unix seconds.
    pub not_after_s: i64,
}

impl CertificateInfo {
    /// Reads a certificate in DER form; `None` if the bytes are none.
    pub fn read(der: &[u8]) -> Option<Self> {
        let mut tbs = Der(Der(Der(der).get(SEQUENCE)?).get(SEQUENCE)?);
        let (tag, _) = tbs.next()?;
        if tag == VERSION {
            // The serial number.
            tbs.next()?;
        }
        // The algorithm of the signature.
        tbs.next()?;
        let issuer = name(tbs.get(SEQUENCE)?)?;
        let mut validity = Der(tbs.get(SEQUENCE)?);
        let (not_before_s, not_after_s) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = name(tbs.get(SEQUENCE)?)?;
        let mut names = Vec::new();
        while let Some((tag, content)) = tbs.next() {
            if tag == EXTENSIONS {
                names = alternative_names(content).unwrap_or_default();
            }
        }
        Some(Self { subject, issuer, names, not_before_s, not_after_s })
    }

    /// Whole days until its end; negative after it.
    pub fn days_left(&self, now_s: i64) -> i64 {
        (self.not_after_s - now_s).div_euclid(24 * 60 * 60)
    }
}

/// The values in a piece of DER, one after the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value, as its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, len], rest) = self.0.split_first_chunk::<2>()?;
        let (len, rest) = match len {
            0..=0x7F => (usize::from(len), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(len & 0x7F))?;
                (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next value, which must have this tag.
    fn get(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }
}

fn name(content: &[u8]) -> Option<String> {
    let (mut sets, mut parts) = (Der(content), Vec::new());
    while let Some((_, set)) = sets.next() {
        let mut attribute = Der(Der(set).get(SEQUENCE)?);
        let id = attribute.get(OBJECT_ID)?;
        let (_, value) = attribute.next()?;
        if let Some((_, short)) = ATTRIBUTES.iter().find(|(known, _)| *known == id) {
            parts.push(format!("{short}={}", String::from_utf8_lossy(value)));
        }
    }
    Some(parts.join(", "))
}

/// Unix seconds of a time.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        LONG_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |n: usize| rest.get(2 * n..2 * n + 2)?.parse::<i8>().ok();
    let [month, day, hour, minute, second] = [part(0)?, part(1)?, part(2)?, part(3)?, part(4)?];
    let at = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

fn alternative_names(content: &[u8]) -> Option<Vec<String>> {
    let (mut extensions, mut names) = (Der(Der(content).get(SEQUENCE)?), Vec::new());
    while let Some((_, extension)) = extensions.next() {
        let mut extension = Der(extension);
        if extension.get(OBJECT_ID)? != SUBJECT_ALT_NAME {
            continue;
        }
        // A flag whether it is critical may come before the value.
        let value = loop {
            match extension.next()? {
                (OCTETS, value) => break value,
                _ => continue,
            }
        };
        let mut list = Der(Der(value).get(SEQUENCE)?);
        while let Some((tag, name)) = list.next() {
            match tag {
                DNS_NAME => names.push(String::from_utf8_lossy(name).into_owned()),
                IP_ADDRESS => names.extend(address(name)),
                _ => {}
            }
        }
    }
    Some(names)
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    /// Made by `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650
    /// -subj "/O=Example/CN=store" -addext "subjectAltName=DNS:store.example,IP:10.0.0.7,IP:::1"`.
    const SAMPLE: &str = "MIIBzTCCAXOgAwIBAgIUb9f1LOgciMs4gngfobFb43ZdWm0wCgYIKoZIzj0EAwIwIjEQMA4GA1UECgwHRXhh\
        bXBsZTEOMAwGA1UEAwwFc3RvcmUwHhcNMjYxMTI3MDg0MzM5WhcNMzYxMTI0MDg0MzM5WjAiMRAwDgYDVQQK\
        DAdFeGFtcGxlMQ4wDAYDVQQDDAVzdG9yZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABL43Yr9/92Tx0z7j\
        yrYsmV6EYKEw537l88+vtRIVjXy5ScR0NjxK1oq/er20Whb1GQTj5taAS/wlMKtOzLQegbWjgYYwgYMwHQYD\
        VR0OBBYEFHLdIGAfUmsXQ5F4aKNE0vWCjFSSMB8GA1UdIwQYMBaAFHLdIGAfUmsXQ5F4aKNE0vWCjFSSMA8G\
        A1UdEwEB/wQFMAMBAf8wMAYDVR0RBCkwJ4INc3RvcmUuZXhhbXBsZYcECgAAB4cQAAAAAAAAAAAAAAAAAAAA\
        ATAKBggqhkjOPQQDAgNIADBFAiEAoDvHOiD7P4zELmr1le+P56yz9qqx4z2L4abUQg4wTZ4CIESRkgAHlT0E\
        rmmsS195Mi0joKRS0x9AKAX9gYF/YSNH";

    #[test]
    fn names_and_validity_of_a_certificate_are_read() {
        let der = BASE64_STANDARD.decode(SAMPLE).unwrap();
        let info = CertificateInfo::read(&der).unwrap();
        assert_eq!(
            (info.subject.as_str(), info.issuer.as_str()),
            ("O=Example, CN=store", "O=Example, CN=store")
        );
        assert_eq!(info.names, ["store.example", "10.0.0.7", "::1"]);
        assert_eq!(info.not_after_s - info.not_before_s, 3650 * 86_400);
        assert_eq!(info.days_left(info.not_after_s - 86_400), 1);
        assert_eq!(info.days_left(info.not_after_s + 1), -1);
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused_at_any_length() {
        let der = BASE64_STANDARD.decode(SAMPLE).unwrap();
        for end in 0..der.len() {
            assert_eq!(CertificateInfo::read(&der[..end]), None, "{end}");
        }
        assert_eq!(CertificateInfo::read(b"-----BEGIN CERTIFICATE-----"), None);
    }

    #[test]
    fn times_of_both_forms_are_read() {
        assert_eq!(time((UTC_TIME, b"700101000001Z")), Some(1));
        assert_eq!(time((LONG_TIME, b"20500101000000Z")), Some(2_524_608_000));
        assert_eq!(time((UTC_TIME, b"491231235959Z")), Some(2_524_607_999));
        for bad in [&b"700101"[..], b"701301000000Z", b"7001010000010Z0", b""] {
            assert_eq!(time((UTC_TIME, bad)), None, "{bad:?}");
        }
    }
}
