//! The scope of a kind of job: which objects it processes on a target, and where their names come
//! from.

/// An object to process.
pub(super) struct Item {
    pub(super) name: String,
    /// If the listing has it.
    pub(super) size: Option<u64>,
}

impl From<String> for Item {
    fn from(name: String) -> Self {
        Self { name, size: None }
    }
}

/// The source of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The list of the client.
    Named,
    /// The copies on this target.
    Here,
    /// The listing of the backend.
    Backend,
}

/// The objects that a kind of job processes on a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Whether every target processes its own copies, independent of the owner of their objects.
    pub(super) local: bool,
    /// The listings of a prefix, if the bucket has a backend; otherwise the objects here.
    pub(super) sources: &'static [Source],
    /// The content of a listing of this target.
    pub(super) listed: Listed,
}

impl Scope {
    /// The objects that this target owns; those of the backend if the bucket has one.
    pub(super) const OWNED: Self =
        Self { local: false, sources: &[Source::Backend], listed: Listed::Objects };

    /// The copies on this target.
    pub(super) const fn copies_here(listed: Listed) -> Self {
        Self { local: true, sources: &[Source::Here], listed }
    }
}

/// The content of a listing of this target.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listed {
    /// The objects that clients see.
    Objects,
    /// Cached copies, partial ones too.
    Copies,
    /// Everything that is stored of the objects.
    Anything,
}
