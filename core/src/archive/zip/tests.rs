//! Promises of the zip reader, with the `zip` crate as the other opinion.
