//! Matches a browser's request to a bucket's CORS rules, and makes the headers of the answer.

use forebay_core::bucket::CorsRule;
use http::HeaderMap;

use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// Headers to add to an answer.
pub type CorsHeaders = Vec<(&'static str, String)>;

/// Headers for the answer to a request with this method; none if it is not from a browser or no
/// rule allows it. The request itself is answered in any case: the browser enforces the rules.
pub fn answer(rules: &[CorsRule], method: &str, headers: &HeaderMap) -> CorsHeaders {
    let Some(origin) = text(headers, "origin") else { return CorsHeaders::new() };
    let method = text(headers, "access-control-request-method").unwrap_or(method);
    rules.iter().find(|r| allows(r, origin, method)).map_or_else(Vec::new, |rule| {
        let mut found = common(rule, origin);
        if !rule.expose_headers.is_empty() {
            found.push(("access-control-expose-headers", rule.expose_headers.join(", ")));
        }
        found
    })
}

/// Headers for the answer to a preflight (`OPTIONS`), or the reason why the request is not allowed.
pub fn preflight(rules: &[CorsRule], headers: &HeaderMap) -> S3Result<CorsHeaders> {
    let Some(origin) = text(headers, "origin") else {
        return Err(S3Error::new(
            S3Code::BadRequest,
            "Insufficient information. Origin request header needed.",
        ));
    };
    let Some(method) = text(headers, "access-control-request-method") else {
        return Err(S3Error::new(
            S3Code::BadRequest,
            "Invalid Access-Control-Request-Method: null",
        ));
    };
    let asked = text(headers, "access-control-request-headers").unwrap_or_default();
    let wanted: Vec<String> =
        asked.split(',').map(|h| h.trim().to_ascii_lowercase()).filter(|h| !h.is_empty()).collect();
    let rule = rules.iter().find(|rule| {
        let named = |header: &str| {
            rule.allowed_headers.iter().any(|p| wildcard(&p.to_ascii_lowercase(), header))
        };
        allows(rule, origin, method) && wanted.iter().all(|h| named(h))
    });
    let Some(rule) = rule else {
        return Err(S3Error::new(
            S3Code::AccessForbidden,
            "CORSResponse: This CORS request is not allowed. This is usually because the \
             evalution of Origin, request method / Access-Control-Request-Method or \
             Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.",
        )
        .detail("Method", method));
    };
    let mut found = common(rule, origin);
    if !wanted.is_empty() {
        found.push(("access-control-allow-headers", wanted.join(", ")));
    }
    if let Some(seconds) = rule.max_age_s {
        found.push(("access-control-max-age", seconds.to_string()));
    }
    Ok(found)
}

fn allows(rule: &CorsRule, origin: &str, method: &str) -> bool {
    rule.allowed_methods.iter().any(|m| m == method)
        && rule.allowed_origins.iter().any(|p| wildcard(p, origin))
}

fn common(rule: &CorsRule, origin: &str) -> CorsHeaders {
    let anybody = rule.allowed_origins.iter().any(|o| o == "*");
    let mut found = vec![
        ("access-control-allow-origin", if anybody { "*" } else { origin }.to_owned()),
        ("access-control-allow-methods", rule.allowed_methods.join(", ")),
        (
            "vary",
            "Origin, Access-Control-Request-Headers, Access-Control-Request-Method".to_owned(),
        ),
    ];
    if !anybody {
        found.push(("access-control-allow-credentials", "true".to_owned()));
    }
    found
}

/// Whether a pattern with at most one `*` matches this text.
fn wildcard(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            text.len() >= before.len() + after.len()
                && text.starts_with(before)
                && text.ends_with(after)
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rule(method: &str, origin: &str) -> CorsRule {
        CorsRule {
            allowed_methods: vec![method.to_owned()],
            allowed_origins: vec![origin.to_owned()],
            allowed_headers: vec!["X-*".to_owned()],
            max_age_s: Some(60),
            ..CorsRule::default()
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
    }

    fn origin_of(
        rules: &[CorsRule],
        method: &str,
        pairs: &[(&'static str, &str)],
    ) -> Option<String> {
        answer(rules, method, &headers(pairs)).first().map(|(_, origin)| origin.clone())
    }

    #[test]
    fn an_answer_names_the_origin_that_a_rule_allows() {
        let rules = [rule("GET", "*suffix"), rule("GET", "start*end"), rule("PUT", "*.put")];
        for (origin, allowed) in [
            ("foo.suffix", true),
            ("foo.suffix.get", false),
            ("startend", true),
            ("start1end", true),
            ("0start1end", false),
            ("starend", false),
            ("foo.put", false),
        ] {
            let found = origin_of(&rules, "GET", &[("origin", origin)]);
            assert_eq!(found.as_deref(), allowed.then_some(origin));
        }
        assert!(origin_of(&rules, "GET", &[]).is_none());
        let asked = [("origin", "foo.suffix"), ("access-control-request-method", "GET")];
        assert!(origin_of(&rules, "PUT", &asked).is_some());
        let any = [rule("GET", "*")];
        assert_eq!(origin_of(&any, "GET", &[("origin", "x")]).as_deref(), Some("*"));
    }

    #[test]
    fn a_preflight_is_allowed_or_refused_with_a_reason() {
        let rules = [rule("GET", "a")];
        let ask = |pairs: &[(&'static str, &str)]| preflight(&rules, &headers(pairs));
        let get = ("access-control-request-method", "GET");
        let found = ask(&[("origin", "a"), get, ("access-control-request-headers", "X-B, x-c")]);
        let found = found.unwrap();
        assert!(found.contains(&("access-control-allow-headers", "x-b, x-c".to_owned())));
        assert!(found.contains(&("access-control-max-age", "60".to_owned())));
        assert_eq!(ask(&[]).unwrap_err().code, S3Code::BadRequest);
        assert_eq!(ask(&[("origin", "a")]).unwrap_err().code, S3Code::BadRequest);
        assert_eq!(ask(&[("origin", "b"), get]).unwrap_err().status(), 403);
        let other = ask(&[("origin", "a"), get, ("access-control-request-headers", "y")]);
        assert_eq!(other.unwrap_err().code, S3Code::AccessForbidden);
    }
}
