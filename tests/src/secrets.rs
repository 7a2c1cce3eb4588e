//! A search for secrets in bytes: as they are, and in hex, base 64 and URL encoding.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::s3::{OTHER, OWNER};

/// Bytes of a secret's form by which it is looked up.
const KEY_BYTES: usize = 8;
/// Shortest secret. A shorter one would be found by chance.
const MIN_BYTES: usize = 12;

/// Secrets, each with a name that errors may show.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Forms by their first bytes: name of the secret, the rest of the form.
    forms: HashMap<[u8; KEY_BYTES], Vec<(String, Vec<u8>)>>,
}

impl Secrets {
    /// Adds a secret in all its forms.
    pub fn add(&mut self, name: &str, secret: impl AsRef<[u8]>) {
        let secret = secret.as_ref();
        assert!(secret.len() >= MIN_BYTES, "{name} is too short to be searched for");
        self.add_form(name, secret);
        let hex = hex::encode(secret);
        self.add_form(&format!("{name} in hex"), hex.as_bytes());
        self.add_form(&format!("{name} in hex"), hex.to_uppercase().as_bytes());
        for at in 0..3 {
            // The secret may stand at any place of the encoded bytes. Their first and last characters
            // have bits of the neighbours.
            let padded = [&vec![0; at], secret].concat();
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let text = engine.encode(&padded);
                let own = &text.as_bytes()[(at * 4).div_ceil(3)..padded.len() * 4 / 3];
                self.add_form(&format!("{name} in base 64"), own);
            }
        }
        for is_kept in [
            |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b),
            |b: u8| b.is_ascii_alphanumeric() || b"-_.~/".contains(&b),
        ] {
            let mut text = String::new();
            for &byte in secret {
                match is_kept(byte) {
                    true => text.push(char::from(byte)),
                    false => write!(text, "%{byte:02X}").unwrap(),
                }
            }
            self.add_form(&format!("{name} in URL encoding"), text.as_bytes());
        }
    }

    /// Adds the lines of a private key in a PEM file.
    pub fn add_pem(&mut self, name: &str, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('-') && line.len() >= MIN_BYTES);
        for line in lines {
            self.add_form(name, line.as_bytes());
        }
    }

    fn add_form(&mut self, name: &str, form: &[u8]) {
        let (key, rest) = form.split_at(KEY_BYTES);
        let forms = self.forms.entry(key.try_into().unwrap()).or_default();
        if forms.iter().all(|(_, known)| known != rest) {
            forms.push((name.to_owned(), rest.to_owned()));
        }
    }

    /// The names of the secrets in these bytes, with the place of the first one of each.
    pub fn find(&self, bytes: &[u8]) -> Vec<(String, usize)> {
        let mut starts = [false; 1 << 16];
        let start = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        for key in self.forms.keys() {
            starts[start(key)] = true;
        }
        let mut found: Vec<(String, usize)> = Vec::new();
        for at in 0..bytes.len().saturating_sub(KEY_BYTES - 1) {
            let rest = &bytes[at..];
            if !starts[start(rest)] {
                continue;
            }
            for (name, form) in self.forms.get(&rest[..KEY_BYTES]).into_iter().flatten() {
                let is_new = found.iter().all(|(known, _)| known != name);
                if is_new && rest[KEY_BYTES..].starts_with(form) {
                    found.push((name.clone(), at));
                }
            }
        }
        found
    }

    /// A line for each file below a folder that has a secret. `is_home` returns whether a file is the place
    /// where a secret of this name belongs.
    pub fn find_in_files(&self, dir: &Path, is_home: impl Fn(&Path, &str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for path in files(dir) {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let own = self.find(&bytes).into_iter().filter(|(name, _)| !is_home(&path, name));
            found.extend(own.map(|(name, at)| {
                format!("{} has {name}: {}", path.display(), excerpt(&bytes, at))
            }));
        }
        found
    }
}

/// The bytes around a place, as text.
pub fn excerpt(bytes: &[u8], at: usize) -> String {
    let around = &bytes[at.saturating_sub(200)..bytes.len().min(at + 200)];
    String::from_utf8_lossy(around).into_owned()
}

/// All files below a folder.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Variables whose values are secrets.
const SECRET_VARIABLES: [&str; 6] = [
    "AIS_AUTHN_SU_PASS",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
];

