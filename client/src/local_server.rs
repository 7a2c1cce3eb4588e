//! The server of this user and machine that the Python client starts where there is no cluster: its
//! endpoint, and the token that it wrote for this user.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid, test_kill_process};
use serde::Deserialize;

/// Largest description that is read, bytes.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 10;

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LocalServer {
    /// URL of its gateway.
    pub endpoint: String,
    pid: i32,
    /// File with the token of this user; `None` if the server needs none.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
}

impl LocalServer {
    /// The running server of this user; `None` if there is none.
    pub fn running() -> Option<Self> {
        Self::in_folder(&folder()?)
    }

    /// The server whose data are in a folder. A description that another user wrote does not count,
    /// and none of a process that has ended: another program may have its port.
    fn in_folder(folder: &Path) -> Option<Self> {
        let path = folder.join("serve.json");
        let about = std::fs::metadata(&path).ok()?;
        if about.uid() != geteuid().as_raw() || about.len() > MAX_DESCRIPTION_BYTES {
            return None;
        }
        let server: Self = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        test_kill_process(Pid::from_raw(server.pid)?).ok()?;
        Some(server)
    }

    /// Whether an endpoint of a client is this server.
    pub(crate) fn is_at(&self, endpoint: &str) -> bool {
        endpoint.trim().trim_end_matches('/') == self.endpoint
    }
}

/// Folder of the server, where the Python client has it too (`forebay.local_environment`).
fn folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let of_home = || Some(std::env::home_dir()?.join(".cache"));
    let cache = cache.map(PathBuf::from).or_else(of_home)?;
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let is_kept = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-');
    let name: String = name.chars().map(|c| if is_kept(c) { c } else { '-' }).collect();
    let name = if name.is_empty() { "machine" } else { &name };
    Some(cache.join("forebay").join(format!("local-{name}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_description_counts_while_its_process_runs() {
        let dir = std::env::temp_dir().join(format!("forebay-local-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let describe = |pid: u32| {
            let text = format!(
                "{{\"endpoint\": \"http://127.0.0.1:17400\", \"pid\": {pid}, \
                 \"token_file\": \"/t\", \"user\": \"owner\"}}"
            );
            std::fs::write(dir.join("serve.json"), text).unwrap();
        };
        assert_eq!(LocalServer::in_folder(&dir), None);
        describe(std::process::id());
        let server = LocalServer::in_folder(&dir).unwrap();
        assert_eq!(server.token_file.as_deref(), Some(Path::new("/t")));
        assert!(server.is_at("http://127.0.0.1:17400/") && !server.is_at("http://127.0.0.1:17401"));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        describe(ended.id());
        assert_eq!(LocalServer::in_folder(&dir), None, "its process has ended");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
