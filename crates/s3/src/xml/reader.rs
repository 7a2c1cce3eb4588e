//! Parses the small XML documents of requests into a tree.
//!
//! Namespaces and attributes are dropped except for `xsi:type`; order is kept. Depth and number of
//! elements are limited, so a hostile document costs no more than its bytes.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use crate::{S3Code, S3Error, S3Result};

/// Maximum nesting; more than any S3 request needs.
const MAX_DEPTH: usize = 16;
/// Maximum elements. `DeleteObjects` has 1,000 objects of up to five elements each,
/// `CompleteMultipartUpload` 10,000 parts of up to eight.
const MAX_ELEMENTS: usize = 100_000;
/// Maximum attributes of an element: each is compared with all earlier ones to detect duplicates.
const MAX_ATTRIBUTES: usize = 64;

/// One element: its local name, its text and its children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    /// Its direct text, entities resolved, white space kept.
    pub text: String,
    /// `xsi:type`, the kind of a grantee.
    pub kind: Option<String>,
    pub children: Vec<Element>,
}

impl Element {
    /// Parses a document whose root must be named `root`; anything else is `MalformedXML`.
    pub fn parse(body: &[u8], root: &str) -> S3Result<Self> {
        let element = Self::read(body).ok_or_else(|| S3Error::from(S3Code::MalformedXML))?;
        if element.name != root {
            return Err(S3Code::MalformedXML.into());
        }
        Ok(element)
    }

    fn read(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
        let mut open: Vec<Element> = Vec::new();
        let mut root = None;
        let mut elements = 0;
        loop {
            let (element, ended) = match reader.read_event().ok()? {
                Event::Start(tag) => (started(&tag)?, false),
                Event::Empty(tag) => (started(&tag)?, true),
                Event::End(_) => (open.pop()?, true),
                Event::Text(text) => {
                    push_text(&mut open, &text.xml10_content())?;
                    continue;
                }
                Event::CData(text) => {
                    push_text(&mut open, &text.xml10_content())?;
                    continue;
                }
                Event::GeneralRef(entity) => {
                    let c = resolve(&entity)?;
                    push_text(&mut open, c.encode_utf8(&mut [0; 4]))?;
                    continue;
                }
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => continue,
                // Custom entities are an attack vector.
                Event::DocType(_) => return None,
                Event::Eof => break,
            };
            if !ended {
                elements += 1;
                if root.is_some() || open.len() >= MAX_DEPTH || elements > MAX_ELEMENTS {
                    return None;
                }
                open.push(element);
                continue;
            }
            match open.last_mut() {
                Some(parent) => parent.children.push(element),
                None if root.is_none() => root = Some(element),
                None => return None,
            }
            elements += 1;
            if elements > 2 * MAX_ELEMENTS {
                return None;
            }
        }
        if open.is_empty() { root } else { None }
    }

    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|c| c.name == name)
    }

    /// All children of this name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |c| c.name == name)
    }

    /// The text of the first child of this name.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|c| c.text.as_str())
    }

    /// Like [`Self::text_of`]; if it is missing, the document is malformed.
    pub fn required(&self, name: &str) -> S3Result<&str> {
        self.text_of(name).ok_or_else(|| S3Code::MalformedXML.into())
    }
}

fn started(tag: &BytesStart<'_>) -> Option<Element> {
    let name = tag.local_name().as_ref().to_owned();
    let mut kind = None;
    for (number, attribute) in tag.attributes().enumerate() {
        let attribute = attribute.ok().filter(|_| number < MAX_ATTRIBUTES)?;
        if attribute.key.local_name().as_ref() == "type" {
            kind = Some(attribute.value.to_string());
        }
    }
    Some(Element { name, kind, ..Element::default() })
}

/// Text outside of the root may only be white space.
fn push_text(open: &mut [Element], text: &str) -> Option<()> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return None,
    }
    Some(())
}

fn resolve(entity: &BytesRef<'_>) -> Option<char> {
    if entity.is_char_ref() {
        return entity.resolve_char_ref().ok().flatten();
    }
    Some(match &*entity.xml10_content() {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "apos" => '\'',
        "quot" => '"',
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::XmlWriter;

    #[test]
    fn a_tree_has_local_names_resolved_text_and_order() {
        let body = b"<?xml version=\"1.0\"?>\n<s:Delete xmlns:s='x'><!-- c --><Object><Key>a&amp;b\
            &#x20;<![CDATA[<c>]]></Key></Object><Object><Key/></Object><Quiet>true</Quiet>\
            </s:Delete>\n";
        let root = Element::parse(body, "Delete").unwrap();
        let keys: Vec<_> = root.all("Object").map(|o| o.required("Key").unwrap()).collect();
        assert_eq!(keys, ["a&b <c>", ""]);
        assert_eq!(root.text_of("Quiet"), Some("true"));
        assert!(root.required("Nope").is_err());
    }

    #[test]
    fn what_is_not_one_well_formed_document_is_malformed() {
        let deep = "<a>".repeat(1000) + &"</a>".repeat(1000);
        let attributes: String = (0..=MAX_ATTRIBUTES).map(|n| format!(" x{n}=''")).collect();
        let crowded = format!("<a{attributes}/>");
        for bad in [
            "",
            "<a>",
            "<a></b>",
            "<a/><a/>",
            "x<a/>",
            "<a/>x",
            "<a>&nope;</a>",
            "<b/>",
            "\u{0}",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            "<a b=c/>",
            "<a",
            &deep,
            &crowded,
        ] {
            let e = Element::parse(bad.as_bytes(), "a").unwrap_err();
            assert_eq!(e.code, S3Code::MalformedXML, "{bad}");
        }
        assert!(Element::parse(b"<a>\xff</a>", "a").is_err());
    }

    proptest! {
        #[test]
        fn written_text_is_read_back(text in "\\PC{0,40}") {
            let mut w = XmlWriter::document();
            w.open_root("r");
            w.text("t", &text);
            w.close("r");
            let root = Element::parse(w.finish().as_bytes(), "r").unwrap();
            prop_assert_eq!(root.text_of("t").unwrap(), text);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Element::parse(&bytes, "a");
        }

        #[test]
        fn nothing_that_looks_like_xml_makes_it_panic(text in "[<>/a&;!\\[\\]x=\"' -]{0,60}") {
            let _ = Element::parse(text.as_bytes(), "a");
        }
    }
}
