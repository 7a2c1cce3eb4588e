//! Certificates of a `dev` cluster: a CA of its own, and one certificate for each node.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_core::Error;
use forebay_core::date::format_utc;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::home;
use crate::node::{Stopped, exit};

/// Names and addresses by which the nodes are reached.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Validity of certificates in years.
const YEARS: i32 = 2;

/// The certificates in `DIR/tls`.
#[derive(Debug)]
pub(super) struct DevTls {
    dir: PathBuf,
}

impl DevTls {
    /// Makes a certificate for each node. The CA is made at the first start and kept.
    pub(super) fn make<'a>(
        dir: &Path,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Stopped> {
        let tls = Self { dir: dir.join("tls") };
        fs::create_dir_all(&tls.dir).map_err(|e| home::failed(&tls.dir, &e))?;
        let issuer = tls.issuer()?;
        for node in nodes {
            let key = KeyPair::generate().map_err(failed)?;
            let names = NAMES.iter().copied().chain([node]).map(str::to_owned);
            let mut params = CertificateParams::new(names.collect::<Vec<_>>()).map_err(failed)?;
            params.distinguished_name.push(DnType::CommonName, node);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            params.use_authority_key_identifier_extension = true;
            limit(&mut params);
            let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
            home::write(&tls.cert(node), certificate.pem().as_bytes(), 0o600)?;
            home::write(&tls.key(node), key.serialize_pem().as_bytes(), 0o600)?;
        }
        Ok(tls)
    }

    /// PEM file with the certificate of the CA.
    pub(super) fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// PEM file with the certificate of a node.
    pub(super) fn cert(&self, node: &str) -> PathBuf {
        self.dir.join(format!("{node}.pem"))
    }

    /// PEM file with the key of a node.
    pub(super) fn key(&self, node: &str) -> PathBuf {
        self.dir.join(format!("{node}-key.pem"))
    }

    /// The CA, which is made if it does not exist.
    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, Stopped> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "forebay dev CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        limit(&mut params);
        let path = self.dir.join("ca-key.pem");
        if path.exists() && self.ca().exists() {
            let pem = fs::read_to_string(&path).map_err(|e| home::failed(&path, &e))?;
            return Ok(Issuer::new(params, KeyPair::from_pem(&pem).map_err(failed)?));
        }
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        home::write(&self.ca(), certificate.pem().as_bytes(), 0o600)?;
        home::write(&path, key.serialize_pem().as_bytes(), 0o600)?;
        Ok(Issuer::new(params, key))
    }
}

/// Limits the validity to some years from the start of this one.
fn limit(params: &mut CertificateParams) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = format_utc(u64::try_from(now.as_nanos()).unwrap_or_default());
    let year = date.get(..4).and_then(|year| year.parse().ok()).unwrap_or(2026);
    params.not_before = date_time_ymd(year, 1, 1);
    params.not_after = date_time_ymd(year + YEARS, 1, 1);
}

fn failed(e: rcgen::Error) -> Stopped {
    Stopped::new(exit::FAILED, Error::internal(format!("cannot make a certificate: {e}")))
}
