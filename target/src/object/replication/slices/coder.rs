//! Splits an object into slices, and decodes it from them, stripe by stripe: only one block of each
//! slice is in memory.
//!
//! A stripe is D data blocks of the object and P parity blocks computed from them; slice n has
//! block n of every stripe. The blocks of the last stripe are shorter, and padded with zeros.

use bytes::{Bytes, BytesMut};
use forebay_core::erasure::Slice;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 64 << 10;

/// The layout of an object's bytes in its slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    data: usize,
    parity: usize,
    size: u64,
}

impl Layout {
    /// The layout of an object of this size in slices like this one.
    pub(crate) fn of(slice: Slice, size: u64) -> Self {
        Self { data: slice.data.into(), parity: slice.parity.into(), size }
    }

    /// Number of slices.
    #[cfg(test)]
    fn slices(&self) -> usize {
        self.data + self.parity
    }

    /// Number of slices that are needed to decode the object.
    pub(crate) fn needed(&self) -> usize {
        self.data
    }

    /// Bytes of a slice.
    pub(crate) fn slice_len(&self) -> u64 {
        self.stripes().map(|stripe| stripe.block as u64).sum::<u64>()
    }

    /// The stripes, in their order.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = Stripe> + Send + use<> {
        let (Self { data, size, .. }, step) = (*self, self.data as u64 * BLOCK);
        (0..size.div_ceil(step)).map(move |n| {
            let range = ByteRange { start: n * step, end: ((n + 1) * step).min(size) };
            // The coder takes even numbers only.
            let block = range.len().div_ceil(data as u64).next_multiple_of(2);
            Stripe { range, block: block as usize }
        })
    }
}

/// One stripe of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Its bytes in the object.
    pub(crate) range: ByteRange,
    /// Bytes of each of its blocks.
    pub(crate) block: usize,
}

/// Computes the blocks of stripes.
pub(crate) struct Coder {
    layout: Layout,
    encoder: Option<ReedSolomonEncoder>,
}

impl Coder {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, encoder: None }
    }

    /// The blocks of all slices for the bytes of a stripe.
    pub(crate) fn encode(&mut self, stripe: Stripe, bytes: &[u8]) -> Result<Vec<Bytes>> {
        let Layout { data, parity, .. } = self.layout;
        let mut padded = BytesMut::with_capacity(data * stripe.block);
        padded.extend_from_slice(bytes);
        padded.resize(data * stripe.block, 0);
        let mut padded = padded.freeze();
        let mut blocks: Vec<Bytes> = (0..data).map(|_| padded.split_to(stripe.block)).collect();
        let encoder = match &mut self.encoder {
            Some(encoder) => {
                encoder.reset(data, parity, stripe.block).map_err(failed)?;
                encoder
            }
            none => {
                none.insert(ReedSolomonEncoder::new(data, parity, stripe.block).map_err(failed)?)
            }
        };
        for block in &blocks {
            encoder.add_original_shard(block).map_err(failed)?;
        }
        let made = encoder.encode().map_err(failed)?;
        blocks.extend(made.recovery_iter().map(Bytes::copy_from_slice));
        Ok(blocks)
    }

    /// The bytes of a stripe from as many of its blocks as are needed, each with the number of its
    /// slice.
    pub(crate) fn decode(&self, stripe: Stripe, blocks: &[(usize, Bytes)]) -> Result<Bytes> {
        let Layout { data, parity, .. } = self.layout;
        let mut found: Vec<Option<Bytes>> = vec![None; data];
        for (number, block) in blocks.iter().filter(|(number, _)| *number < data) {
            found[*number] = Some(block.clone());
        }
        if found.iter().any(Option::is_none) {
            let mut decoder =
                ReedSolomonDecoder::new(data, parity, stripe.block).map_err(failed)?;
            for (number, block) in blocks {
                match number.checked_sub(data) {
                    None => decoder.add_original_shard(*number, block),
                    Some(number) => decoder.add_recovery_shard(number, block),
                }
                .map_err(failed)?;
            }
            let made = decoder.decode().map_err(failed)?;
            for (number, block) in made.restored_original_iter() {
                found[number] = Some(Bytes::copy_from_slice(block));
            }
        }
        let len = stripe.range.len() as usize;
        let mut bytes = BytesMut::with_capacity(data * stripe.block);
        for block in found {
            bytes.extend_from_slice(&block.ok_or_else(|| Error::internal("a block is missing"))?);
        }
        bytes.truncate(len);
        Ok(bytes.freeze())
    }
}

