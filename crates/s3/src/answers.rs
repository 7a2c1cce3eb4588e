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

/// The owner of a bucket or an object in answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub id: String,
    pub display_name: String,
}

impl Owner {
    /// A user, whose display name is the id.
    pub fn user(id: &str) -> Self {
        Self { id: id.to_owned(), display_name: id.to_owned() }
    }

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
