//! Accepts slices, and serves reads of slices by other targets.

use bytes::BytesMut;
use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::Checksum;
use forebay_core::copies::{CopyHead, CopyRequest};
use forebay_core::erasure::{Form, PLACES, Slice};
use forebay_core::size::ByteRange;
use forebay_core::state::ClusterState;
use forebay_core::{Error, ErrorCode, Result, native, rebalance};
use futures::StreamExt;

use super::coder::Layout;
use super::{SUM, SUM_LEN, object_of, slice_meta};
use crate::backend::BodyStream;
use crate::object::Key;
use crate::object::replication::Replication;
use crate::object::replication::transfer::Which;

/// Path of reads of slices.
pub(crate) const READ_PATH: &str = "/internal/v1/copy/slice";

impl Replication {
    /// Accepts a slice that belongs here, unless the state here is as new. A slice of an older
    /// version stays until the writer reports that all holders have the new one.
    pub(crate) async fn accept_slice(
        &self,
        (info, name): (&BucketInfo, &str),
        head: CopyHead,
        slice: Slice,
        mut body: BodyStream,
    ) -> Result<()> {
        let which = Which { info, name, older: false };
        let uri = info.bucket.object_uri(name);
        if !slice.is_valid() {
            return Err(Error::invalid(format!("{uri}: there is no slice {slice:?}")));
        }
        self.check_slice_arrival(&self.state(), which, &head, slice)?;
        let form = Form::Slice(slice);
        let request = CopyRequest { in_part: true, ..CopyRequest::new(&info.bucket, name) };
        if self.peek(info, &request).await?.knows_form(form, head.stamp()) {
            while body.next().await.transpose()?.is_some() {}
            return Ok(());
        }
        let len = Layout::of(slice, head.meta.size).slice_len();
        let id = slice.id(info.id, self.free_place(info, name, slice).await?);
        let mut work = self.store().begin(id, name, Some(len)).await?;
        let (mut hasher, mut told) = (SUM.hasher(), BytesMut::new());
        while let Some(mut chunk) = body.next().await.transpose()? {
            let rest = usize::try_from(len - work.written()).unwrap_or(usize::MAX);
            if rest < chunk.len() {
                told.extend_from_slice(&chunk.split_off(rest));
            }
            if told.len() as u64 > SUM_LEN {
                return Err(Error::invalid(format!("{uri}: too much came of a slice")));
            }
            hasher.update(&chunk);
            if !chunk.is_empty() {
                work.write(chunk).await?;
            }
        }
        let came = work.written() + told.len() as u64;
        if came != len + SUM_LEN {
            let text = format!("{uri}: {came} of {} bytes of a slice came", len + SUM_LEN);
            return Err(Error::invalid(text));
        }
        let sum = Checksum { kind: SUM, value: String::from_utf8_lossy(&told).into_owned() };
        let got = hasher.finish().ok_or_else(|| Error::internal("a slice has no checksum"))?;
        got.expect(&sum, &uri)?;

        let _guard = self.local().locks.lock(&Key::new(info, name)).await;
        let state = self.state();
        self.check_slice_arrival(&state, which, &head, slice)?;
        if self.peek(info, &request).await?.knows_form(form, head.stamp()) {
            return Ok(());
        }
        if slice.id(info.id, self.free_place(info, name, slice).await?) != id
            && self.store().get(id, name).await?.is_some()
        {
            // Another version arrived meanwhile; it must stay, in case this write fails.
            return Err(
                Error::unavailable(format!("{uri}: two slices came at once")).retry_after(1)
            );
        }
        self.check_not_removed(&state, which, &head).await?;
        let meta = slice_meta(info, &head, got)?;
        self.0.slice_ids.note(id);
        self.store().commit(work, meta).await.map(drop)
    }

    /// The place for one more version of a slice. The oldest one stays: a newer one may not be on
    /// all holders yet.
    async fn free_place(&self, info: &BucketInfo, name: &str, slice: Slice) -> Result<u8> {
        let mut oldest = None;
        for place in 0..PLACES {
            let stamp = self.store().get(slice.id(info.id, place), name).await?.map(|r| r.stamp());
            if let Some(stamp) = stamp
                && oldest.is_none_or(|(old, _)| stamp < old)
            {
                oldest = Some((stamp, place));
            }
        }
        Ok(oldest.map_or(0, |(_, place)| (place + 1) % PLACES))
    }

    /// An error if a slice does not belong here, or its writer may not write it any more.
    fn check_slice_arrival(
        &self,
        state: &ClusterState,
        which: Which<'_>,
        head: &CopyHead,
        slice: Slice,
    ) -> Result<()> {
        if let Some(writer) = head.from.as_ref().filter(|_| head.written) {
            native::check_writer(state, which.info, which.name, writer)?;
        }
        // The copy here was looked up with the request's bucket; its coding may have changed
        // meanwhile.
        let info = state.bucket(&which.info.bucket)?;
        let forms = rebalance::forms(state, info, which.name, head.meta.size);
        let due =
            forms.iter().any(|(node, form)| node.id == *self.me() && *form == Form::Slice(slice));
        if due { Ok(()) } else { Err(which.belongs_elsewhere()) }
    }

    /// A slice that is stored here, of the version in the request, and its metadata.
    pub(crate) async fn read_slice(
        &self,
        info: &BucketInfo,
        request: &CopyRequest,
    ) -> Result<(CopyHead, u64, BodyStream)> {
        let uri = info.bucket.object_uri(&request.name);
        let none =
            || Error::new(ErrorCode::ObjectNotFound, format!("there is no such slice of {uri}"));
        let slice = request.slice.ok_or_else(|| Error::invalid("which slice?"))?;
        let here = self.slices_here(info.id, &request.name).await?;
        let here = here
            .into_iter()
            .find(|here| here.slice == slice && here.record.stamp() == request.stamp);
        let record = here.ok_or_else(none)?.record;
        let head = CopyHead {
            meta: object_of(&record).ok_or_else(none)?,
            epoch: record.meta.epoch,
            from: Some(self.me().clone()),
            slice: Some(slice),
            slice_sum: record.meta.checksum.clone(),
            ..CopyHead::default()
        };
        let reader = self.store().reader(&record).await?;
        Ok((head, record.size, reader.stream(ByteRange::whole(record.size)).boxed()))
    }
}
