//! The XML documents of answers.
//!
//! Times are unix nanoseconds, ETags without quotes. Each type writes itself with `to_xml`.

mod listings;
mod objects;
mod settings;

pub use listings::*;
pub use objects::*;
pub use settings::*;

use super::xml::XmlWriter;

/// Who owns everything here, as answers tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub id: String,
    pub display_name: String,
}

impl Owner {
    fn write(&self, w: &mut XmlWriter, element: &str) {
        w.open(element);
        w.text("ID", &self.id);
        w.text("DisplayName", &self.display_name);
        w.close(element);
    }
}

fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}
