//! The file with the node's own key: 32 random bytes in base64url, made at the first start.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_core::sign::{NodeKey, SEED_BYTES};
use forebay_core::{Error, Result};

/// The file's name in the node's folder.
pub const FILE: &str = "node.key";

/// Reads the key in this folder, or makes one. Without a folder, the key lasts as long as the
/// process. Blocks on the disk.
pub fn load_or_make(dir: &str) -> Result<NodeKey> {
    if dir.is_empty() {
        return NodeKey::of_seed(&new_seed()?);
    }
    let dir = Path::new(dir);
    match load(dir)? {
        Some(key) => Ok(key),
        None => make(dir),
    }
}

/// The key in this folder; `None` if it has none.
pub fn load(dir: &Path) -> Result<Option<NodeKey>> {
    let path = dir.join(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(Error::invalid(format!("cannot read the key {}: {e}", path.display())));
        }
    };
    let seed = URL_SAFE_NO_PAD.decode(text.trim()).ok().and_then(|seed| seed.try_into().ok());
    let seed: [u8; SEED_BYTES] = seed.ok_or_else(|| {
        Error::invalid(format!("the key of this node in {} is unreadable", path.display()))
            .hint("remove the file: the node gets another key when its former one counts as down")
    })?;
    NodeKey::of_seed(&seed).map(Some)
}

fn make(dir: &Path) -> Result<NodeKey> {
    let seed = new_seed()?;
    let (path, part) = (dir.join(FILE), dir.join("node.key.part"));
    let write = || {
        fs::create_dir_all(dir)?;
        // An interrupted start leaves this file.
        match fs::remove_file(&part) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        writeln!(file, "{}", URL_SAFE_NO_PAD.encode(seed))?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|e| {
        Error::invalid(format!("cannot write the key of this node to {}: {e}", path.display()))
    })?;
    NodeKey::of_seed(&seed)
}

fn new_seed() -> Result<[u8; SEED_BYTES]> {
    let mut seed = [0; SEED_BYTES];
    rand::fill(&mut seed).map_err(|_| Error::internal("this machine gives no random bytes"))?;
    Ok(seed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_node_keeps_the_key_of_its_first_start_in_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("node");
        let folder = folder.to_str().unwrap();
        let first = load_or_make(folder).unwrap();
        assert_eq!(load_or_make(folder).unwrap().public(), first.public());
        let path = Path::new(folder).join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "broken").unwrap();
        assert!(load_or_make(folder).unwrap_err().message.contains("unreadable"));
        fs::remove_file(&path).unwrap();
        assert_ne!(load_or_make(folder).unwrap().public(), first.public());
        assert_ne!(load_or_make("").unwrap().public(), load_or_make("").unwrap().public());
    }
}
