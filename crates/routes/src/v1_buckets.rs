//! Buckets over v1: one path, the action in the body.

use forebay_core::access::Right;

use super::{By, Case, Need, On, Rule, Verb, Who, need};

pub static TABLE: &[&Rule] = &[&GET, &HEAD, &POST, &PUT, &DELETE, &PATCH, &EASY];

const BUCKET: &[&str] = &["/v1/buckets/{*bucket}", "/v1/buckets", "/v1/buckets/"];

/// Copies read each selected object and write the results.
const COPY: &[Need] = &[
    need(&[Right::GetObject], On::Source),
    need(&[Right::PutObject], On::Destination),
    need(&[Right::CreateBucket], On::Created),
];
/// A transform is also a job.
const TRANSFORM: &[Need] = &[
    need(&[Right::GetObject], On::Source),
    need(&[Right::RunJobs], On::Selected),
    need(&[Right::PutObject], On::Destination),
    need(&[Right::CreateBucket], On::Created),
];
const RUN: &[Need] = &[need(&[Right::RunJobs], On::Selected)];
const LIST: &[Need] = &[need(&[Right::ListObjects], On::Selected)];

pub static GET: Rule = Rule::new(Verb::Get, BUCKET, "", "Lists objects or buckets").cases(&[
    Case::action("list", LIST).types("ListMsg", "ObjectPage"),
    Case::action("summary-bck", LIST).types("SummaryMsg", "BucketSummaries"),
    Case::action("show-inventory", LIST).types("ActionMsg", "Inventories"),
]);

pub static HEAD: Rule = Rule::new(Verb::Head, BUCKET, "head_bucket", "The properties of a bucket")
    .needs(&[need(&[Right::HeadBucket], On::Bucket)])
    .cases(&[Case::new(By::Query("bsumm_remote"), "bucket_info", LIST)]);

pub static POST: Rule =
    Rule::new(Verb::Post, BUCKET, "", "Creates a bucket, or starts a job on it").cases(&[
        Case::action(
            "create-bck",
            &[
                need(&[Right::CreateBucket], On::Bucket),
                need(&[Right::GetObject], On::Backend),
                need(&[Right::PutObject], On::Backend),
                need(&[Right::SetBucketAcl], On::AccessMask),
            ],
        ),
        Case::action("copy-bck", COPY).types("ActionMsg", "JobId"),
        Case::action("copy-listrange", COPY).types("ActionMsg", "JobId"),
        Case::action("etl-bck", TRANSFORM).types("ActionMsg", "JobId"),
        Case::action("etl-listrange", TRANSFORM).types("ActionMsg", "JobId"),
        Case::action(
            "move-bck",
            &[
                need(&[Right::MoveBucket], On::Source),
                need(&[Right::MoveBucket, Right::CreateBucket], On::Destination),
            ],
        )
        .types("ActionMsg", "JobId"),
        Case::action("prefetch-listrange", RUN).types("ActionMsg", "JobId"),
        Case::action("scrub", RUN).types("ActionMsg", "JobId"),
        Case::action("index-shard", RUN).types("ActionMsg", "JobId"),
        Case::action("rechunk", RUN).types("ActionMsg", "JobId"),
        Case::action("create-inventory", RUN).types("ActionMsg", "JobId"),
        Case::action("make-n-copies", &[need(&[Right::PatchBucket], On::Bucket)])
            .types("ActionMsg", "JobId"),
        Case::action("ec-encode", &[need(&[Right::PatchBucket], On::Bucket)])
            .types("ActionMsg", "JobId"),
        Case::action(
            "write-back",
            &[need(&[Right::GetObject], On::Source), need(&[Right::PutObject], On::Destination)],
        )
        .types("ActionMsg", "JobId"),
    ]);

pub static PUT: Rule = Rule::new(Verb::Put, BUCKET, "", "Writes objects of a bucket into a shard")
    .cases(&[Case::action(
        "archive",
        &[need(&[Right::GetObject], On::Source), need(&[Right::PutObject], On::Destination)],
    )
    .types("ActionMsg", "JobId")]);

pub static DELETE: Rule =
    Rule::new(Verb::Delete, BUCKET, "", "Deletes a bucket, or starts a job that removes objects")
        .cases(&[
            Case::action("destroy-bck", &[need(&[Right::DestroyBucket], On::Bucket)]),
            Case::action("evict-remote-bck", &[need(&[Right::DestroyBucket], On::Bucket)]),
            Case::action("delete-listrange", &[need(&[Right::DeleteObject], On::Selected)])
                .types("ActionMsg", "JobId"),
            Case::action(
                "evict-listrange",
                &[need(&[Right::RunJobs, Right::DeleteObject], On::Selected)],
            )
            .types("ActionMsg", "JobId"),
            Case::action("destroy-inventory", RUN),
        ]);

pub static PATCH: Rule = Rule::new(Verb::Patch, BUCKET, "", "Changes the properties of a bucket")
    .cases(&[
        Case::action(
            "set-bprops",
            &[
                need(&[Right::PatchBucket], On::Bucket),
                need(&[Right::GetObject], On::Backend),
                need(&[Right::PutObject], On::Backend),
                need(&[Right::SetBucketAcl], On::AccessMask),
            ],
        ),
        Case::action(
            "reset-bprops",
            &[
                need(&[Right::PatchBucket], On::Bucket),
                need(&[Right::SetBucketAcl], On::AccessMask),
            ],
        ),
    ]);

pub static EASY: Rule = Rule::new(
    Verb::Any,
    &[
        "/ais/{*rest}",
        "/ais",
        "/ais/",
        "/gs",
        "/gs/",
        "/gs/{*rest}",
        "/az",
        "/az/",
        "/az/{*rest}",
        "/ht",
        "/ht/",
        "/ht/{*rest}",
    ],
    "easy_url",
    "A short form of a URL of v1, whose rule applies",
)
.who(Who::User);
