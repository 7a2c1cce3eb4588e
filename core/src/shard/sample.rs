//! WebDataset samples: members that share a key are parts of one sample.

/// Splits a member's name at the first dot of its last component into key (with its folder) and
/// extension (without the dot). The extension is empty, and the key the whole name, when there is
/// no dot or it is the component's first character.
pub fn split(member: &str) -> (&str, &str) {
    let start = member.rfind('/').map_or(0, |i| i + 1);
    match member[start..].find('.') {
        None | Some(0) => (member, ""),
        Some(dot) => (&member[..start + dot], &member[start + dot + 1..]),
    }
}

/// Whether a member belongs to no sample: files that file systems and archivers add.
pub fn is_hidden(member: &str) -> bool {
    let base = member.rsplit('/').next().unwrap_or(member);
    let debris = matches!(base, "" | "." | ".." | ".DS_Store" | "Thumbs.db");
    debris || base.starts_with("._") || member.split('/').any(|part| part == "__MACOSX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_extensions_are_those_of_webdataset() {
        let all = [
            ("a/b.seg.png", ("a/b", "seg.png")),
            ("1.seg.png", ("1", "seg.png")),
            ("1.png", ("1", "png")),
            ("dir.v1/x.jpg", ("dir.v1/x", "jpg")),
            ("dir.v1/x", ("dir.v1/x", "")),
            ("README", ("README", "")),
            ("a.", ("a", "")),
            (".hidden", (".hidden", "")),
            ("a/.hidden.txt", ("a/.hidden.txt", "")),
            ("./a.txt", ("./a", "txt")),
            ("/abs/a.txt", ("/abs/a", "txt")),
            ("../up.txt", ("../up", "txt")),
            ("ü/ß.jpg", ("ü/ß", "jpg")),
            ("", ("", "")),
            ("a/", ("a/", "")),
        ];
        for (member, parts) in all {
            assert_eq!(split(member), parts, "{member}");
        }
        assert_eq!(split("1.seg.png").0, split("1.png").0);
    }

    #[test]
    fn debris_of_file_systems_is_hidden() {
        for member in ["._a.jpg", "x/._a.jpg", "__MACOSX/x/a.jpg", "a/.DS_Store", ".", "a/"] {
            assert!(is_hidden(member), "{member}");
        }
        for member in ["a.jpg", ".hidden", "_.jpg", "a/b._c", "..a"] {
            assert!(!is_hidden(member), "{member}");
        }
    }
}
