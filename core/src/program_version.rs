//! Versions of the program at both ends of a connection: which may be used together.

/// Oldest version of a client that this version of a cluster serves.
pub const OLDEST_CLIENT: &str = "0.1.0";

/// A warning if a client of version `client` should not be used with a cluster of version `cluster`, which
/// serves clients from version `oldest`. `None` if the two fit, or if a version cannot be read.
///
/// A cluster serves clients of the minor version before its own, of its own, and of the next one.
pub fn warning(client: &str, cluster: &str, oldest: Option<&str>) -> Option<String> {
    let (own, other) = (parse(client)?, parse(cluster)?);
    if let Some(oldest) = oldest
        && own < parse(oldest)?
    {
        return Some(format!(
            "this program has version {client}, and the cluster serves versions from {oldest}: \
             install version {cluster}"
        ));
    }
    let is_near = own.0 == other.0 && own.1.abs_diff(other.1) <= 1;
    (!is_near).then(|| {
        format!(
            "this program has version {client} and the cluster {cluster}: only neighbouring minor \
             versions are tested together"
        )
    })
}

/// Major, minor and patch version.
fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let core = version.split(['-', '+']).next()?;
    let mut parts = core.split('.').map(|part| part.parse().ok());
    let parsed = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_minor_versions_fit() {
        for cluster in ["1.3.0", "1.4.9", "1.5.0", "1.4.0-rc.1"] {
            assert_eq!(warning("1.4.2", cluster, Some("1.3.0")), None, "{cluster}");
        }
    }

    #[test]
    fn versions_further_apart_are_named() {
        for cluster in ["1.6.0", "1.2.0", "2.4.0"] {
            let text = warning("1.4.2", cluster, None).unwrap_or_default();
            assert!(text.contains("1.4.2") && text.contains(cluster), "{text}");
        }
    }

    #[test]
    fn a_client_that_is_too_old_gets_the_version_to_install() {
        let text = warning("0.9.0", "1.0.0", Some("0.10.0")).unwrap_or_default();
        assert!(text.ends_with("install version 1.0.0"), "{text}");
    }

    #[test]
    fn a_version_that_cannot_be_read_gives_no_warning() {
        for odd in ["", "1.2", "1.2.3.4", "x.y.z"] {
            assert_eq!(warning("1.4.2", odd, None), None, "{odd}");
        }
    }
}
