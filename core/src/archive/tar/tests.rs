//! Promises of the TAR readers, with the `tar` crate as the other opinion.
