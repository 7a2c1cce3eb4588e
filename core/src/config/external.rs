//! The template of a node's external URL.

use crate::error::{Error, Result};

const HINT: &str = "listen.external is http:// or https:// with a host and perhaps a port; {name}, \
    {ordinal} and {ordinal+N} are the only placeholders";

/// One part of a template.
enum Part<'a> {
    Text(&'a str),
    Name,
    /// The ordinal plus a number.
    Ordinal(u64),
}

/// Checks a template that is not empty.
pub(super) fn check_external(template: &str) -> Result<()> {
    // Every placeholder may stand for a number, also in a port.
    filled(template, "node-1", Some(1)).map(drop)
}

/// The external URL of the node `id`; empty for an empty template. The ordinal is the number at the
/// end of the id, else of the host name.
pub fn external_url(template: &str, id: &str, host_name: &str) -> Result<String> {
    if template.is_empty() {
        return Ok(String::new());
    }
    let ordinal = [id, host_name].into_iter().find_map(trailing_number);
    filled(template, id, ordinal)
}

fn filled(template: &str, name: &str, ordinal: Option<u64>) -> Result<String> {
    let invalid =
        |why: &str| Error::invalid(format!("listen.external \"{template}\": {why}")).hint(HINT);
    let mut url = String::new();
    for part in parts(template).ok_or_else(|| invalid("it has an unknown placeholder"))? {
        match part {
            Part::Text(text) => url.push_str(text),
            Part::Name => url.push_str(name),
            Part::Ordinal(plus) => {
                let ordinal = ordinal.and_then(|ordinal| ordinal.checked_add(plus));
                let ordinal = ordinal.ok_or_else(|| {
                    invalid("neither node.id nor the host name ends in a number such as -3")
                })?;
                url.push_str(&ordinal.to_string());
            }
        }
    }
    let url = url.trim_end_matches('/');
    let parsed: http::Uri = url.parse().map_err(|_| invalid("it is not a URL"))?;
    let is_base = matches!(parsed.scheme_str(), Some("http" | "https"))
        && parsed
            .authority()
            .is_some_and(|host| !host.host().is_empty() && !host.as_str().contains('@'))
        && parsed.path_and_query().is_none_or(|path| path.as_str() == "/");
    // The last label of `[::1]` has a bracket and is no port.
    let is_port_valid = parsed.authority().is_some_and(|host| {
        match host.as_str().rsplit_once(':').map(|(_, port)| port) {
            Some(port) if !port.ends_with(']') => port.parse::<u16>().is_ok(),
            _ => true,
        }
    });
    match is_base && is_port_valid {
        true => Ok(url.to_owned()),
        false => Err(invalid("it is not the URL of a host")),
    }
}

/// The parts of a template; `None` for an unknown placeholder or a brace alone.
fn parts(template: &str) -> Option<Vec<Part<'_>>> {
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((text, after)) = rest.split_once('{') {
        let (placeholder, after) = after.split_once('}')?;
        parts.push(Part::Text(text));
        parts.push(match placeholder {
            "name" => Part::Name,
            "ordinal" => Part::Ordinal(0),
            other => {
                let digits = other.strip_prefix("ordinal+")?;
                let is_number = digits.bytes().all(|b| b.is_ascii_digit());
                Part::Ordinal(digits.parse().ok().filter(|_| is_number)?)
            }
        });
        rest = after;
    }
    parts.push(Part::Text(rest));
    let has_brace = |part: &Part<'_>| matches!(part, Part::Text(text) if text.contains('}'));
    (!parts.iter().any(has_brace)).then_some(parts)
}

/// The number after the last hyphen of the first label of a name.
fn trailing_number(name: &str) -> Option<u64> {
    let label = name.split('.').next().unwrap_or(name);
    let (_, digits) = label.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_the_name_and_the_ordinal_of_the_node() {
        let url = |template: &str| external_url(template, "target-3", "other-9").unwrap();
        assert_eq!(url("https://{name}.example.com/"), "https://target-3.example.com");
        assert_eq!(url("https://t{ordinal}.example.com"), "https://t3.example.com");
        assert_eq!(url("http://203.0.113.7:{ordinal+30100}"), "http://203.0.113.7:30103");
        assert_eq!(url("http://[2001:db8::7]:{ordinal+1}"), "http://[2001:db8::7]:4");
        assert_eq!(url(""), "");
        let of_host = external_url("http://t{ordinal}", "abc", "store-target-12.store.svc");
        assert_eq!(of_host.unwrap(), "http://t12");
        let e = external_url("http://t{ordinal}", "abc", "host").unwrap_err();
        assert!(e.message.contains("ends in a number"), "{e}");
    }

    #[test]
    fn a_template_that_makes_no_url_of_a_host_is_refused() {
        for good in ["http://a", "https://a:1", "http://{name}:{ordinal+30000}"] {
            assert!(check_external(good).is_ok(), "{good}");
        }
        for bad in [
            "a.example.com",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a?b",
            "http://u@a",
            "http://a:",
            "http://{ordinal-1}",
            "http://{other}",
            "http://{name",
            "http://name}",
            "http://{ordinal+}",
            "http://{ordinal++1}",
            "http://a:{ordinal+70000}",
            "http://a b",
        ] {
            assert!(check_external(bad).is_err(), "{bad}");
        }
    }
}
