//! Rights: what a user may do with a bucket, its objects, or the cluster.

use serde::{Deserialize, Serialize};

/// One right. The values of all but [`Right::RunJobs`] are the bits of AIStore's access masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Right {
    GetObject = 1,
    HeadObject = 1 << 1,
    PutObject = 1 << 2,
    AppendObject = 1 << 3,
    DeleteObject = 1 << 4,
    MoveObject = 1 << 5,
    Promote = 1 << 6,
    UpdateObject = 1 << 7,
    HeadBucket = 1 << 8,
    ListObjects = 1 << 9,
    PatchBucket = 1 << 10,
    SetBucketAcl = 1 << 11,
    ListBuckets = 1 << 12,
    ShowCluster = 1 << 13,
    CreateBucket = 1 << 14,
    DestroyBucket = 1 << 15,
    MoveBucket = 1 << 16,
    Admin = 1 << 17,
    /// Starts, stops and watches jobs, without access to the data. AIStore has no such bit.
    RunJobs = 1 << 32,
}

impl Right {
    /// All rights, in the order of their bits.
    pub const ALL: [Self; 19] = [
        Self::GetObject,
        Self::HeadObject,
        Self::PutObject,
        Self::AppendObject,
        Self::DeleteObject,
        Self::MoveObject,
        Self::Promote,
        Self::UpdateObject,
        Self::HeadBucket,
        Self::ListObjects,
        Self::PatchBucket,
        Self::SetBucketAcl,
        Self::ListBuckets,
        Self::ShowCluster,
        Self::CreateBucket,
        Self::DestroyBucket,
        Self::MoveBucket,
        Self::Admin,
        Self::RunJobs,
    ];

    /// Reads a name in messages and in the API.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }

    /// The name in messages and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetObject => "get-object",
            Self::HeadObject => "head-object",
            Self::PutObject => "put-object",
            Self::AppendObject => "append-object",
            Self::DeleteObject => "delete-object",
            Self::MoveObject => "move-object",
            Self::Promote => "promote",
            Self::UpdateObject => "update-object",
            Self::HeadBucket => "head-bucket",
            Self::ListObjects => "list-objects",
            Self::PatchBucket => "patch-bucket",
            Self::SetBucketAcl => "set-bucket-acl",
            Self::ListBuckets => "list-buckets",
            Self::ShowCluster => "show-cluster",
            Self::CreateBucket => "create-bucket",
            Self::DestroyBucket => "destroy-bucket",
            Self::MoveBucket => "move-bucket",
            Self::Admin => "admin",
            Self::RunJobs => "run-jobs",
        }
    }
}

/// A set of rights, as a mask of their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(pub u64);

impl Rights {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(u64::MAX);

    pub const fn of(rights: &[Right]) -> Self {
        let (mut mask, mut i) = (0, 0);
        while i < rights.len() {
            mask |= rights[i] as u64;
            i += 1;
        }
        Self(mask)
    }

    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub const fn has(self, right: Right) -> bool {
        self.0 & right as u64 != 0
    }
}
