//! Commands that read whole listings: `du` and `find`.

mod du;
mod find;

pub(crate) use du::{UsageArgs, usage};
pub(crate) use find::{FindArgs, find};

use forebay_core::list_columns::ColumnRow;
use forebay_core::{Bucket, Error};

use crate::failure::Failure;
use crate::session::Session;

/// Shows the rows of all objects with this prefix. A failure of `show` ends the listing.
async fn each(
    session: &Session,
    bucket: &Bucket,
    prefix: &str,
    mut show: impl FnMut(ColumnRow<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut refused = None;
    let listed = session.client.list_blocks(bucket, prefix, |block| {
        block.rows().try_for_each(&mut show).map_err(|failure| {
            refused = Some(failure);
            Error::internal("the listing was ended")
        })
    });
    let listed = listed.await;
    match refused {
        Some(failure) => Err(failure),
        None => Ok(listed?),
    }
}
