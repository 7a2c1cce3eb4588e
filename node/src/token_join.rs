//! How a target without the secret of the cluster joins: by a token, or by the key that the cluster
//! recorded at an earlier join.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::{Error, Result};

use crate::secret_file;

/// Refusals after which the log names the problem, and again after as many.
const REFUSALS_PER_LINE: u32 = 20;

/// The file with the token, and which proof the next join has.
#[derive(Debug)]
pub struct TokenJoin {
    file: PathBuf,
    is_by_key: AtomicBool,
    refusals: AtomicU32,
}

impl TokenJoin {
    /// `had_key`: the node's key is from an earlier start, so the cluster may have recorded it.
    /// Without it, the file has to hold a token.
    pub fn new(file: &str, had_key: bool) -> Result<Self> {
        if !had_key {
            read(Path::new(file))?;
        }
        let (is_by_key, refusals) = (AtomicBool::new(had_key), AtomicU32::default());
        Ok(Self { file: file.into(), is_by_key, refusals })
    }

    /// Chooses the proof of the next join. The file is read each time: a token may have been added.
    pub async fn prepare(&self, signer: &Signer) {
        let file = self.file.clone();
        let token = tokio::task::spawn_blocking(move || read(&file).ok()).await.ok().flatten();
        signer.join_with(token, self.is_by_key.load(Ordering::Relaxed));
    }

    /// Records that a gateway refused the last proof: the next join has the other one.
    pub fn refused(&self, e: &Error) {
        self.is_by_key.fetch_xor(true, Ordering::Relaxed);
        if self.refusals.fetch_add(1, Ordering::Relaxed) % REFUSALS_PER_LINE == 1 {
            tracing::error!(
                file = %self.file.display(),
                error = %e,
                "the cluster accepts neither the join token in this file nor the key of this node: \
                 write a token of `forebay node join-token create` to the file"
            );
        }
    }
}

fn read(file: &Path) -> Result<ClusterSecret> {
    let text = secret_file::read_text("cluster.join_token_file", file).map_err(|e| {
        // A file that other users can read keeps its hint.
        match file.exists() {
            true => e,
            false => e.hint("make one with `forebay node join-token create`"),
        }
    })?;
    ClusterSecret::new(&text).map_err(|_| {
        Error::invalid(format!("{} has no join token", file.display()))
            .hint("make one with `forebay node join-token create`")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_start_needs_a_token_and_a_later_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let file = path.to_str().unwrap();
        assert!(TokenJoin::new(file, false).unwrap_err().message.contains("cannot read"));
        assert!(TokenJoin::new(file, true).is_ok());
        std::fs::write(&path, "short").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(TokenJoin::new(file, false).unwrap_err().message.contains("has no join token"));
        std::fs::write(&path, "fbj-0123456789-abcdef\n").unwrap();
        assert!(TokenJoin::new(file, false).is_ok());
    }

    #[test]
    fn a_refused_proof_is_followed_by_the_other_one() {
        let join = TokenJoin::new("absent", true).unwrap();
        let by_key = || join.is_by_key.load(Ordering::Relaxed);
        let refusal = Error::invalid("no");
        assert!(by_key());
        join.refused(&refusal);
        assert!(!by_key());
        join.refused(&refusal);
        assert!(by_key());
    }
}
