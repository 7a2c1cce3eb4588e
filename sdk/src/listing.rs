//! Listings: a page as rows, a whole one as three flat buffers.

use forebay_core::list_columns::Columns;
use forebay_v1::list::{Entry, ListMsg, Page, entry_flags, flags};

/// Name and size of a row, whether it is cached in the cluster, and whether it is a folder.
pub(crate) type Row = (String, u64, bool, bool);

/// The request for a page.
pub(crate) fn request(prefix: String, token: String, page_size: usize, recursive: bool) -> ListMsg {
    let depth = if recursive { 0 } else { flags::NO_RECURSION };
    ListMsg {
        prefix,
        token,
        page_size,
        props: "name,size,cached".to_owned(),
        flags: flags::NAME_SIZE | depth,
        shows_folder: true,
        ..ListMsg::default()
    }
}

/// The rows of a page, and the token of the next one.
pub(crate) fn rows(page: Page) -> (Vec<Row>, String) {
    let has = |flags: u16, flag| flags & flag != 0;
    let row = |e: Entry| {
        (e.name, e.size, has(e.flags, entry_flags::PRESENT), has(e.flags, entry_flags::DIRECTORY))
    };
    (page.entries.into_iter().map(row).collect(), page.token)
}

/// All names, the offsets between them (one more than names) and the sizes, as native numbers.
pub(crate) struct Buffers {
    names: Vec<u8>,
    offsets: Vec<u8>,
    sizes: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { names: Vec::new(), offsets: 0u64.to_ne_bytes().to_vec(), sizes: Vec::new() }
    }

    /// Adds the rows of a block.
    pub(crate) fn push(&mut self, rows: &Columns) {
        let base = self.names.len() as u64;
        self.names.extend_from_slice(rows.names().as_bytes());
        let ends = rows.ends().iter().map(|end| base + u64::from(*end));
        self.offsets.extend(ends.flat_map(u64::to_ne_bytes));
        self.sizes.extend(rows.sizes().iter().flat_map(|size| size.to_ne_bytes()));
    }

    pub(crate) fn into_parts(self) -> [Vec<u8>; 3] {
        [self.names, self.offsets, self.sizes]
    }
}
