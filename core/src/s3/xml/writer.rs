//! Writes the XML of answers: elements in order, text escaped, nothing else.

/// The name space of S3's documents.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// An XML document being written. The caller closes what it opens.
#[derive(Debug, Default)]
pub struct XmlWriter(String);

impl XmlWriter {
    /// A document with its declaration.
    pub fn document() -> Self {
        Self("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned())
    }

    pub fn open(&mut self, name: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push('>');
    }

    /// Opens the root element, in S3's name space.
    pub fn open_root(&mut self, name: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push_str(" xmlns=\"");
        self.0.push_str(NAMESPACE);
        self.0.push_str("\">");
    }

    /// Opens an element with raw, already well-formed attributes.
    pub fn open_with(&mut self, name: &str, attributes: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push(' ');
        self.0.push_str(attributes);
        self.0.push('>');
    }

    pub fn close(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    /// `<name>value</name>`, escaped.
    pub fn text(&mut self, name: &str, value: &str) {
        self.open(name);
        escape_into(&mut self.0, value);
        self.close(name);
    }

    /// Only when there is a value.
    pub fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub fn number(&mut self, name: &str, value: u64) {
        self.text(name, &value.to_string());
    }

    pub fn flag(&mut self, name: &str, value: bool) {
        self.text(name, if value { "true" } else { "false" });
    }

    pub fn finish(self) -> String {
        self.0
    }

    /// Bytes written so far; long lists are cut into pieces by it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out what is written so far.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.0)
    }
}

/// Escapes text of an element. Control characters, which XML 1.0 cannot hold, become references
/// as AWS writes them; clients that list such keys ask for `encoding-type=url`.
fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("&#x{:X};", u32::from(c))),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut w = XmlWriter::default();
        w.text("Key", "a&b<c>\"\r\u{1}ü");
        assert_eq!(w.finish(), "<Key>a&amp;b&lt;c&gt;&quot;&#xD;&#x1;ü</Key>");
    }
}
