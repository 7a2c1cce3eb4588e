//! Slices that arrive at a target with older ones.
#![allow(clippy::unwrap_used)]

use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::copies::requests::{Reason, RemoveRequest};
use forebay_core::copies::{CopyHead, CopyLook, SliceLook, Stamp};
use forebay_core::erasure::{Erasure, Form, Slice};
use forebay_core::object::ObjectMeta;
use forebay_core::state::{Command, Role};
use forebay_core::{ErrorCode, NodeId, Result, rebalance};
use forebay_store::RecordMeta;
use futures::StreamExt;

use super::SLICE_CHECKSUM;
use crate::object::replication::survey::SURVEY_PATH;
use crate::object::tests::Bench;

/// The only data slice: its bytes are those of the object.
const SLICE: Slice = Slice { data: 1, parity: 1, number: 0 };

/// A coded bucket on three targets, and a name whose data slice belongs to this one.
async fn coded() -> (Bench, BucketInfo, String) {
    coded_with(Form::Slice(SLICE), "http://127.0.0.1:1").await
}

/// The same with a name whose given form belongs to this target. `others`: address of the other
/// targets.
async fn coded_with(mine: Form, others: &str) -> (Bench, BucketInfo, String) {
    let bench = Bench::new(1 << 30).await;
    let plain = bench.bucket("b", false, Freshness::Never);
    for id in ["target-02", "target-03"] {
        bench.change(Command::Join {
            id: NodeId::new(id).unwrap(),
            role: Role::Target,
            url: others.into(),
            weight: 1,
            zone: String::new(),
            instance: 0,
            https: String::new(),
            external: String::new(),
        });
    }
    let erasure = Some(Erasure { data: 1, parity: 1, limit: 0 });
    let info = BucketInfo { erasure, ..plain };
    let state = bench.change(Command::SetBucket { info: info.clone().into() });
    let due = |name: &String| {
        let forms = rebalance::forms(&state, &info, name, 2);
        forms.iter().any(|(n, f)| n.id == *bench.service.me() && *f == mine)
    };
    let name = (0..).map(|n| format!("o{n}")).find(due).unwrap();
    (bench, info, name)
}

async fn arrives(
    bench: &Bench,
    (info, name): (&BucketInfo, &str),
    version: u64,
    (bytes, summed): (&'static str, &'static str),
) -> Result<()> {
    let mut hasher = SLICE_CHECKSUM.hasher();
    hasher.update(summed.as_bytes());
    let sum = Bytes::from(hasher.finish().unwrap().value);
    let body = [Ok(Bytes::from_static(bytes.as_bytes())), Ok(sum)];
    let meta = ObjectMeta { size: 2, version: version.to_string(), ..ObjectMeta::default() };
    let head = CopyHead { meta, epoch: 9, slice: Some(SLICE), ..CopyHead::default() };
    bench
        .service
        .replication()
        .receive((info, name, false), head, futures::stream::iter(body).boxed())
        .await
}

async fn versions(bench: &Bench, info: &BucketInfo, name: &str) -> Vec<u64> {
    let here = bench.service.replication().look_at_slices(info, name).await.unwrap();
    let mut versions: Vec<u64> = here.iter().map(|look| look.stamp.version).collect();
    versions.sort_unstable();
    versions
}

#[tokio::test]
async fn an_older_slice_stays_until_all_have_the_newer_one() {
    let (bench, info, name) = coded().await;
    let object = (&info, name.as_str());
    arrives(&bench, object, 2, ("v2", "v2")).await.unwrap();
    arrives(&bench, object, 3, ("v3", "v3")).await.unwrap();
    assert_eq!(versions(&bench, &info, &name).await, [2, 3]);
    arrives(&bench, object, 1, ("v1", "v1")).await.unwrap();
    arrives(&bench, object, 4, ("v4", "v4")).await.unwrap();
    assert_eq!(versions(&bench, &info, &name).await, [2, 4], "of the third nobody was told");
    let stamp = Stamp { epoch: 9, version: 4 };
    let all = RemoveRequest {
        bucket: info.bucket.clone(),
        name: name.clone(),
        stamp,
        by: None,
        reason: Reason::Replaced,
        older: false,
    };
    bench.service.replication().remove_older(&info, &all).await.unwrap();
    assert_eq!(versions(&bench, &info, &name).await, [4]);
    let undone = RemoveRequest { reason: Reason::Undone, ..all };
    bench.service.replication().remove_older(&info, &undone).await.unwrap();
    assert_eq!(versions(&bench, &info, &name).await, [0u64; 0]);
}

#[tokio::test]
async fn a_slice_that_is_not_what_its_checksum_says_is_not_taken() {
    let (bench, info, name) = coded().await;
    let object = (&info, name.as_str());
    let e = arrives(&bench, object, 1, ("v1", "v2")).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::ChecksumMismatch, "{e}");
    let e = arrives(&bench, object, 1, ("v", "v")).await.unwrap_err();
    assert!(e.message.contains("of a slice came"), "{e}");
    assert_eq!(versions(&bench, &info, &name).await, [0u64; 0]);
    arrives(&bench, object, 1, ("v1", "v1")).await.unwrap();
    let listed = bench.service.listing().names_here(info.id, "", 10).await.unwrap();
    assert_eq!(listed.0, [""; 0], "nothing that goes by the bucket sees it");
}

#[tokio::test]
async fn a_copy_of_what_was_small_beside_a_slice_of_what_it_became_is_looked_after() {
    let stamp = Stamp { epoch: 9, version: 3 };
    let slices = [0, 1].map(|number| SliceLook { slice: Slice { number, ..SLICE }, stamp });
    let complete = CopyLook { slices: slices.into(), ..CopyLook::default() };
    let killed = CopyLook { there: Some(Stamp { version: 2, ..stamp }), ..complete.clone() };
    for (look, left) in [(complete, 0), (killed, 1)] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let survey = post(async move || Json([look]));
        let others = Router::new().route(SURVEY_PATH, survey);
        tokio::spawn(async move { axum::serve(listener, others).await });
        let (bench, info, name) = coded_with(Form::Whole, &url).await;
        let mut work = bench.service.store().begin(info.id, &name, Some(2)).await.unwrap();
        work.write(Bytes::from_static(b"v3")).await.unwrap();
        let meta = ObjectMeta { version: "3".into(), ..ObjectMeta::default() };
        let meta = RecordMeta::of_object(meta, stamp.epoch, info.class);
        bench.service.store().commit(work, meta).await.unwrap();
        assert_eq!(
            bench.service.replication().objects_to_relocate(&info, vec![name]).await.len(),
            left
        );
    }
}
