//! The token that a client sends: given, from a file, or from the login of this user.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use forebay_core::locks::MutexExt;
use http::HeaderValue;
use tokio::time::Instant;

use crate::local_server::LocalServer;

/// How often the file of a token is looked at, at most.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a token that a function makes is used.
const MADE_TOKEN_AGE: Duration = Duration::from_secs(600);
/// Variables with a token, and with the path of a file with one. The first that is set counts.
const TOKENS: [&str; 2] = ["FOREBAY_TOKEN", "AIS_AUTHN_TOKEN"];
const FILES: [&str; 2] = ["FOREBAY_TOKEN_FILE", "AIS_AUTHN_TOKEN_FILE"];

/// Where a client gets its token from. Cheap to clone; never printed.
#[derive(Clone, Default)]
pub struct TokenSource(Kind);

#[derive(Clone, Default)]
enum Kind {
    #[default]
    None,
    Fixed(HeaderValue),
    File(Arc<TokenFile>),
    Made(Arc<MadeToken>),
}

struct TokenFile {
    path: PathBuf,
    read: Mutex<ReadToken>,
}

#[derive(Default)]
struct ReadToken {
    checked: Option<Instant>,
    modified: Option<SystemTime>,
    header: Option<HeaderValue>,
}

struct MadeToken {
    make: Box<dyn Fn() -> String + Send + Sync>,
    made: Mutex<Option<(Instant, Option<HeaderValue>)>>,
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::None => "TokenSource(none)",
            Kind::Fixed(_) | Kind::Made(_) => "TokenSource(…)",
            Kind::File(_) => "TokenSource(file)",
        })
    }
}

impl TokenSource {
    /// This token. A text that cannot be sent is no token.
    pub fn fixed(token: &str) -> Self {
        Self(bearer(token).map_or(Kind::None, Kind::Fixed))
    }

    /// The content of a file, which is read again when it changes.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Kind::File(Arc::new(TokenFile { path: path.into(), read: Mutex::default() })))
    }

    /// Tokens that a function makes, each used for some minutes.
    pub fn made_by(make: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Kind::Made(Arc::new(MadeToken { make: Box::new(make), made: Mutex::default() })))
    }

    /// The token of the server that the Python client started, if `endpoint` is that server. Else the
    /// token of the environment, of the file that the environment names, or of the login of this user
    /// at `endpoint`, the first of them that is set.
    pub fn of_user(endpoint: &str) -> Self {
        if let Some(server) = LocalServer::running().filter(|server| server.is_at(endpoint))
            && let Some(file) = server.token_file
        {
            return Self::file(file);
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
        if let Some(token) = TOKENS.into_iter().find_map(variable) {
            return Self::fixed(&token);
        }
        if let Some(path) = FILES.into_iter().find_map(variable) {
            return Self::file(path);
        }
        login_file(endpoint).map_or_else(Self::default, Self::file)
    }

    /// The value of `Authorization`.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        match &self.0 {
            Kind::None => None,
            Kind::Fixed(header) => Some(header.clone()),
            Kind::File(file) => file.header(),
            Kind::Made(made) => made.header(),
        }
    }
}

impl TokenFile {
    fn header(&self) -> Option<HeaderValue> {
        let mut read = self.read.locked();
        if read.checked.is_some_and(|checked| checked.elapsed() < CHECK_INTERVAL) {
            return read.header.clone();
        }
        let modified = std::fs::metadata(&self.path).and_then(|m| m.modified()).ok();
        if modified.is_none() || modified != read.modified {
            let text = std::fs::read_to_string(&self.path).ok();
            read.header = text.and_then(|text| bearer(&text));
        }
        (read.checked, read.modified) = (Some(Instant::now()), modified);
        read.header.clone()
    }
}

impl MadeToken {
    fn header(&self) -> Option<HeaderValue> {
        let mut made = self.made.locked();
        let current = made.as_ref().filter(|(since, _)| since.elapsed() < MADE_TOKEN_AGE);
        if let Some((_, header)) = current {
            return header.clone();
        }
        let header = bearer(&(self.make)());
        *made = Some((Instant::now(), header.clone()));
        header
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    // AIStore's file is JSON; a file of ours is the bare token.
    let parsed = serde_json::from_str::<serde_json::Value>(token).ok();
    let inner = parsed.as_ref().and_then(|json| json.get("token")?.as_str());
    let token = inner.unwrap_or(token).trim();
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    (!token.is_empty()).then_some(header)
}

/// The file in which a login at `endpoint` keeps its token; `None` without a home folder.
pub fn login_file(endpoint: &str) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let of_home = || Some(Path::new(&variable("HOME")?).join(".config"));
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(of_home)?;
    let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let endpoint = endpoint.trim().trim_end_matches('/');
    let endpoint = endpoint.strip_prefix("http://").unwrap_or(endpoint);
    let name: String = endpoint.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
    Some(folder.join("forebay").join("tokens").join(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_token_is_read_again_when_it_changes() {
        let path = std::env::temp_dir().join(format!("forebay-token-{}", std::process::id()));
        std::fs::write(&path, "planted-1\n").unwrap();
        let source = TokenSource::file(&path);
        assert_eq!(source.header().unwrap(), "Bearer planted-1");
        std::fs::write(&path, "{\"token\": \"planted-2\"}").unwrap();
        let later = SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let Kind::File(file) = &source.0 else { panic!() };
        file.read.locked().checked = None;
        assert_eq!(source.header().unwrap(), "Bearer planted-2");
        std::fs::remove_file(&path).unwrap();
        file.read.locked().checked = None;
        assert_eq!(source.header(), None);
        assert!(!format!("{source:?} {:?}", TokenSource::fixed("planted")).contains("planted"));
    }

    #[test]
    fn a_token_that_cannot_be_sent_is_none() {
        for text in ["", " ", "a\nb"] {
            assert_eq!(TokenSource::fixed(text).header(), None, "{text:?}");
        }
        assert_eq!(TokenSource::made_by(|| "a".into()).header().unwrap(), "Bearer a");
    }
}
