//! Temporary objects of processes that ended before they deleted them.

use forebay_core::error::ErrorCode;
use forebay_node::clock::unix_s;

use super::TEMPORARY;
use crate::Backend;

/// Younger ones may be in use: reading a composition takes less time.
const OLD_S: u64 = 3600;
const PAGE: usize = 1000;

/// Deletes the leftovers in a bucket. Returns how many there were. An object that cannot be deleted
/// stays for the next time.
pub async fn delete_leftovers(inner: &dyn Backend) -> u64 {
    let (mut from, mut swept) = (TEMPORARY.to_owned(), 0);
    loop {
        let Ok(page) = inner.describe(&from, PAGE).await else { return swept };
        let Some(last) = page.last().map(|d| d.name.clone()) else { return swept };
        for found in page.iter().filter(|found| is_left(&found.name, unix_s())) {
            match inner.delete(&found.name).await {
                Ok(()) => swept += 1,
                Err(e) if e.code == ErrorCode::ObjectNotFound => {}
                Err(e) => {
                    tracing::warn!(object = found.name, error = %e, "a temporary object stays");
                    return swept;
                }
            }
        }
        if !last.starts_with(TEMPORARY) {
            break;
        }
        // Starts behind the last name.
        from = last + "\0";
    }
    if swept > 0 {
        tracing::info!(swept, "temporary objects of earlier compositions were deleted");
    }
    swept
}

fn is_left(name: &str, now_s: u64) -> bool {
    let made = name.strip_prefix(TEMPORARY).and_then(|rest| rest.split_once('-'));
    let made = made.and_then(|(seconds, _)| seconds.parse::<u64>().ok());
    made.is_some_and(|made| made + OLD_S < now_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_objects_of_long_ago_are_left() {
        let now = 1_800_000_000;
        for (name, left) in [
            (".forebay-composed/1700000000-ab", true),
            (".forebay-composed/1799999999-ab", false),
            (".forebay-composed/mine", false),
            ("1700000000-ab", false),
        ] {
            assert_eq!(is_left(name, now), left, "{name}");
        }
    }
}
