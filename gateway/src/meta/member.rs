//! The identity of this gateway in its group, as its file records it: an id, a URL, and whether it
//! is a member.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result, placement};
use serde::{Deserialize, Serialize};

use super::file::MetaFile;
use super::log_store::on_disk;

/// The permanent identity of this gateway in its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) url: String,
    /// Missing in files of groups created before gateways could join and leave.
    #[serde(default, skip_serializing_if = "Place::is_inside")]
    pub(super) place: Place,
}

/// A gateway's position in its group, by its own file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    #[default]
    Inside,
    /// It asks to join. `blank`: the group may remember more about it than its own file, so it does
    /// not vote.
    Entering { blank: bool },
    /// The group removed it.
    Removed,
}

impl Place {
    fn is_inside(&self) -> bool {
        *self == Self::Inside
    }
}

/// The first step of a gateway after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Resumes in the group that its file describes.
    Resume,
    /// Forms a group of these URLs, including its own, unless one of them has a group already.
    Form(Vec<String>),
    /// Asks the gateways of the configuration to admit it.
    Enter,
}

/// The record of this gateway; cheap to clone.
#[derive(Clone)]
pub(super) struct Mine {
    /// Set until the group stops: then others may open the file.
    file: Arc<Mutex<Option<MetaFile>>>,
    path: PathBuf,
    member: Arc<Mutex<Member>>,
}

impl Mine {
    /// Reads or creates the record, and decides how to begin. `configured` are the URLs of
    /// `cluster.gateways`. Blocks on the disk.
    pub(super) fn open(
        file: &MetaFile,
        path: &Path,
        my_url: &str,
        configured: &[String],
    ) -> Result<(Self, Beginning)> {
        let listed = listed(configured)?;
        let took_part = !file.is_blank()?;
        let known = file.member::<Member>()?.filter(|_| took_part);
        let made = known.is_none();
        let mut member = known.unwrap_or_else(|| Member {
            id: placement::digest(my_url),
            url: my_url.to_owned(),
            place: Place::Inside,
        });
        if member.place == Place::Removed {
            return Err(removed(path));
        }
        if member.url != my_url {
            let several = file.membership()?.is_some_and(|m| m.nodes().count() > 1);
            // The others identify a member by its URL. A gateway that is alone may move.
            if several || member.place != Place::Inside {
                return Err(Error::invalid(format!(
                    "this gateway was {} and is now to be {my_url}",
                    member.url
                ))
                .hint("gateways of one group keep their URLs; start it where it was"));
            }
        }
        let beginning = match (took_part, member.place) {
            (true, Place::Inside) => Beginning::Resume,
            (true, _) => Beginning::Enter,
            (false, _) if listed.is_empty() => Beginning::Form(vec![my_url.to_owned()]),
            (false, _) if listed.iter().any(|url| url == my_url) => Beginning::Form(listed),
            (false, _) => Beginning::Enter,
        };
        if made {
            member.place = match &beginning {
                Beginning::Resume => Place::Inside,
                Beginning::Form(urls) if urls.len() == 1 => Place::Inside,
                Beginning::Form(_) | Beginning::Enter => Place::Entering { blank: true },
            };
            file.set_member(&member)?;
        }
        let (file, path) = (Arc::new(Mutex::new(Some(file.clone()))), path.to_owned());
        Ok((Self { file, path, member: Arc::new(Mutex::new(member)) }, beginning))
    }

    pub(super) fn id(&self) -> u64 {
        self.member.locked().id
    }

    pub(super) fn place(&self) -> Place {
        self.member.locked().place
    }

    /// Records the position in the file, then in memory.
    pub(super) async fn set_place(&self, place: Place) -> Result<()> {
        let mut member = self.member.locked().clone();
        if member.place == place {
            return Ok(());
        }
        member.place = place;
        let kept = member.clone();
        let file = self.file.locked().clone();
        let file = file.ok_or_else(|| Error::unavailable("this gateway is about to stop"))?;
        on_disk(file, move |file| file.set_member(&kept)).await?;
        *self.member.locked() = member;
        Ok(())
    }

    /// Releases the file.
    pub(super) fn close(&self) {
        self.file.locked().take();
    }

