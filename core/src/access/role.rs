//! The roles that every cluster has.

use super::right::{Right, Rights};

/// A named set of rights; bound to buckets and prefixes by a [`Binding`](super::Binding).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sees the cluster, the buckets, and the names of objects.
    Viewer,
    /// A viewer who also reads objects.
    Reader,
    /// A reader who also writes and deletes objects, and runs jobs.
    Writer,
    /// Everything.
    Admin,
    /// Runs jobs on buckets whose objects it may not read.
    Jobs,
}

impl Role {
    pub const ALL: [Self; 5] = [Self::Viewer, Self::Reader, Self::Writer, Self::Admin, Self::Jobs];

    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Admin => "admin",
            Self::Jobs => "jobs",
        }
    }

    /// The permissions of the role, in one sentence.
    pub fn description(self) -> &'static str {
        match self {
            Self::Viewer => "Sees the cluster, the buckets, and the names of objects",
            Self::Reader => "A viewer who also reads objects",
            Self::Writer => "A reader who also writes and deletes objects, and runs jobs",
            Self::Admin => "Everything",
            Self::Jobs => "Runs jobs on buckets whose objects it may not read",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    pub const fn rights(self) -> Rights {
        const VIEWER: Rights = Rights::of(&[
            Right::ListBuckets,
            Right::ShowCluster,
            Right::HeadBucket,
            Right::ListObjects,
            Right::HeadObject,
        ]);
        const READER: Rights = VIEWER.with(Rights::of(&[Right::GetObject]));
        match self {
            Self::Viewer => VIEWER,
            Self::Reader => READER,
            Self::Writer => READER.with(Rights::of(&[
                Right::PutObject,
                Right::AppendObject,
                Right::DeleteObject,
                Right::MoveObject,
                Right::UpdateObject,
                Right::RunJobs,
            ])),
            Self::Admin => Rights::ALL,
            Self::Jobs => Rights::of(&[
                Right::ListBuckets,
                Right::ShowCluster,
                Right::HeadBucket,
                Right::RunJobs,
            ]),
        }
    }
}
