//! The user that a grant or a redirect is bound to.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Prefix of a grant with a user. Grants without one begin with the format of their proof.
const PREFIX: &str = "u1";
const SEPARATOR: char = '.';

/// The user of a grant or redirect, the token that it was made for, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantUser {
    pub user: String,
    /// Id of the token, which may be revoked.
    pub token: String,
    /// Epoch of the section of users at that time.
    pub epoch: u64,
}

/// Marks the token of a node that acts as a client of its own cluster.
const NODE: &str = "node";

impl GrantUser {
    /// A node that acts as a client of its own cluster, for jobs whose rights were checked when they
    /// started. Ids of tokens of users are longer.
    pub fn node() -> Self {
        Self { user: String::new(), token: NODE.to_owned(), epoch: 0 }
    }

    /// Reads the user from a grant that was not checked yet; returns it with the proof.
    pub(super) fn parse(grant: &str) -> Option<(Self, &str)> {
        let mut parts = grant.splitn(5, SEPARATOR);
        let user = Self::read(&mut parts)?;
        Some((user, parts.next()?))
    }

    fn read<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let is_ours = parts.next()? == PREFIX;
        let mut text = || String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
        let (user, token) = (text()?, text()?);
        let epoch = parts.next()?.parse().ok()?;
        is_ours.then_some(Self { user, token, epoch })
    }

    /// The text of a grant with this proof.
    pub(super) fn text(&self, proof: &str) -> String {
        format!("{}{SEPARATOR}{proof}", self.query_value())
    }

    /// The value of a redirect's parameter, which needs no encoding. The proof of the redirect covers
    /// it with the query.
    pub fn query_value(&self) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let (user, token, epoch, s) =
            (encode(&self.user), encode(&self.token), self.epoch, SEPARATOR);
        format!("{PREFIX}{s}{user}{s}{token}{s}{epoch}")
    }

    /// Reads the output of [`Self::query_value`]; `None` for any other text.
    pub fn of_query_value(text: &str) -> Option<Self> {
        let mut parts = text.split(SEPARATOR);
        let user = Self::read(&mut parts)?;
        parts.next().is_none().then_some(user)
    }

    /// The subject that the proof covers. Ids of tokens have no blanks.
    pub(super) fn subject(&self) -> String {
        format!("{} {} {}", self.epoch, self.token.replace(' ', "%20"), self.user)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::NodeId;
    use crate::sign::{ClusterSecret, GRANT_TTL_S, Held, Signer, Trust};
    use crate::url::encode_query;

    #[test]
    fn the_user_of_a_redirect_is_read_as_it_was_written_and_nothing_else_is() {
        let ann =
            GrantUser { user: "k8s:a b&c=d.é~%".into(), token: "sha256:00".into(), epoch: 7 };
        let text = ann.query_value();
        assert_eq!(encode_query(&text), text);
        assert_eq!(GrantUser::of_query_value(&text), Some(ann));
        for other in [
            String::new(),
            format!("{text}."),
            text.replacen("u1", "u2", 1),
            text.rsplit_once('.').unwrap().0.to_owned(),
            text.replace(".7", ".x"),
        ] {
            assert_eq!(GrantUser::of_query_value(&other), None, "{other}");
        }
    }

    #[test]
    fn a_grant_counts_for_its_user_token_and_epoch_alone() {
        let secret = ClusterSecret::new("0123456789abcdef").unwrap();
        let signer = Signer::new(secret.clone(), NodeId::new("gateway-1").unwrap(), 1);
        let trust = Trust::by_secret(&secret);
        let ann = GrantUser { user: "ann.x~y".into(), token: "t1".into(), epoch: 7 };
        let grant = signer.user_grant(&ann, 1000);
        assert_eq!(trust.verify_user_grant(&grant, 1000), Some(ann.clone()));
        assert_eq!(trust.verify_user_grant(&grant, 1001 + GRANT_TTL_S), None);
        let (_, proof) = GrantUser::parse(&grant).unwrap();
        for other in [
            GrantUser { user: "bob".into(), ..ann.clone() },
            GrantUser { token: "t2".into(), ..ann.clone() },
            GrantUser { epoch: 8, ..ann.clone() },
        ] {
            assert_eq!(trust.verify_user_grant(&other.text(proof), 1000), None, "{other:?}");
        }
        let plain = signer.grant(1000);
        assert_eq!(trust.verify_user_grant(&plain, 1000), None);
        assert_eq!(trust.verify_user_grant(&ann.text(&plain), 1000), None);
        assert_eq!(trust.verify_grant(&grant, 1000), Held::No);
    }
}
