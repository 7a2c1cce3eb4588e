//! ETags: of objects put whole, of multipart uploads, and their comparison.

use md5::Digest as _;

/// The tag without its quotes and without its weak prefix.
pub fn unquote(text: &str) -> &str {
    let text = text.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text)
}

/// The tag as in headers.
pub fn quote(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// The ETag of a completed upload: MD5 of its parts' MD5s, and their number. `None` if a part's tag
/// is not an MD5.
pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut joined = md5::Md5::new();
    let mut count = 0;
    for etag in parts {
        let raw = hex::decode(unquote(etag)).ok().filter(|raw| raw.len() == 16)?;
        joined.update(&raw);
        count += 1;
    }
    Some(format!("{}-{count}", hex::encode(joined.finalize())))
}

/// Number of parts of a multipart upload, according to its ETag; `None` for an object put whole.
pub fn part_count(etag: &str) -> Option<u32> {
    unquote(etag).rsplit_once('-').and_then(|(_, n)| n.parse().ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_in_parts_has_the_tag_that_aws_computes() {
        // MD5 of "a" and of "b"; the value is md5(md5("a") + md5("b")).
        let parts = ["0cc175b9c0f1b6a831c399e269772661", "\"92eb5ffee6ae2fec3ad71c777531578f\""];
        let etag = of_parts(parts).unwrap();
        let raw: Vec<u8> = parts.iter().flat_map(|p| hex::decode(unquote(p)).unwrap()).collect();
        assert_eq!(etag, format!("{}-2", hex::encode(md5::Md5::digest(raw))));
        assert_eq!((part_count(&etag), part_count(parts[0])), (Some(2), None));
        assert_eq!(of_parts(["nope"]), None);
    }

    #[test]
    fn quotes_and_weak_marks_are_taken_off() {
        for text in ["abc", "\"abc\"", "W/\"abc\"", " \"abc\" "] {
            assert_eq!(unquote(text), "abc");
        }
        assert_eq!(quote("abc"), "\"abc\"");
    }
}
