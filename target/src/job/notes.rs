//! Durable records of jobs that continue after a restart: the task and the progress of each, as
//! files in the node's folder.

use std::io;
use std::path::{Path, PathBuf};

use forebay_core::job::{JobSpec, JobStatus};
use forebay_core::{Error, Result};
use forebay_store::blocking;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::note_file::replace;

/// Folder below the node's folder.
const FOLDER: &str = "jobs";
/// The task of a job: written once, because it may have very many names.
const SPEC: &str = "spec.json";
/// The progress of a job.
const PROGRESS: &str = "at.json";

/// The position of a walk over names: everything before it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Number of finished names, if the selection is a list of names.
    pub(super) names: u64,
    /// The last name of a listing.
    pub(super) after: String,
    /// Objects and bytes of this target in the listing so far.
    pub(super) listed: u64,
    pub(super) listed_bytes: u64,
}

/// The progress of a job on this target. Counters are those of the position, so that nothing is
/// counted twice when the job is resumed there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) status: JobStatus,
    pub(super) at: Position,
}

/// The job records of a node; without a folder nothing is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Notes(Option<PathBuf>);

/// The record of a job as found on the disk.
pub(crate) struct Noted {
    pub(super) spec: JobSpec,
    pub(super) progress: Progress,
}

impl Notes {
    pub(crate) fn new(node_dir: &Path) -> Self {
        Self((!node_dir.as_os_str().is_empty()).then(|| node_dir.join(FOLDER)))
    }

    /// Reads the records of earlier processes. An unreadable record is left where it is.
    pub(crate) async fn load(&self) -> Result<Vec<Noted>> {
        let Some(folder) = self.0.clone() else { return Ok(Vec::new()) };
        blocking(move || {
            let entries = match std::fs::read_dir(&folder) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries.map_err(|e| failed("read", &folder, &e))?,
            };
            let mut found = Vec::new();
            for entry in entries {
                let path = entry.map_err(|e| failed("read", &folder, &e))?.path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let Some(id) = name.strip_suffix(SPEC).and_then(|id| id.strip_suffix('.')) else {
                    continue;
                };
                match read_both(&folder, id) {
                    Ok(noted) => found.push(noted),
                    Err(e) => tracing::warn!(error = %e, "a job does not go on"),
                }
            }
            Ok(found)
        })
        .await
    }

    /// Records a new job.
    pub(super) async fn begin(&self, spec: &JobSpec, progress: &Progress) -> Result<()> {
        let Some(folder) = self.0.clone() else { return Ok(()) };
        let (spec, progress) = (spec.clone(), progress.clone());
        blocking(move || {
            std::fs::create_dir_all(&folder).map_err(|e| failed("make", &folder, &e))?;
            // A later start finds complete records only: the spec is written last.
            write(&folder, &spec.id, PROGRESS, &progress)?;
            write(&folder, &spec.id, SPEC, &spec)
        })
        .await
    }

    /// Records the progress of a job. If that fails, a restart only repeats finished work.
    pub(super) async fn save(&self, progress: Progress) {
        let Some(folder) = self.0.clone() else { return };
        let written =
            blocking(move || write(&folder, &progress.status.id, PROGRESS, &progress)).await;
        if let Err(e) = written {
            tracing::warn!(error = %e, "cannot note how far a job is");
        }
    }

    /// Removes the record of a job.
    pub(super) fn forget(&self, id: &str) {
        let Some(folder) = &self.0 else { return };
        for kind in [SPEC, PROGRESS] {
            match std::fs::remove_file(file(folder, id, kind)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(job = id, error = %e, "cannot remove what was noted of a job");
                }
                _ => {}
            }
        }
    }
}

fn file(folder: &Path, id: &str, kind: &str) -> PathBuf {
    folder.join(format!("{id}.{kind}"))
}

fn write(folder: &Path, id: &str, kind: &str, note: &impl Serialize) -> Result<()> {
    let path = file(folder, id, kind);
    let text = serde_json::to_vec(note).map_err(|e| failed("write", &path, &e))?;
    replace(&path, &text).map_err(|e| failed("write", &path, &e))
}

fn read_both(folder: &Path, id: &str) -> Result<Noted> {
    Ok(Noted { spec: read(folder, id, SPEC)?, progress: read(folder, id, PROGRESS)? })
}

fn read<T: DeserializeOwned>(folder: &Path, id: &str, kind: &str) -> Result<T> {
    let path = file(folder, id, kind);
    let text = std::fs::read(&path).map_err(|e| failed("read", &path, &e))?;
    serde_json::from_slice(&text).map_err(|e| failed("understand", &path, &e))
}

fn failed(verb: &str, path: &Path, e: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("cannot {verb} {}: {e}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::job::{JobKind, Selection};

    use super::*;

    #[tokio::test]
    async fn what_was_noted_is_found_again_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::new(dir.path());
        assert!(notes.load().await.unwrap().is_empty());
        let selection = Selection::Names(vec!["a".into(), "b/é".into()]);
        let spec = JobSpec { selection, ..JobSpec::new(JobKind::Prefetch, "job-1") };
        let mut progress = Progress { status: JobStatus::new(&spec, 7), at: Position::default() };
        notes.begin(&spec, &progress).await.unwrap();
        progress.at = Position { names: 1, after: "a".into(), ..Position::default() };
        progress.status.objects = 1;
        notes.save(progress.clone()).await;
        // A damaged record does not prevent reading the others.
        std::fs::write(dir.path().join("jobs/job-2.spec.json"), "{").unwrap();
        let found = Notes::new(dir.path()).load().await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].spec, &found[0].progress.at), (&spec, &progress.at));
        assert_eq!(found[0].progress.status, progress.status);
        notes.forget("job-1");
        assert!(notes.load().await.unwrap().is_empty());
        Notes::new(Path::new("")).begin(&spec, &progress).await.unwrap();
    }
}