    /// Why a removed gateway does not run.
    pub(super) fn removed(&self) -> Error {
        removed(&self.path)
    }
}

fn removed(path: &Path) -> Error {
    Error::invalid("this gateway was removed from the cluster's gateways, which go on without it")
        .hint(format!(
            "leave it stopped; or, to have it taken in again as a new one, move {} away and start it",
            path.display()
        ))
}

/// The normalized URLs of `cluster.gateways`.
fn listed(configured: &[String]) -> Result<Vec<String>> {
    let urls: Vec<String> = configured.iter().map(|u| u.trim_end_matches('/').to_owned()).collect();
    match urls.iter().find(|url| urls.iter().filter(|u| u == url).count() > 1) {
        Some(twice) => Err(Error::invalid(format!("cluster.gateways names {twice} twice"))),
        None => Ok(urls),
    }
}

/// The URLs of a group that is created at once, as from a backup; all of them are listed.
pub(super) fn group_of(configured: &[String], my_url: &str) -> Result<Vec<String>> {
    let urls = listed(configured)?;
    if urls.is_empty() {
        return Ok(vec![my_url.to_owned()]);
    }
    if !urls.iter().any(|url| url == my_url) {
        return Err(Error::invalid(format!(
            "cluster.gateways ({}) does not name this gateway, {my_url}",
            urls.join(" ")
        ))
        .hint("list the URL of every gateway exactly as in its listen.advertise"));
    }
    Ok(urls)
}

/// Ids and URLs of a new group's members.
pub(super) fn members(gateways: &[String]) -> BTreeMap<u64, String> {
    gateways.iter().map(|url| (placement::digest(url), url.clone())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ME: &str = "http://127.0.0.1:1";

    fn begin(dir: &Path, url: &str, gateways: &[&str]) -> Result<(Mine, Beginning)> {
        let gateways: Vec<String> = gateways.iter().map(|url| (*url).to_owned()).collect();
        let path = dir.join("meta.redb");
        Mine::open(&MetaFile::open(&path)?, &path, url, &gateways)
    }

    #[test]
    fn a_new_gateway_makes_a_group_or_asks_one() {
        let other = "http://127.0.0.1:2";
        let form = |urls: &[&str]| Beginning::Form(urls.iter().map(|u| (*u).to_owned()).collect());
        let blank = Place::Entering { blank: true };
        for (gateways, want, place) in [
            (vec![], form(&[ME]), Place::Inside),
            (vec!["http://127.0.0.1:1/"], form(&[ME]), Place::Inside),
            (vec![other, ME], form(&[other, ME]), blank),
            (vec![other], Beginning::Enter, blank),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for _ in 0..2 {
                let (mine, beginning) = begin(dir.path(), ME, &gateways).unwrap();
                assert_eq!((beginning, mine.place()), (want.clone(), place), "{gateways:?}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let twice = begin(dir.path(), ME, &[ME, other, other]).err().unwrap();
        assert!(twice.message.contains("twice"), "{twice}");
    }

    #[tokio::test]
    async fn a_removed_gateway_does_not_start_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.redb");
        let file = MetaFile::open(&path).unwrap();
        let (mine, _) = Mine::open(&file, &path, ME, &[]).unwrap();
        file.set_vote(&super::super::Vote::new(1, mine.id())).unwrap();
        mine.set_place(Place::Removed).await.unwrap();
        mine.close();
        assert!(mine.set_place(Place::Inside).await.is_err(), "the file belongs to others now");
        drop(file);
        let e = begin(dir.path(), ME, &[]).err().unwrap();
        assert!(e.message.contains("was removed from the cluster's gateways"), "{e}");
        assert!(e.hint.is_some_and(|hint| hint.contains("meta.redb")));
    }

    #[test]
    fn a_record_of_before_is_one_of_a_member() {
        let old: Member = serde_json::from_str(r#"{"id":7,"url":"http://a:1"}"#).unwrap();
        assert_eq!(old.place, Place::Inside);
        let text = serde_json::to_string(&old).unwrap();
        assert_eq!(text, r#"{"id":7,"url":"http://a:1"}"#, "an older version reads it");
    }
}
