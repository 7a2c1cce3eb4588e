//! Endpoints of buckets: their host and port, and whether they are a cloud's own.

use crate::bucket::BackendKind;

/// The server of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub is_https: bool,
    /// In lower case, without brackets.
    pub host: String,
    pub port: u16,
}

impl Server {
    /// The server of an HTTP or HTTPS URL; `None` for anything else.
    pub fn of(url: &str) -> Option<Self> {
        let uri: http::Uri = url.parse().ok()?;
        let is_https = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        Some(Self { is_https, host: super::bare(uri.host()?), port })
    }
}

/// Whether a server is one of the cloud's own hosts, and called by HTTPS. No other server can have
/// the certificate of such a host.
pub fn is_clouds_own(kind: BackendKind, server: &Server) -> bool {
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| server.host.ends_with(suffix));
    let is_own = match kind {
        BackendKind::S3 => {
            // Other services of the cloud run programs of customers.
            let is_s3 = |label: &str| {
                label == "s3" || ["s3-", "s3express-"].iter().any(|s| label.starts_with(s))
            };
            ends(&[".amazonaws.com", ".amazonaws.com.cn"])
                && !ends(&[".elb.amazonaws.com", ".elb.amazonaws.com.cn"])
                && server.host.split('.').any(is_s3)
        }
        BackendKind::Gcs => ends(&[".googleapis.com"]),
        BackendKind::Azure => ends(&[
            ".blob.core.windows.net",
            ".blob.storage.azure.net",
            ".blob.core.usgovcloudapi.net",
            ".blob.core.chinacloudapi.cn",
        ]),
        BackendKind::Ais | BackendKind::Http | BackendKind::Folder => false,
    };
    is_own && server.is_https
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_its_server() {
        let of = |url: &str| Server::of(url).map(|s| (s.is_https, s.host, s.port));
        assert_eq!(of("http://MinIO:9000/x"), Some((false, "minio".into(), 9000)));
        assert_eq!(of("https://[fd12::1]"), Some((true, "fd12::1".into(), 443)));
        assert_eq!((of("ftp://a"), of("minio:9000"), of("nonsense")), (None, None, None));
    }

    #[test]
    fn only_hosts_that_a_cloud_runs_itself_are_its_own() {
        let own = |kind, url: &str| is_clouds_own(kind, &Server::of(url).unwrap());
        for (kind, url) in [
            (BackendKind::S3, "https://s3.amazonaws.com"),
            (BackendKind::S3, "https://s3.us-west-2.amazonaws.com"),
            (BackendKind::S3, "https://s3-fips.us-east-1.amazonaws.com"),
            (BackendKind::S3, "https://bucket.vpce-1a2b.s3.us-east-1.vpce.amazonaws.com"),
            (BackendKind::S3, "https://b.s3express-use1-az4.us-east-1.amazonaws.com"),
            (BackendKind::S3, "https://s3.cn-north-1.amazonaws.com.cn"),
            (BackendKind::Gcs, "https://storage.googleapis.com"),
            (BackendKind::Azure, "https://images.blob.core.windows.net"),
        ] {
            assert!(own(kind, url), "{url}");
        }
        for (kind, url) in [
            (BackendKind::S3, "http://s3.amazonaws.com"),
            (BackendKind::S3, "https://ec2-1-2-3-4.compute-1.amazonaws.com"),
            (BackendKind::S3, "https://s3-123.us-east-1.elb.amazonaws.com"),
            (BackendKind::S3, "https://s3.amazonaws.com.example.org"),
            (BackendKind::S3, "https://s3.example.org"),
            (BackendKind::Gcs, "https://notgoogleapis.com"),
            (BackendKind::Azure, "https://storage.googleapis.com"),
            (BackendKind::Ais, "https://s3.amazonaws.com"),
        ] {
            assert!(!own(kind, url), "{url}");
        }
    }
}