fn failed(e: reed_solomon_simd::Error) -> Error {
    Error::internal(format!("slices cannot be computed: {e}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[6]).collect()
    }

    fn cut(layout: Layout, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut coder = Coder::new(layout);
        let mut slices = vec![Vec::new(); layout.slices()];
        for stripe in layout.stripes() {
            let part = &bytes[stripe.range.start as usize..stripe.range.end as usize];
            for (slice, block) in slices.iter_mut().zip(coder.encode(stripe, part).unwrap()) {
                slice.extend_from_slice(&block);
            }
        }
        slices
    }

    fn join(layout: Layout, slices: &[Vec<u8>], chosen: &[usize]) -> Vec<u8> {
        let (coder, mut at, mut bytes) = (Coder::new(layout), 0, Vec::new());
        for stripe in layout.stripes() {
            let block =
                |n: &usize| (*n, Bytes::copy_from_slice(&slices[*n][at..at + stripe.block]));
            let blocks: Vec<_> = chosen.iter().map(block).collect();
            bytes.extend_from_slice(&coder.decode(stripe, &blocks).unwrap());
            at += stripe.block;
        }
        bytes
    }

    fn layout(data: u8, parity: u8, size: usize) -> Layout {
        Layout::of(Slice { data, parity, number: 0 }, size as u64)
    }

    /// Choices of `data` slices of all: the most different ones, and some in between.
    fn choices(data: usize, all: usize) -> Vec<Vec<usize>> {
        (0..all).map(|first| (0..data).map(|n| (first + n) % all).collect()).collect()
    }

    #[test]
    fn any_slices_that_are_enough_give_the_bytes_of_any_size_back() {
        for data in 1..=8u8 {
            for parity in 1..=8u8 {
                let stripe = usize::from(data) * BLOCK as usize;
                let few = usize::from(data);
                for size in [0, 1, few - 1, few, few + 1, 777, stripe - 1, stripe, stripe + 1] {
                    let (layout, bytes) = (layout(data, parity, size), content(size));
                    let slices = cut(layout, &bytes);
                    assert!(slices.iter().all(|s| s.len() as u64 == layout.slice_len()));
                    for chosen in choices(few, layout.slices()) {
                        let got = join(layout, &slices, &chosen);
                        assert!(got == bytes, "{data}+{parity}, {size} bytes, {chosen:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_slice_takes_its_share_and_little_more() {
        let layout = layout(4, 2, 10 << 20);
        assert_eq!(layout.slice_len(), (10 << 20) / 4);
        assert_eq!((layout.slices(), layout.needed()), (6, 4));
        assert_eq!(self::layout(4, 2, 1).slice_len(), 2);
        assert_eq!(self::layout(4, 2, 0).stripes().count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_choice_of_slices_gives_the_bytes_back(
            data in 1u8..=8,
            parity in 1u8..=8,
            size in 0usize..1_300_000,
            order in prop::collection::vec(0u32..1000, 16),
        ) {
            let (layout, bytes) = (layout(data, parity, size), content(size));
            let slices = cut(layout, &bytes);
            let mut chosen: Vec<usize> = (0..layout.slices()).collect();
            chosen.sort_by_key(|n| order[*n]);
            chosen.truncate(usize::from(data));
            prop_assert!(join(layout, &slices, &chosen) == bytes);
        }
    }
}
