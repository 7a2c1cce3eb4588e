//! The requests of other targets about objects here, and about older versions of them. Each starts an
//! operation of the engine.

use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::copies::requests::{
    EnsureRequest, LookRequest, Reason, RemoveRequest, SendRequest, SendVersionsRequest,
};
use forebay_core::copies::{CopyHead, CopyLook, Ensured};
use forebay_core::erasure::Form;
use forebay_core::replication::{IncomingCopy, LookMode, ObsoleteForms, ReceiveOutcome, Removal};
use forebay_core::{NodeId, Result};

use futures::future::BoxFuture;

use super::Replication;
use super::content::Content;
use super::transfer::{IncomingTransfer, stored_id};
use super::work::Work;
use crate::object::Key;

impl Replication {
    /// The state of an object here, after writes in progress have ended.
    pub(crate) async fn look(&self, info: &BucketInfo, request: &LookRequest) -> Result<CopyLook> {
        let mode = if request.in_part { LookMode::FinalInPart } else { LookMode::Final };
        self.look_stored(Work::stored(info, &request.name, request.older), mode).await
    }

    /// The state of an object here at this moment.
    pub(crate) async fn peek(&self, info: &BucketInfo, request: &LookRequest) -> Result<CopyLook> {
        let mode = match request.in_part {
            true => LookMode::ImmediateInPart,
            false => LookMode::Immediate,
        };
        self.look_stored(Work::stored(info, &request.name, request.older), mode).await
    }

    pub(super) async fn look_here(
        &self,
        info: &BucketInfo,
        name: &str,
        mode: LookMode,
    ) -> Result<CopyLook> {
        self.look_stored(Work::new(info, name), mode).await
    }

    async fn look_stored(&self, work: Work<'_>, mode: LookMode) -> Result<CopyLook> {
        self.drive(&work, self.engine().look(work.object.clone(), mode)).await
    }

    /// Handles another target's notice that copies older than the request's stamp were superseded
    /// or removed, by the node in the request.
    pub(crate) async fn remove_older(
        &self,
        info: &BucketInfo,
        request: &RemoveRequest,
    ) -> Result<()> {
        let work = Work::stored(info, &request.name, request.older);
        let (object, stamp, by) = (work.object.clone(), request.stamp, request.by.clone());
        let forms = match request.reason {
            Reason::Undone => ObsoleteForms::Unacknowledged(stamp),
            Reason::Replaced => ObsoleteForms::Before(stamp),
            Reason::Deleted | Reason::Superseded => {
                let removal = Removal { stamp, by, written: request.reason == Reason::Superseded };
                return self.drive(&work, self.engine().remove_older(object, removal)).await;
            }
        };
        self.drive(&work, self.engine().drop_forms(object, forms, by)).await
    }

    /// Sends the copy of an object here to a target that requested it and where it belongs.
    pub(crate) async fn send_on_request(
        &self,
        info: &BucketInfo,
        request: SendRequest,
    ) -> Result<()> {
        let work = Work::new(info, &request.name);
        let sending = self.engine().send_on_request(work.object.clone(), request.by, request.anew);
        self.drive(&work, sending).await
    }

    /// Sends the older versions of an object here to its owner, which requests them.
    pub(crate) async fn hand_over_versions(
        &self,
        info: &BucketInfo,
        request: SendVersionsRequest,
    ) -> Result<()> {
        let work = Work::new(info, &request.name);
        let sending = self.engine().hand_over_versions(work.object.clone(), request.by);
        self.drive(&work, sending).await
    }

    /// Sends an older version here to a target where it belongs. Boxed, because an operation on the
    /// object waits for it.
    pub(super) fn send_version<'a>(
        &'a self,
        info: &'a BucketInfo,
        version: String,
        to: NodeId,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let work = Work::stored(info, &version, true);
            let sending = self.engine().send_on_request(work.object.clone(), to, false);
            self.drive(&work, sending).await
        })
    }

    /// Brings all forms of an object that this target owns to their places.
    pub(crate) async fn ensure(
        &self,
        info: &BucketInfo,
        request: &EnsureRequest,
    ) -> Result<Ensured> {
        let _turn = self.0.ensuring.lock(&Key::new(info, &request.name)).await;
        let work = Work::new(info, &request.name);
        let ensuring = self.engine().ensure(work.object.clone(), request.stamp);
        self.drive(&work, ensuring).await
    }

    /// Accepts a copy or slice that belongs here, unless the state here is as new. `older`: it is an
    /// older version of its object.
    pub(crate) async fn receive(
        &self,
        (info, name, older): (&BucketInfo, &str, bool),
        head: CopyHead,
        body: BodyStream,
    ) -> Result<()> {
        let transfer = IncomingTransfer {
            bucket_id: stored_id(info, older),
            name: name.to_owned(),
            uri: info.bucket.object_uri(name),
            head,
            body,
            received: None,
        };
        let head = &transfer.head;
        let copy = IncomingCopy {
            stamp: head.stamp(),
            form: head.slice.map_or(Form::Whole, Form::Slice),
            size: head.meta.size,
            from: head.from.clone(),
            written: head.written,
        };
        let content = Content::Transfer(Box::new(transfer));
        let work = Work::stored_with_content(info, name, older, content);
        let receiving = self.engine().receive(work.object.clone(), copy);
        if self.drive(&work, receiving).await? == ReceiveOutcome::Known
            && let Content::Transfer(mut transfer) = work.content.into_inner()
            && transfer.received.is_none()
        {
            transfer.drain().await?;
        }
        Ok(())
    }
}
