//! Shares of all requests, by their ids.

/// The last id of a share of all ids, which are spread evenly; 0 for no share. All nodes that a request
/// passes decide alike.
pub(crate) fn last_id_of(share: f64) -> u64 {
    // A float of `u64::MAX` rounds up to 2^64, and the conversion saturates.
    (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_as_many_ids() {
        assert_eq!((last_id_of(0.0), last_id_of(1.0)), (0, u64::MAX));
        assert_eq!(last_id_of(0.5), 1 << 63);
        assert_eq!((last_id_of(-1.0), last_id_of(7.0)), (0, u64::MAX));
    }
}
