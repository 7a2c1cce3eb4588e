//! Native core of the Python package `forebay`, imported there as `forebay._core`: the Rust client
//! behind blocking calls that release the interpreter while they wait.
//!
//! The path of a batch: Python calls `Client.batch_all` ([`client`]), which passes a future of the
//! Rust client to [`runtime::block_on`]. Payloads are returned as [`buffer::Buffer`]s, failures as
//! exceptions of [`error`].

mod batch;
mod buffer;
mod call_scope;
mod client;
mod each;
mod error;
mod listing;
mod object;
mod part_buffer;
mod runtime;
mod shard;
mod upload;
mod waits;

use pyo3::prelude::*;

/// The names of a template such as `shard-{0000..0099}.tar`.
#[pyfunction]
fn expand_template(py: Python<'_>, template: &str) -> PyResult<Vec<String>> {
    use forebay_core::template::Template;
    match Template::parse(template).map_err(|e| error::raise(py, e))? {
        Template::Ranges(ranges) => Ok(ranges.names().collect()),
        Template::Prefix(_) => Err(error::raise(
            py,
            forebay_core::Error::invalid(format!("template \"{template}\" has no range"))
                .hint("write one as {first..last}, for example shard-{0000..0099}.tar"),
        )),
    }
}

/// Needs no GIL: state that threads share is atomic or has locks of its own.
#[pymodule(gil_used = false)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<buffer::Buffer>()?;
    m.add_class::<client::Client>()?;
    m.add_class::<batch::BatchStream>()?;
    m.add_class::<batch::PendingBatch>()?;
    m.add_class::<object::ObjectStream>()?;
    m.add_class::<object::PendingObject>()?;
    m.add_class::<shard::ShardStream>()?;
    m.add_class::<upload::Upload>()?;
    m.add_class::<part_buffer::PartBuffer>()?;
    m.add_class::<runtime::Cancel>()?;
    m.add_function(wrap_pyfunction!(each::get_each, m)?)?;
    m.add_function(wrap_pyfunction!(each::list_pinned, m)?)?;
    m.add_function(wrap_pyfunction!(each::check_etl, m)?)?;
    m.add_function(wrap_pyfunction!(shard::archive_format, m)?)?;
    m.add_function(wrap_pyfunction!(shard::sample_layout, m)?)?;
    m.add_function(wrap_pyfunction!(shard::split_member, m)?)?;
    m.add_function(wrap_pyfunction!(call_scope::swap_span_parent, m)?)?;
    m.add_function(wrap_pyfunction!(waits::observe_waits, m)?)?;
    m.add_function(wrap_pyfunction!(waits::take_waits, m)?)?;
    m.add_function(wrap_pyfunction!(expand_template, m)?)
}
