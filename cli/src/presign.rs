//! `forebay presign`: a URL of the S3 API that is good for one object, for some time.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use forebay_core::checksum::ChecksumKind;
use forebay_core::date::format_amz;
use forebay_core::size::parse_duration;
use forebay_core::{Error, ErrorCode};
use forebay_node::clock::unix_ns;
use forebay_s3::auth::{SecretKey, SigningKey};
use forebay_s3::encode::{encode_key, encode_query};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;
use crate::uri;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Maximum lifetime of a URL, as the servers have it.
const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay presign ais://images/cat/1.jpg --expires 10m
  curl -T photo.jpg \"$(forebay presign --put ais://images/cat/2.jpg)\"

Anybody who has the URL can read the object, or write it with --put, until it
expires, with the rights of the access key. The key comes from AWS_ACCESS_KEY_ID
and AWS_SECRET_ACCESS_KEY, else from ~/.aws/credentials (AWS_PROFILE names the
section). `forebay auth key create` makes one. Nothing is sent to the cluster:
the URL of an object that does not exist answers 404, and that of a key that it
does not know 403. The URL names the endpoint of this command, which must be the
one that its readers reach.")]
pub(crate) struct PresignArgs {
    /// The object
    #[arg(value_name = "URI")]
    object: String,
    /// A URL to write the object, instead of one to read it
    #[arg(long)]
    put: bool,
    /// How long the URL is good, up to 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = lifetime)]
    expires: Duration,
}

fn lifetime(text: &str) -> Result<Duration, Error> {
    let time = parse_duration(text)?;
    match time >= Duration::from_secs(1) && time <= MAX_LIFETIME {
        true => Ok(time),
        false => Err(Error::invalid("a URL is good for 1s to 7d")),
    }
}

/// Prints the URL.
pub(crate) fn run(session: &Session, args: &PresignArgs) -> Result<(), Failure> {
    let (bucket, name) = uri::object(&args.object)?;
    if !bucket.namespace.is_global() {
        let text = format!("the S3 API has no buckets of other clusters: {bucket}");
        return Err(Failure::usage(text, "presign it at the cluster that has it"));
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let key = access_key(&variable)?;
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    let now_s = unix_ns() / 1_000_000_000;
    let signing = Signing {
        method: if args.put { "PUT" } else { "GET" },
        endpoint: &session.endpoint,
        path: format!("/s3/{}/{}", bucket.name, name),
        time: format_amz(now_s),
        region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        expires_s: args.expires.as_secs(),
    };
    let url = signing.url(&key);
    let until = output::time_json((now_s + signing.expires_s) * 1_000_000_000);
    let json = json!({ "url": url, "method": signing.method, "uri": bucket.object_uri(&name),
        "expires": until });
    let format = if session.format == Format::Table { Format::Name } else { session.format };
    output::one(format, &url, &[], &json)
}

/// An access key of S3 and its secret.
struct AccessKey {
    access: String,
    secret: SecretKey,
}

fn access_key(variable: &impl Fn(&str) -> Option<String>) -> Result<AccessKey, Failure> {
    let pair = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
    let found = match pair {
        Some(pair) => Some(pair),
        None => of_file(variable)?,
    };
    let (access, secret) = found.ok_or_else(|| {
        Error::new(ErrorCode::Unauthenticated, "no access key to sign with").hint(
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `forebay auth key create` makes a key",
        )
    })?;
    Ok(AccessKey { access, secret: SecretKey::new(secret) })
}

/// The key in the file of credentials that the tools of AWS share.
fn of_file(
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<(String, String)>, Failure> {
    let of_home = || Some(PathBuf::from(variable("HOME")?).join(".aws/credentials"));
    let named = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
    let Some(path) = named.or_else(of_home) else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
            Ok(key_in(&text, &profile))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::local(path.display(), &e)),
    }
}

