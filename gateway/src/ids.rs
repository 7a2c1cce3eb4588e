//! Generates ids: of the cluster, of jobs, of listings.

use rand::RngExt;
use rand::distr::Alphanumeric;

/// `prefix` and 12 random letters and digits: long enough for v1 (at least 9 characters), and
/// unique without asking other gateways.
pub(crate) fn mint(prefix: &str) -> String {
    let mut id = prefix.to_owned();
    id.extend(rand::rng().sample_iter(Alphanumeric).take(12).map(char::from));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_long_enough_and_differ() {
        let (a, b) = (mint("x-"), mint("x-"));
        assert!(a.len() >= 9 && a.starts_with("x-") && a != b);
    }
}
