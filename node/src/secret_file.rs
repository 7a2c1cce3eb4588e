//! Files with secrets: their content, and the check that other users of the machine cannot read them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forebay_core::{Error, Result};

/// Bits of a file's mode by which users outside its group may use it.
const OTHERS: u32 = 0o007;
/// Bits by which the users of its group may use it.
const GROUP: u32 = 0o070;
/// Bits by which the users of its group may change it.
const GROUP_WRITES: u32 = 0o020;

/// Groups of a process that are looked at; Linux allows as many.
const MAX_GROUPS: usize = 65_536;

/// The user and the groups of this process.
struct Process {
    user: u32,
    groups: Vec<u32>,
}

impl Process {
    #[allow(unsafe_code)]
    fn this() -> Self {
        let mut groups = vec![0; MAX_GROUPS];
        // SAFETY: the functions return numbers, and the buffer has the length that is given.
        let (user, own, count) = unsafe {
            let count = libc::getgroups(MAX_GROUPS as libc::c_int, groups.as_mut_ptr());
            (libc::geteuid(), libc::getegid(), count)
        };
        // Negative: there are more groups than fit, and none is known.
        groups.truncate(usize::try_from(count).unwrap_or(0));
        groups.push(own);
        Self { user, groups }
    }
}

/// Owner, group and mode of a file.
struct Ownership {
    user: u32,
    group: u32,
    mode: u32,
}

/// Returns the content of a file with a secret. `setting` names the file in errors.
///
/// The error names the mode if users other than the owner could read the file. A group may read a file
/// that belongs to another user, such as root: the node reads a Kubernetes secret (mode 0440, group
/// `fsGroup`) or a credential of systemd only by its group.
pub fn read(setting: &str, path: &Path) -> Result<Vec<u8>> {
    let unreadable = |e| {
        let hint = "the user of the node must be able to read it";
        Error::invalid(format!("{setting}: cannot read {}: {e}", path.display())).hint(hint)
    };
    let content = std::fs::read(path).map_err(unreadable)?;
    // Of the file behind links: a Kubernetes secret is a link to a file of the current version.
    let about = std::fs::metadata(path).map_err(unreadable)?;
    // A pipe or a descriptor, as a shell makes it for `<(command)`, has one reader.
    if about.is_file() {
        let file = Ownership { user: about.uid(), group: about.gid(), mode: about.mode() & 0o777 };
        check(setting, path, &file, &Process::this())?;
    }
    Ok(content)
}

/// Like [`read`], for text.
pub fn read_text(setting: &str, path: &Path) -> Result<String> {
    String::from_utf8(read(setting, path)?)
        .map_err(|_| Error::invalid(format!("{setting}: {} is not text", path.display())))
}

/// Refuses a file that users other than its owner can use, except by the group as [`read`] has it.
fn check(setting: &str, path: &Path, file: &Ownership, process: &Process) -> Result<()> {
    let who = if file.mode & OTHERS != 0 {
        "every user of this machine"
    } else if file.mode & GROUP != 0 && !is_by_group(file, process) {
        "other users of its group"
    } else {
        return Ok(());
    };
    let path = path.display();
    let text = format!("{setting}: {who} can use {path} (mode {:03o})", file.mode);
    let hint = format!("chmod 600 {path} (in Kubernetes, defaultMode: 0440 of the volume)");
    Err(Error::invalid(text).hint(hint))
}

/// Whether the group is how this process gets to read the file: the file belongs to another user, or,
/// in a container that runs as root, to root.
fn is_by_group(file: &Ownership, process: &Process) -> bool {
    let is_foreign = file.user != process.user || process.user == 0;
    // Root's group has no other users.
    let is_member = file.group == 0 || process.groups.contains(&file.group);
    file.mode & GROUP_WRITES == 0 && is_foreign && is_member
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The user, and the group that the user has.
    const ME: (u32, u32) = (1000, 1000);
    const ROOT: (u32, u32) = (0, 0);

    fn refused(process: (u32, u32), file: (u32, u32), mode: u32) -> Option<Error> {
        let file = Ownership { user: file.0, group: file.1, mode };
        let process = Process { user: process.0, groups: vec![process.1] };
        check("cluster.secret_file", Path::new("/s"), &file, &process).err()
    }

    #[test]
    fn a_file_that_every_user_can_read_is_refused_with_the_command_that_helps() {
        for mode in [0o644, 0o604, 0o666, 0o601] {
            let error = refused(ME, ME, mode).unwrap();
            assert!(error.message.contains("every user of this machine"), "{error}");
            assert!(error.message.contains(&format!("/s (mode {mode:03o})")), "{error}");
            assert!(error.hint.unwrap().starts_with("chmod 600 /s"));
        }
        for mode in [0o600, 0o400] {
            assert!(refused(ME, ME, mode).is_none(), "{mode:o}");
        }
    }

    #[test]
    fn the_group_may_read_a_file_of_root_and_no_file_of_the_user() {
        let error = refused(ME, ME, 0o640).unwrap();
        assert!(error.message.contains("other users of its group"), "{error}");
        for (process, file, is_refused) in [
            // A secret of Kubernetes, with the fsGroup of the pod; the pod of the last one runs as root.
            ((65532, 65532), (0, 65532), false),
            ((0, 65532), (0, 65532), false),
            // A credential of systemd, which an access control list opens for the user.
            (ME, ROOT, false),
            (ROOT, ROOT, false),
            (ME, (0, 7), true),
            (ROOT, (0, 100), true),
        ] {
            assert_eq!(refused(process, file, 0o440).is_some(), is_refused, "{process:?} {file:?}");
        }
        assert!(refused((65532, 65532), (0, 65532), 0o460).is_some());
    }

    #[test]
    fn a_link_is_judged_by_the_file_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("..data"), dir.path().join("secret"));
        std::fs::write(&file, "text\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
        assert_eq!(read_text("a", &link).unwrap(), "text\n");
        std::fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
        assert!(read("a", &link).is_err());
    }
}
