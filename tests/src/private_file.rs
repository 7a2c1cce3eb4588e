//! Files with secrets, which nodes accept only if nobody else can read them.

use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes a file that only its owner can read.
pub fn write_private(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = file.unwrap();
    file.write_all(content.as_ref()).unwrap();
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
}
