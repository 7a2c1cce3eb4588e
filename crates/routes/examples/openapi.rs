//! Prints the description of the API, as `GET /api/openapi.json` returns it.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let document = forebay_routes::document(env!("CARGO_PKG_VERSION"));
    writeln!(std::io::stdout(), "{document}")
}
