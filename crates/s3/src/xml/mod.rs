//! XML: a writer for answers and a small reader for requests.

mod reader;
mod writer;

pub use reader::Element;
pub use writer::{NAMESPACE, NotInXml, XmlWriter, fits_xml};