/// The key in a section of a file of credentials.
fn key_in(text: &str, profile: &str) -> Option<(String, String)> {
    let mut is_here = false;
    let (mut access, mut secret) = (None, None);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_here = section.trim() == profile;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_here) {
            match key.trim() {
                "aws_access_key_id" => access = Some(value.trim().to_owned()),
                "aws_secret_access_key" => secret = Some(value.trim().to_owned()),
                _ => {}
            }
        }
    }
    access.zip(secret)
}

/// A request that is signed in its query (AWS signature version 4).
struct Signing<'a> {
    method: &'static str,
    /// URL of a gateway.
    endpoint: &'a str,
    path: String,
    /// `YYYYMMDDTHHMMSSZ`
    time: String,
    region: String,
    expires_s: u64,
}

impl Signing<'_> {
    fn url(&self, key: &AccessKey) -> String {
        let day = self.time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let path = encode_key(&self.path);
        let credential = format!("{}/{scope}", key.access);
        let expires = self.expires_s.to_string();
        // In the order of their names, as the signature has them.
        let fields = [
            ("X-Amz-Algorithm", ALGORITHM),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", &self.time),
            ("X-Amz-Expires", &expires),
            ("X-Amz-SignedHeaders", "host"),
        ];
        let pairs: Vec<String> =
            fields.iter().map(|(k, v)| format!("{k}={}", encode_query(v.as_bytes()))).collect();
        let query = pairs.join("&");
        let canonical = format!(
            "{}\n{path}\n{query}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD",
            self.method,
            host(self.endpoint)
        );
        let mut hasher = ChecksumKind::Sha256.hasher();
        hasher.update(canonical.as_bytes());
        let hash = hasher.finish().map(|sum| sum.value).unwrap_or_default();
        let text = format!("{ALGORITHM}\n{}\n{scope}\n{hash}", self.time);
        let signature = SigningKey::derive(&key.secret, day, &self.region, "s3").sign(&text);
        let base = self.endpoint.trim_end_matches('/');
        format!("{base}{path}?{query}&X-Amz-Signature={signature}")
    }
}

/// The `Host` header that clients send to this endpoint: without the default port of the scheme.
fn host(endpoint: &str) -> &str {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    let authority = rest.split('/').next().unwrap_or(rest);
    let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_no_default_port() {
        assert_eq!(host("http://127.0.0.1:7400"), "127.0.0.1:7400");
        assert_eq!(host("https://a.b:443/"), "a.b");
        assert_eq!(host("http://a.b:443"), "a.b:443");
    }

    #[test]
    fn a_name_with_special_characters_is_encoded_once() {
        let key = AccessKey { access: "me".into(), secret: SecretKey::new("secret") };
        let signing = Signing {
            method: "GET",
            endpoint: "http://h:1",
            path: "/s3/b/a b+é/c".into(),
            time: "20261129T120000Z".into(),
            region: "us-east-1".into(),
            expires_s: 60,
        };
        let url = signing.url(&key);
        assert!(url.starts_with("http://h:1/s3/b/a%20b%2B%C3%A9/c?X-Amz-Algorithm="), "{url}");
        assert!(url.contains("X-Amz-Credential=me%2F20261129%2Fus-east-1%2Fs3%2Faws4_request&"));
        assert!(!url.contains("secret"));
    }

    #[test]
    fn the_key_comes_from_the_section_of_the_profile() {
        let file = "[default]\naws_access_key_id = a\naws_secret_access_key=b\n\
                    [two]\n# note\naws_access_key_id=c\naws_secret_access_key = d=\n";
        assert_eq!(key_in(file, "default"), Some(("a".into(), "b".into())));
        assert_eq!(key_in(file, "two"), Some(("c".into(), "d=".into())));
        assert_eq!(key_in(file, "three"), None);
    }

    #[test]
    fn urls_expire_within_a_week() {
        assert_eq!(lifetime("10m").unwrap(), Duration::from_secs(600));
        for bad in ["0s", "8d", "soon"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
    }
}
