//! URLs as logs, errors and answers show them.

/// Stands for what is not shown.
const HIDDEN: &str = "***";

/// The URL without its user and password, the values of its query, and its fragment. Each of them may be
/// a secret: a signature, a token, a key.
pub fn shown_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let authority = match authority.rfind('@') {
        Some(at) => format!("{HIDDEN}@{}", &authority[at + 1..]),
        None => authority.to_owned(),
    };
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, _)) => (rest, format!("#{HIDDEN}")),
        None => (rest, String::new()),
    };
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, format!("?{}", shown_query(query))),
        None => (rest, String::new()),
    };
    format!("{scheme}{authority}{path}{query}{fragment}")
}

/// The names in a query.
fn shown_query(query: &str) -> String {
    let shown = |pair: &str| match pair.split_once('=') {
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None if pair.is_empty() => String::new(),
        None => HIDDEN.to_owned(),
    };
    query.split('&').map(shown).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_password_and_values_of_the_query() {
        for (url, shown) in [
            ("http://user:pw@h:1/a@b", "http://***@h:1/a@b"),
            ("https://token@h", "https://***@h"),
            ("user:p@w@h/a", "***@h/a"),
            ("http://h/a?sig=x%2F&to=me@there&empty=", "http://h/a?sig=***&to=***&empty=***"),
            ("http://h?token", "http://h?***"),
            ("http://h/a?", "http://h/a?"),
            ("http://h/a#token", "http://h/a#***"),
            ("http://h/a?b=1?c#d?e", "http://h/a?b=***#***"),
            ("http://h/a", "http://h/a"),
            ("", ""),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }
}
