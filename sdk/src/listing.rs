//! Listings: a page as rows, a whole one as three flat buffers.

use forebay_core::v1::list::{ListMsg, Page, entry_flags, flags};

/// The request for a page.
pub(crate) fn request(prefix: String, token: String, page_size: usize) -> ListMsg {
    ListMsg {
        prefix,
        token,
        page_size,
        props: "name,size,cached".to_owned(),
        flags: flags::NAME_SIZE,
        ..ListMsg::default()
    }
}

/// Name, size and presence of each row, and the token of the next page.
pub(crate) fn rows(page: Page) -> (Vec<(String, u64, bool)>, String) {
    let rows = page
        .entries
        .into_iter()
        .map(|e| (e.name, e.size, e.flags & entry_flags::PRESENT != 0))
        .collect();
    (rows, page.token)
}

/// All names, the offsets between them (one more than names) and the sizes, as native numbers.
pub(crate) fn pack(rows: Vec<(String, u64)>) -> [Vec<u8>; 3] {
    let mut names = Vec::with_capacity(rows.iter().map(|(name, _)| name.len()).sum());
    let mut offsets = Vec::with_capacity((rows.len() + 1) * 8);
    let mut sizes = Vec::with_capacity(rows.len() * 8);
    offsets.extend_from_slice(&0u64.to_ne_bytes());
    for (name, size) in rows {
        names.extend_from_slice(name.as_bytes());
        offsets.extend_from_slice(&(names.len() as u64).to_ne_bytes());
        sizes.extend_from_slice(&size.to_ne_bytes());
    }
    [names, offsets, sizes]
}
