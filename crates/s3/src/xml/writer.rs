//! Writes the XML of answers: elements in order, text escaped, nothing else.

/// The namespace of S3's documents.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// An XML document being written. The caller must close every element that it opens.
#[derive(Debug, Default)]
pub struct XmlWriter {
    out: String,
    /// Whether a text had characters that XML cannot represent.
    is_lossy: bool,
}

impl XmlWriter {
    /// A document with its declaration.
    pub fn document() -> Self {
        Self { out: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned(), is_lossy: false }
    }

    pub fn open(&mut self, name: &str) {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push('>');
    }

    /// Opens the root element, in S3's namespace.
    pub fn open_root(&mut self, name: &str) {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push_str(" xmlns=\"");
        self.out.push_str(NAMESPACE);
        self.out.push_str("\">");
    }

    /// Opens an element with raw, already well-formed attributes.
    pub fn open_with(&mut self, name: &str, attributes: &str) {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push(' ');
        self.out.push_str(attributes);
        self.out.push('>');
    }

    pub fn close(&mut self, name: &str) {
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }

    /// `<name>value</name>`, escaped.
    pub fn text(&mut self, name: &str, value: &str) {
        self.open(name);
        self.is_lossy |= !escape_into(&mut self.out, value);
        self.close(name);
    }

    /// Writes the element only if there is a value.
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
        self.out
    }

    /// Like [`Self::finish`]; an error if a text had characters that XML cannot represent.
    pub fn finish_exact(self) -> Result<String, NotInXml> {
        if self.is_lossy { Err(NotInXml) } else { Ok(self.out) }
    }

    /// Bytes written so far; used to split long lists.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes the text written so far.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }
}

/// Whether XML 1.0 can represent this text, literally or by references. It cannot represent most
/// control characters: a reference to one, which AWS writes, is an error in every parser.
pub fn fits_xml(text: &str) -> bool {
    text.chars().all(is_xml_char)
}

/// A document would contain text that XML cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInXml;

/// `Char` of XML 1.0, section 2.2.
fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// Escapes text of an element. Characters that XML cannot represent are replaced; returns false if
/// there are any.
fn escape_into(out: &mut String, text: &str) -> bool {
    let mut is_exact = true;
    for c in text.chars() {
        match c {
            c if !is_xml_char(c) => {
                is_exact = false;
                out.push(char::REPLACEMENT_CHARACTER);
            }
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\r' | '\u{7f}' => out.push_str(&format!("&#x{:X};", u32::from(c))),
            c => out.push(c),
        }
    }
    is_exact
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut w = XmlWriter::default();
        w.text("Key", "a&b<c>\"\r\u{7f}ü");
        let text = w.finish_exact().unwrap();
        assert_eq!(text, "<Key>a&amp;b&lt;c&gt;&quot;&#xD;&#x7F;ü</Key>");
    }

    #[test]
    fn characters_that_xml_cannot_hold_are_never_written() {
        for bad in ['\0', '\u{1}', '\u{8}', '\u{b}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
            let mut w = XmlWriter::default();
            w.text("Key", &format!("a{bad}b"));
            assert!(!fits_xml(&bad.to_string()), "{bad:?}");
            assert_eq!(w.finish(), "<Key>a\u{fffd}b</Key>");
            let mut w = XmlWriter::default();
            w.text("Key", &bad.to_string());
            assert!(w.finish_exact().is_err(), "{bad:?}");
        }
        assert!(fits_xml("\t\n\r \u{7f}\u{85}\u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}"));
    }
}
