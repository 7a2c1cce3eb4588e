//! Hashes of passwords: Argon2id in the PHC text form.

use argon2::Argon2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use forebay_core::access::Opaque;
use forebay_core::{Error, Result};
use subtle::ConstantTimeEq;

/// Argon2id version 19 with 19 MiB, two passes and one lane, as OWASP recommends.
const PARAMETERS: &str = "$argon2id$v=19$m=19456,t=2,p=1$";
const HASH_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
const MIN_PASSWORD_BYTES: usize = 4;
const MAX_PASSWORD_BYTES: usize = 1024;

/// The hash of a new password. Takes tens of milliseconds of CPU time.
pub fn hash_password(password: &str) -> Result<Opaque> {
    if password.trim().is_empty() || password.len() < MIN_PASSWORD_BYTES {
        let text = format!("the password is shorter than {MIN_PASSWORD_BYTES} characters");
        return Err(Error::invalid(text));
    }
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(Error::invalid(format!("the password exceeds {MAX_PASSWORD_BYTES} bytes")));
    }
    let salt: [u8; SALT_BYTES] = rand::random();
    let hash =
        derive(password, &salt).ok_or_else(|| Error::internal("the password cannot be hashed"))?;
    let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
    Ok(Opaque::new(format!("{PARAMETERS}{salt}${hash}")))
}

/// Whether the password has this hash. Without a hash the work is the same, and the answer no.
pub fn verify_password(password: &str, hash: Option<&Opaque>) -> bool {
    let parts = hash.and_then(|hash| parse(hash.as_str()));
    let is_known = parts.is_some();
    let (salt, expected) = parts.unwrap_or(([0; SALT_BYTES], [0; HASH_BYTES]));
    // A longer password cannot be set.
    let tried = if password.len() > MAX_PASSWORD_BYTES { "" } else { password };
    let Some(found) = derive(tried, &salt) else { return false };
    bool::from(found.ct_eq(&expected)) && is_known && tried == password
}

fn derive(password: &str, salt: &[u8]) -> Option<[u8; HASH_BYTES]> {
    let mut hash = [0; HASH_BYTES];
    // The default parameters are those of `PARAMETERS`; a test compares them.
    Argon2::default().hash_password_into(password.as_bytes(), salt, &mut hash).ok()?;
    Some(hash)
}

fn parse(hash: &str) -> Option<([u8; SALT_BYTES], [u8; HASH_BYTES])> {
    let (salt, hash) = hash.strip_prefix(PARAMETERS)?.split_once('$')?;
    let salt = STANDARD_NO_PAD.decode(salt).ok()?.try_into().ok()?;
    Some((salt, STANDARD_NO_PAD.decode(hash).ok()?.try_into().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_password_matches_its_own_hash_alone() {
        let hash = hash_password("planted").unwrap();
        assert!(verify_password("planted", Some(&hash)));
        for wrong in ["Planted", "", "planted "] {
            assert!(!verify_password(wrong, Some(&hash)), "{wrong}");
        }
        assert!(!verify_password("planted", None));
        assert!(!verify_password("planted", Some(&Opaque::default())));
        assert!(!hash.as_str().contains("planted"));
        assert_ne!(hash_password("planted").unwrap(), hash, "a salt of its own");
    }

    #[test]
    fn the_text_names_the_parameters_that_are_used() {
        let p = argon2::Params::default();
        let (m, t, lanes) = (p.m_cost(), p.t_cost(), p.p_cost());
        assert_eq!(PARAMETERS, format!("$argon2id$v=19$m={m},t={t},p={lanes}$"));
    }
}