/// The secrets of a `dev` cluster: its secret, the keys of its nodes and of TLS, the token and the keys of
/// the S3 API that it made, and those of its environment.
pub fn of_cluster(dir: &Path, env: &[(String, String)]) -> Secrets {
    let mut secrets = Secrets::default();
    let mut add = |name: &str, text: &str| {
        if text.len() >= MIN_BYTES {
            secrets.add(name, text);
        }
    };
    for (name, value) in env.iter().filter(|(name, _)| SECRET_VARIABLES.contains(&name.as_str())) {
        add(name, value);
    }
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    add("the cluster secret", read(&dir.join("secret")).trim());
    add("the token", read(&dir.join("token")).trim());
    for node in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        add("a key of a node", read(&node.path().join("state/node.key")).trim());
        let settings = read(&node.path().join("forebay.toml"));
        let keys = settings.lines().filter_map(|line| line.strip_prefix("secret = \""));
        for key in keys.map(|key| key.trim_end_matches('"')) {
            // The published keys are no secrets.
            if ![OWNER.secret, OTHER.secret].contains(&key) {
                add("a key of the S3 API", key);
            }
        }
    }
    for path in files(&dir.join("tls")) {
        if path.to_string_lossy().ends_with("-key.pem") {
            secrets.add_pem("a key of TLS", &path);
        }
    }
    secrets
}

/// Fails the test if the log of a node has a secret of the cluster, whatever else the test saw.
pub(crate) fn fail_on_secrets(dir: &Path, env: &[(String, String)], logs: &[PathBuf]) {
    let secrets = of_cluster(dir, env);
    for log in logs {
        let found = secrets.find(&std::fs::read(log).unwrap_or_default());
        assert!(found.is_empty(), "{} has secrets: {found:?}", log.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_form_and_at_every_place() {
        let secret = "planted/and+long=enough";
        let mut secrets = Secrets::default();
        secrets.add("it", secret);
        let all = |before: &str| {
            let text = format!("{before}{secret} and more");
            let percent = secret.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
            [
                text.clone(),
                hex::encode(&text),
                hex::encode_upper(&text),
                STANDARD_NO_PAD.encode(&text),
                URL_SAFE_NO_PAD.encode(&text),
                format!("{before}{percent}"),
                format!("{before}{}", percent.replace("%2F", "/")),
            ]
        };
        for before in ["", "a", "ab", "abc", "abcd"] {
            for text in all(before) {
                assert_eq!(secrets.find(text.as_bytes()).len(), 1, "{text}");
            }
        }
        assert!(secrets.find(b"planted/and+long=enoug").is_empty());
        assert!(secrets.find(b"").is_empty());
    }

    #[test]
    fn a_file_with_a_secret_is_named_unless_the_secret_belongs_there() {
        let (dir, mut secrets) = (tempfile::tempdir().unwrap(), Secrets::default());
        secrets.add("it", "planted-secret");
        std::fs::create_dir(dir.path().join("a")).unwrap();
        for name in ["a/log", "home"] {
            std::fs::write(dir.path().join(name), "x planted-secret x").unwrap();
        }
        let found = secrets.find_in_files(dir.path(), |path, _| path.ends_with("home"));
        assert!(
            found.len() == 1 && found[0].ends_with("a/log has it: x planted-secret x"),
            "{found:?}"
        );
    }

    #[test]
    fn a_secret_of_a_cluster_in_a_log_fails_its_test() {
        let dir = tempfile::tempdir().unwrap();
        let (node, log) = (dir.path().join("gateway1"), dir.path().join("gateway1/log"));
        std::fs::create_dir_all(node.join("state")).unwrap();
        std::fs::create_dir(dir.path().join("tls")).unwrap();
        let pem = "-----BEGIN PRIVATE KEY-----\nplantedLineOfAKey\n-----END PRIVATE KEY-----\n";
        for (file, text) in [
            ("secret", "planted-cluster-secret\n"),
            ("token", "planted-token"),
            ("gateway1/state/node.key", "planted-node-key\n"),
            ("gateway1/forebay.toml", "[[s3.keys]]\nsecret = \"planted-s3-secret\"\n"),
            ("tls/gateway1-key.pem", pem),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let env = [("AWS_SECRET_ACCESS_KEY".to_owned(), "planted-cloud-key".to_owned())];
        let check = |text: &str| {
            std::fs::write(&log, text).unwrap();
            let logs = [log.clone()];
            std::panic::catch_unwind(|| fail_on_secrets(dir.path(), &env, &logs)).is_err()
        };
        for secret in [
            "planted-cluster-secret",
            "planted-token",
            "planted-node-key",
            "planted-s3-secret",
            "plantedLineOfAKey",
            "planted-cloud-key",
        ] {
            assert!(check(&format!("INFO {secret}\n")), "{secret}");
        }
        assert!(!check("INFO all is well\n"));
    }
}
