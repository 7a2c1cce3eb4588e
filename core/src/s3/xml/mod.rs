//! XML: a writer for answers and a small reader for requests.

mod reader;
mod writer;

pub use reader::Element;
pub use writer::{NAMESPACE, XmlWriter, fits_xml, not_in_xml};
