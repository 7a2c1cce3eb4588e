//! The nearest known name, for hints at typing errors.

/// The known name closest to a mistyped one, if any is close.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().max(wrong.len()) / 3)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_finds_its_name() {
        assert_eq!(nearest("clutser", ["cluster", "listen"]), Some("cluster"));
        assert_eq!(nearest("hgih", ["high", "low"]), Some("high"));
        assert_eq!(nearest("zzzzzz", ["high", "low"]), None);
    }
}
