//! Who may do what: rights, roles, and the decision on one request. No I/O.

mod decision;
mod right;
mod role;

pub use self::decision::{Access, Binding, Scope, UserAccess, unauthenticated};
pub use self::right::{Right, Rights};
pub use self::role::Role;
