//! A search for planted secrets in all that comes out of nodes and commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Cluster;
use crate::http::Answer;
use crate::private_file::write_private;
use crate::secrets::{Secrets, excerpt, of_cluster};
use crate::web::{Received, Reply, Web};

/// Files in which settings, and what `dev` made of them, belong.
const HOMES: [&str; 3] = ["forebay.toml", "settings.toml", "dev.json"];

/// The planted secrets, and where they were found.
pub struct Hunt {
    pub secrets: Secrets,
    /// Folder for files that have secrets, and for output.
    pub dir: tempfile::TempDir,
    pub found: Vec<String>,
    /// Bytes of answers and output that were searched.
    pub searched: usize,
}

impl Default for Hunt {
    fn default() -> Self {
        Self::of(&Secrets::default())
    }
}

impl Hunt {
    /// The same secrets, and nothing found.
    #[must_use]
    pub fn of(secrets: &Secrets) -> Self {
        let (secrets, dir) = (secrets.clone(), tempfile::tempdir().unwrap());
        Self { secrets, dir, found: Vec::new(), searched: 0 }
    }

    /// A new secret of letters and digits, which is base 64 too.
    pub fn plant(&mut self, name: &str) -> String {
        let mut bytes = [0; 16];
        let file = std::fs::File::open("/dev/urandom").unwrap();
        std::io::Read::read_exact(&mut { file }, &mut bytes).unwrap();
        let secret = format!("Planted1{}", hex::encode(bytes));
        self.secrets.add(name, &secret);
        secret
    }

    /// A file with a new secret; returns the path.
    pub fn plant_file(&mut self, name: &str, text: impl Fn(&str) -> String) -> PathBuf {
        let text = text(&self.plant(name));
        let path = self.dir.path().join(name.replace(' ', "-"));
        write_private(&path, text);
        path
    }

    pub fn search(&mut self, place: &str, bytes: &[u8]) {
        self.searched += bytes.len();
        let found = self.secrets.find(bytes).into_iter();
        let shown =
            |(name, at): (String, usize)| format!("{place} has {name}: {}", excerpt(bytes, at));
        self.found.extend(found.map(shown));
    }

    pub fn search_answer(&mut self, place: &str, answer: &Answer) {
        for (name, value) in answer.headers() {
            self.search(&format!("{place}, header {name}"), value.as_bytes());
        }
        self.search(place, &answer.body);
    }

    /// Runs a command and searches its output. Returns the output and the exit code.
    pub fn run(&mut self, place: &str, command: &mut Command) -> (String, i32) {
        command.env("HOME", self.dir.path().join("home")).env_remove("XDG_CONFIG_HOME");
        let done = command.output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        self.search(place, &text);
        (String::from_utf8_lossy(&text).into_owned(), done.status.code().unwrap_or(-1))
    }

    /// Searches the files of a cluster, except those where its own secrets and its settings belong.
    pub fn search_files(&mut self, cluster: &Cluster, env: &[(String, String)]) {
        let is_setting = |path: &Path| HOMES.iter().any(|home| path.ends_with(home));
        let dir = cluster.dir();
        self.found.extend(self.secrets.find_in_files(dir, |path, _| is_setting(path)));
        let is_home = |path: &Path, _: &str| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let own = ["secret", "token", "node.key"];
            is_setting(path) || own.contains(&&*name) || name.ends_with("-key.pem")
        };
        self.found.extend(of_cluster(dir, env).find_in_files(dir, is_home));
    }

    pub fn assert_nothing_found(self) {
        assert!(self.searched > 0);
        assert!(self.found.is_empty(), "{}", self.found.join("\n"));
    }
}

/// A variable of an environment.
pub fn set(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A cloud that refuses each request, and shows in its answer what it got, as Amazon's does.
pub fn echoing_cloud() -> Web {
    Web::start(|request: &Received| {
        let headers: Vec<_> = request.headers.iter().map(|(n, v)| format!("{n}:{v}")).collect();
        let body = format!(
            "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature does not match.</Message>\
             <CanonicalRequest>{} {}\n{}</CanonicalRequest></Error>",
            request.method,
            request.target.replace('&', "&amp;"),
            headers.join("\n")
        );
        Reply::new(403, body).header("content-type", "application/xml")
    })
}
