//! Look-ups of a version for a reader, while the version may move.

use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, ErrorCode, Result};

use crate::object::versions::version_of;

/// Attempts to find a version that moves between the look-up and the open.
const LOOKS: usize = 5;

/// Counts look-ups of a version. Its location may change before it is opened there: its object is
/// replaced, or it moves to another target.
#[derive(Debug, Default)]
pub(crate) struct VersionLooks(usize);

impl VersionLooks {
    /// Whether the opened record is not the requested version, so that it has to be looked up
    /// again. An error after too many attempts.
    pub(crate) fn again(
        &mut self,
        info: &BucketInfo,
        version: Option<&str>,
        opened: Result<&ObjectMeta, &Error>,
    ) -> Result<bool> {
        let Some(version) = version.filter(|_| info.keeps_versions()) else { return Ok(false) };
        let moved = match opened {
            Ok(object) => version_of(&object.custom) != version,
            Err(e) => e.code == ErrorCode::ObjectNotFound,
        };
        self.0 += 1;
        if moved && self.0 == LOOKS {
            let text = format!("version {version} in {} is being moved", info.bucket);
            return Err(Error::unavailable(text).retry_after(1));
        }
        Ok(moved)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::bucket::Versioning;
    use forebay_core::history::VERSION;
    use forebay_core::{Bucket, Provider};

    use super::*;

    #[test]
    fn what_replaced_a_version_is_not_taken_for_it_and_a_version_that_moves_is_not_missing() {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        let mut newer = ObjectMeta::default();
        newer.custom.insert(VERSION.into(), "b".into());
        let missing = Error::new(ErrorCode::ObjectNotFound, "none");
        let mut looks = VersionLooks::default();
        assert!(!looks.again(&info, Some("null"), Err(&missing)).unwrap(), "there are none");
        info.s3.versioning = Versioning::Enabled;
        assert!(!looks.again(&info, None, Ok(&newer)).unwrap());
        assert!(!looks.again(&info, Some("b"), Ok(&newer)).unwrap());
        assert!(looks.again(&info, Some("a"), Ok(&newer)).unwrap());
        assert!(looks.again(&info, Some("a"), Err(&missing)).unwrap());
        let mut looks = VersionLooks::default();
        let again = (0..LOOKS).map(|_| looks.again(&info, Some("a"), Err(&missing))).last();
        assert_eq!(again.unwrap().unwrap_err().code, ErrorCode::Unavailable);
    }
}
