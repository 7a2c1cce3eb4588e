//! Prints the description of the API, as `GET /api/openapi.json` returns it.

fn main() {
    println!("{}", forebay_routes::document(env!("CARGO_PKG_VERSION")));
}
