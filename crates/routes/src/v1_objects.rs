//! Objects over v1: `/v1/objects/BUCKET/NAME`. Gateways redirect to the owner and do not read the
//! body, so the rights for an action in the body are checked by the owner.

use forebay_core::access::Right;

use super::{By, Case, Need, On, Rule, ServedBy, Verb, need};

pub static TABLE: &[&Rule] =
    &[&GET, &HEAD, &PUT, &DELETE, &PATCH, &POST, &BUCKET_POST, &MOSS, &ETL_OBJECT];

const OBJECT: &[&str] = &["/v1/objects/{*name}"];

pub static GET: Rule = Rule::new(Verb::Get, OBJECT, "get", "Reads an object, or a part of it")
    .on(ServedBy::Both)
    .needs(&[need(&[Right::GetObject], On::Object)])
    .types("", "Bytes");

pub static HEAD: Rule = Rule::new(Verb::Head, OBJECT, "head", "The properties of an object")
    .on(ServedBy::Both)
    .needs(&[need(&[Right::HeadObject], On::Object)]);

const WRITE: &[Need] = &[need(&[Right::PutObject], On::Object)];

pub static PUT: Rule = Rule::new(Verb::Put, OBJECT, "put", "Writes an object")
    .on(ServedBy::Both)
    .needs(&[need(&[Right::PutObject], On::Object)])
    .types("Bytes", "")
    .cases(&[
        Case::new(
            By::Query("object_to"),
            "copy",
            &[need(&[Right::GetObject], On::Object), need(&[Right::PutObject], On::Destination)],
        ),
        // In the order in which the owner looks for them.
        Case::new(By::Query("uploadId"), "put-part", WRITE).types("Bytes", ""),
        Case::new(By::Query("partNumber"), "put-part", WRITE).types("Bytes", ""),
        Case::new(By::Query("archpath"), "put-member", WRITE).types("Bytes", ""),
        Case::new(By::Query("append_type"), "append", &[need(&[Right::AppendObject], On::Object)])
            .types("Bytes", ""),
    ]);

pub static DELETE: Rule =
    Rule::new(Verb::Delete, OBJECT, "", "Deletes an object, or another action on it")
        .on(ServedBy::Both)
        .needs(&[need(&[Right::DeleteObject, Right::PutObject, Right::RunJobs], On::Object)])
        .cases(&[
            Case::action("delete", &[need(&[Right::DeleteObject], On::Object)]),
            Case::action(
                "evict-listrange",
                &[need(&[Right::RunJobs, Right::DeleteObject], On::Object)],
            ),
            Case::action("mpt-abort", &[need(&[Right::PutObject], On::Object)]),
        ]);

pub static PATCH: Rule =
    Rule::new(Verb::Patch, OBJECT, "patch", "Changes the custom metadata of an object")
        .on(ServedBy::Both)
        .needs(&[need(&[Right::UpdateObject], On::Object)])
        .types("ActionMsg", "");

pub static POST: Rule = Rule::new(Verb::Post, OBJECT, "", "An action on an object")
    .on(ServedBy::Both)
    .needs(&[need(
        &[Right::PutObject, Right::HeadObject, Right::MoveObject, Right::GetObject, Right::RunJobs],
        On::Object,
    )])
    .cases(&[
        Case::action("mpt-upload", &[need(&[Right::PutObject], On::Object)])
            .types("ActionMsg", "UploadId"),
        Case::action("mpt-complete", &[need(&[Right::PutObject], On::Object)]),
        Case::action("check-lock", &[need(&[Right::HeadObject], On::Object)]),
        Case::action(
            "rename-obj",
            &[need(&[Right::MoveObject], On::Source), need(&[Right::MoveObject], On::Destination)],
        ),
        // The same as on `/v1/objects/BUCKET`, where the body names the object.
        Case::action("promote", &[need(&[Right::Promote], On::Destination)])
            .types("ActionMsg", "JobId"),
        Case::action("blob-download", &[need(&[Right::RunJobs, Right::GetObject], On::Selected)])
            .types("ActionMsg", "JobId"),
    ]);

pub static BUCKET_POST: Rule = Rule::new(
    Verb::Post,
    &["/v1/objects", "/v1/objects/"],
    "post",
    "An action on objects without a bucket, which is refused",
);

pub static MOSS: Rule = Rule::new(
    Verb::Get,
    &["/v1/ml/moss", "/v1/ml/moss/", "/v1/ml/moss/{bucket}"],
    "moss",
    "Reads many objects as one archive (GetBatch)",
)
.on(ServedBy::Both)
.needs(&[need(&[Right::GetObject], On::Entry)])
.types("MossRequest", "Archive");

pub static ETL_OBJECT: Rule = Rule::new(
    Verb::Get,
    &["/v1/etl/_object/{*name}"],
    "etl_object",
    "The plain object, for a transform that reads it itself",
)
.on(ServedBy::Both)
.needs(&[need(&[Right::GetObject], On::Object)])
.types("", "Bytes");
