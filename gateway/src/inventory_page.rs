//! Pages of an inventory, for listings.

use forebay_core::Result;
use forebay_core::intra::ListPage;
use forebay_core::inventory::InventoryQuery;

use crate::list_merge::{Merged, Row, Shard, merge};
use crate::route::Found;
use crate::targets::Targets;

const PAGE: &str = "/internal/v1/inventory/page";

/// A page of an inventory's rows, in the form of a backend listing.
pub(crate) async fn page(
    targets: &Targets,
    home: &Found,
    object: &str,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<Merged> {
    let owner = home.owner(object)?;
    let query =
        InventoryQuery { object: object.into(), prefix: prefix.into(), after: after.into(), limit };
    let ListPage { entries, more } = targets.post(owner, PAGE, &query).await?;
    let page = merge(vec![Shard { target: owner.id.clone(), page: entries, more }], limit)?;
    let rows = page.rows.into_iter().map(|row| Row { target: None, copies: 0, ..row });
    Ok(Merged { rows: rows.collect(), more: page.more })
}
