//! Names and sizes of many objects in compact form.

use crate::error::{Error, Result};

/// Objects in the byte order of their names: one buffer of names, plus 16 bytes for each object.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    names: String,
    /// End of each name.
    ends: Vec<u64>,
    sizes: Vec<u64>,
}

impl Listing {
    /// Adds the next object; names must ascend.
    pub fn push(&mut self, name: &str, size: u64) -> Result<()> {
        if self.len() >= u32::MAX as usize {
            return Err(Error::invalid("more than 4 billion objects in one job")
                .hint("shard the bucket prefix by prefix"));
        }
        if let Some(last) = self.len().checked_sub(1)
            && self.name(last as u32) >= name
        {
            return Err(Error::internal(format!(
                "the listing is out of order: \"{name}\" came after \"{}\"",
                self.name(last as u32)
            )));
        }
        self.names.push_str(name);
        self.ends.push(self.names.len() as u64);
        self.sizes.push(size);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn name(&self, index: u32) -> &str {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.names[start as usize..self.ends[index] as usize]
    }

    pub(super) fn size(&self, index: u32) -> u64 {
        self.sizes[index as usize]
    }

    /// Whether an object of this name is there.
    pub fn contains(&self, name: &str) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.name(middle as u32).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return true,
            }
        }
        false
    }
}
