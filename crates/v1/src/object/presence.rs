//! Where an object must exist for a HEAD to find it.

use forebay_core::error::{Error, Result};

use crate::query::Query;

/// Where an object must exist for a HEAD to find it (§23.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Whether its backend is left out.
    pub here: bool,
    /// Whether it must not be in the cluster.
    pub outside: bool,
    /// Whether its properties are returned.
    pub props: bool,
}

impl Presence {
    /// Parses the query's `presence`; the default is anywhere, with properties.
    pub fn parse(query: &Query) -> Result<Self> {
        let text = query.get("presence").unwrap_or("0");
        Ok(match text {
            "0" => Self { here: false, outside: false, props: true },
            "1" => Self { here: false, outside: false, props: false },
            "2" | "4" => Self { here: true, outside: false, props: true },
            "3" => Self { here: true, outside: false, props: false },
            "5" => Self { here: false, outside: true, props: true },
            _ => {
                return Err(Error::invalid(format!("invalid presence \"{text}\""))
                    .hint("0 anywhere, 2 in the cluster, 1 and 3 the same without properties"));
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn presence_is_one_of_six() {
        let p = |text: &str| Presence::parse(&Query::parse(Some(text)));
        assert_eq!(p("").unwrap(), Presence { here: false, outside: false, props: true });
        assert_eq!(p("presence=2").unwrap(), Presence { here: true, outside: false, props: true });
        assert_eq!(p("presence=3").unwrap(), Presence { here: true, outside: false, props: false });
        assert!(!p("presence=1").unwrap().props && p("presence=4").unwrap().here);
        assert!(p("presence=5").unwrap().outside);
        for bad in ["presence=6", "presence=x", "presence=-1"] {
            assert!(p(bad).is_err(), "{bad}");
        }
    }
}
