//! One level of a listing: names with the prefix of a directory fold into the directory.
//!
//! Pure: names in, directories out.

use forebay_core::name::MAX_OBJECT_NAME;

/// The role of a name in a one-level listing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Level<'a> {
    Object,
    /// The directory that contains the name, with its slash.
    Directory(&'a str),
}

/// The role of a name in the level that `prefix` opens. With `enter`, a prefix that is the name of
/// a directory without its slash opens that directory.
pub(crate) fn level<'a>(name: &'a str, prefix: &str, enter: bool) -> Level<'a> {
    let rest = name.get(prefix.len()..).unwrap_or_default();
    let opens = enter && lacks_slash(prefix) && rest.starts_with('/');
    let begin = prefix.len() + usize::from(opens);
    match name.get(begin..).and_then(|rest| rest.find('/')) {
        Some(slash) => Level::Directory(&name[..=begin + slash]),
        None => Level::Object,
    }
}

/// Whether a prefix may be the name of a directory without its slash.
pub(crate) fn lacks_slash(prefix: &str) -> bool {
    !prefix.is_empty() && !prefix.ends_with('/')
}

/// A text that sorts after every name in `directory` and before every other name that follows.
pub(crate) fn past(directory: &str) -> String {
    let mut text = directory.to_owned();
    while text.len() <= MAX_OBJECT_NAME {
        text.push(char::MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn past_sorts_behind_the_directory_and_before_the_rest(
            inside in "\\PC{0,20}", other in "\\PC{1,20}",
        ) {
            let end = past("a/b/");
            let name = format!("a/b/{inside}");
            prop_assert!(name < end);
            prop_assert!(other.starts_with("a/b/") || (other < end) == (other.as_str() < "a/b/"));
        }
    }

    #[test]
    fn names_fold_at_the_first_slash_behind_the_prefix() {
        for enter in [false, true] {
            assert_eq!(level("a/b/c", "", enter), Level::Directory("a/"));
            assert_eq!(level("a/b/c", "a/", enter), Level::Directory("a/b/"));
            assert_eq!(level("a/b", "a/", enter), Level::Object);
            assert_eq!(level("a/", "a/", enter), Level::Object);
            assert_eq!(level("ab/c", "a", enter), Level::Directory("ab/"));
            assert_eq!(level("ab", "a", enter), Level::Object);
        }
        assert_eq!(level("a/b/c", "a", false), Level::Directory("a/"));
    }

    #[test]
    fn a_prefix_that_names_a_directory_opens_it_for_those_who_want_that() {
        assert_eq!(level("a/b/c", "a", true), Level::Directory("a/b/"));
        assert_eq!(level("a/b", "a", true), Level::Object);
        assert_eq!(level("a/", "a", true), Level::Object);
        assert_eq!(level("é/b/c", "é", true), Level::Directory("é/b/"));
    }
}
