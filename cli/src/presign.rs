//! `forebay presign`: a URL of the S3 API that is good for one object, for some time.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use forebay_client::Method;
use forebay_core::size::parse_duration;
use forebay_core::{Error, ErrorCode};
use forebay_node::clock::unix_s;
use forebay_s3::auth::{Presign, SecretKey};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;
use crate::uri;

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
    let now_s = unix_s();
    let signing = Presign {
        method: if args.put { Method::PUT } else { Method::GET },
        endpoint: &session.endpoint,
        path: &format!("/s3/{}/{}", bucket.name, name),
        now_s,
        expires_s: args.expires.as_secs(),
        region: region.as_deref().unwrap_or("us-east-1"),
    };
    let url = signing.url(&key.access, &key.secret).ok_or_else(|| {
        Failure::usage(format!("{} is no URL of a node", session.endpoint), "set --endpoint")
    })?;
    let until = output::time_json((now_s + signing.expires_s) * 1_000_000_000);
    let json = json!({ "url": url, "method": signing.method.as_str(),
        "uri": bucket.object_uri(&name), "expires": until });
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
