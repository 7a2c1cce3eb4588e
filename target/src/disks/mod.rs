//! Commands that take disks in and out of use while the target runs, and their record for restarts.

mod notes;
mod roots;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::config::DiskConfig;
use forebay_core::intra::{DiskAction, DiskCommand, DiskStatus, DiskUsage};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_store::{DiskState, Store, Volume, blocking};
use tokio::sync::Mutex;

pub(crate) use self::notes::Notes;
use self::notes::settings_of;
pub(crate) use self::roots::DiskRoots;
use crate::object::ObjectService;

/// A disk that is empty within this time is removed when the command returns.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Executes commands on the disks of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct DiskAdmin(Arc<Inner>);

struct Inner {
    store: Store,
    objects: ObjectService,
    /// Disks of the configuration file.
    configured: Vec<DiskConfig>,
    roots: DiskRoots,
    /// Folder of the node, with the record.
    folder: PathBuf,
    /// One command at a time.
    notes: Mutex<Notes>,
    lifecycle: Lifecycle,
}

impl DiskAdmin {
    pub(crate) fn new(
        store: Store,
        objects: ObjectService,
        configured: Vec<DiskConfig>,
        roots: DiskRoots,
        folder: PathBuf,
        notes: Notes,
        lifecycle: Lifecycle,
    ) -> Self {
        let notes = Mutex::new(notes);
        Self(Arc::new(Inner { store, objects, configured, roots, folder, notes, lifecycle }))
    }

    /// Continues commands that a restart interrupted.
    pub(crate) async fn resume(&self) {
        let leaving = self.0.notes.lock().await.leaving.clone();
        for (path, action) in leaving {
            if let Err(e) = self.begin_leaving(Path::new(&path), action).await {
                tracing::warn!(disk = path, "it was to be emptied, and stays: {e}");
            }
        }
    }

    /// The present state of the disks.
    pub(crate) fn show(&self) -> Vec<DiskUsage> {
        shown(&self.0.store)
    }

    /// Executes a command to its end even if the caller goes away. Long work continues after the
    /// response.
    pub(crate) async fn act(&self, command: DiskCommand) -> Result<Vec<DiskUsage>> {
        let disk_admin = self.clone();
        let acted = self.0.lifecycle.spawn(async move { disk_admin.act_now(command).await });
        acted.await.map_err(|e| Error::internal(format!("a command did not end: {e}")))??;
        Ok(self.show())
    }

    async fn act_now(&self, command: DiskCommand) -> Result<()> {
        let path = PathBuf::from(&command.path);
        let is_about_one = !matches!(command.action, DiskAction::Show | DiskAction::Check);
        if is_about_one && !path.is_absolute() && self.0.store.state(&path).is_err() {
            let text = format!("\"{}\" is no absolute path of a folder", command.path);
            return Err(Error::invalid(text));
        }
        match command.action {
            DiskAction::Show => Ok(()),
            DiskAction::Check => {
                self.0.store.look_again();
                Ok(())
            }
            DiskAction::Attach => self.attach(&path, &command).await,
            DiskAction::Enable => self.enable(&path).await,
            DiskAction::Detach | DiskAction::Disable if command.force => {
                self.give_up(&path, command.action).await
            }
            DiskAction::Detach | DiskAction::Disable => self.leave(&path, command.action).await,
        }
    }

    async fn attach(&self, path: &Path, command: &DiskCommand) -> Result<()> {
        let mut notes = self.0.notes.lock().await;
        let here = self.0.store.disk_report().into_iter().map(|disk| disk.path).collect();
        let named = |disk: &&DiskConfig| Path::new(&disk.path) == path;
        let configured = self.0.configured.iter().find(named);
        let roots = configured.is_none().then(|| self.0.roots.clone());
        let new = path.to_owned();
        blocking(move || check_folder(&new, here, roots.as_ref())).await?;
        let mut disk = configured.cloned().unwrap_or_else(|| DiskConfig {
            path: command.path.clone(),
            size: None,
            mount: false,
            rebuild_index: false,
        });
        disk.size = command.size.or(disk.size);
        disk.mount |= command.mount;
        let settings = settings_of(&disk).of_node(self.0.objects.me());
        self.0.store.attach_disk(settings, command.force).await?;
        let mut next = notes.clone();
        next.attach(disk, configured);
        match next.save(&self.0.folder).await {
            Ok(()) => {
                *notes = next;
                tracing::info!(disk = %path.display(), "attached");
                Ok(())
            }
            Err(e) => {
                self.0.store.take_out(path, DiskState::Detached)?;
                Err(e)
            }
        }
    }

    async fn enable(&self, path: &Path) -> Result<()> {
        let mut notes = self.0.notes.lock().await;
        if matches!(self.0.store.state(path)?, DiskState::Disabled { .. }) {
            let mut next = notes.clone();
            next.disabled.remove(text_of(path).as_str());
            next.save(&self.0.folder).await?;
            *notes = next;
        }
        drop(notes);
        self.0.store.enable_disk(path).await
    }

    /// Takes a disk out of use with the objects on it.
    async fn give_up(&self, path: &Path, action: DiskAction) -> Result<()> {
        let state = self.0.store.state(path)?;
        let emptied = matches!(state, DiskState::Disabled { emptied: true });
        self.go(path, action, emptied).await
    }

    /// Empties a disk and takes it out of use: soon, or after the response.
    async fn leave(&self, path: &Path, action: DiskAction) -> Result<()> {
        match self.0.store.state(path)? {
            DiskState::Disabled { .. } if action == DiskAction::Disable => return Ok(()),
            DiskState::Disabled { emptied: true } => return self.go(path, action, true).await,
            DiskState::InUse => {}
            state => {
                let text = format!("the objects of {} cannot be moved: {state}", path.display());
                return Err(Error::new(ErrorCode::Conflict, text)
                    .hint("wait until that is over, or give them up by force"));
            }
        }
        let ended = self.begin_leaving(path, action).await?;
        match tokio::time::timeout(ANSWER_WITHIN, ended).await {
            Ok(Ok(ended)) => ended,
            _ => Ok(()),
        }
    }

    async fn begin_leaving(
        &self,
        path: &Path,
        action: DiskAction,
    ) -> Result<tokio::task::JoinHandle<Result<()>>> {
        let volume = {
            let mut notes = self.0.notes.lock().await;
            let volume = self.0.store.begin_leaving(path)?;
            let mut next = notes.clone();
            next.leaving.insert(text_of(path), action);
            if let Err(e) = next.save(&self.0.folder).await {
                self.0.store.stay(&volume, &e);
                return Err(e);
            }
            *notes = next;
            volume
        };
        let (disk_admin, path, stop) = (self.clone(), path.to_owned(), self.0.lifecycle.token());
        Ok(self.0.lifecycle.spawn(async move {
            tokio::select! {
                // Continues after the restart.
                () = stop.cancelled() => Ok(()),
                ended = disk_admin.empty_and_go(&volume, &path, action) => ended,
            }
        }))
    }

    async fn empty_and_go(
        &self,
        volume: &Arc<Volume>,
        path: &Path,
        action: DiskAction,
    ) -> Result<()> {
        let (store, lock) = (&self.0.store, self.0.objects.object_lock());
        let emptied = match store.empty(volume, &lock).await {
            Ok(()) if store.state(path)? == DiskState::Leaving => self.go(path, action, true).await,
            Ok(()) => Err(Error::unavailable("it went out of use meanwhile")),
            Err(e) => Err(e),
        };
        if let Err(e) = &emptied {
            tracing::warn!(disk = %path.display(), "it was to be emptied, and stays: {e}");
            store.stay(volume, e);
            let mut notes = self.0.notes.lock().await;
            notes.leaving.remove(text_of(path).as_str());
            if let Err(e) = notes.save(&self.0.folder).await {
                tracing::warn!("the disk would be emptied again after a restart: {e}");
            }
        }
        emptied
    }

    /// Takes a disk out of use, also after restarts.
    async fn go(&self, path: &Path, action: DiskAction, emptied: bool) -> Result<()> {
        let mut notes = self.0.notes.lock().await;
        let mut next = notes.clone();
        let state = if action == DiskAction::Disable {
            next.disable(text_of(path), emptied);
            DiskState::Disabled { emptied }
        } else {
            next.detach(text_of(path), &self.0.configured);
            DiskState::Detached
        };
        next.save(&self.0.folder).await?;
        *notes = next;
        self.0.store.take_out(path, state)
    }
}

/// The disks of a store, for status reports.
pub(crate) fn shown(store: &Store) -> Vec<DiskUsage> {
    let shown = store.disk_report().into_iter().map(|disk| {
        let (state, why) = match disk.state {
            DiskState::InUse => (DiskStatus::InUse, disk.note),
            DiskState::Leaving => (DiskStatus::Leaving, String::new()),
            DiskState::Away(why) => (DiskStatus::Away, why),
            DiskState::Mending => (DiskStatus::Mending, DiskState::Mending.to_string()),
            DiskState::Disabled { emptied: true } | DiskState::Detached => {
                (DiskStatus::Disabled, String::new())
            }
            DiskState::Disabled { emptied: false } => {
                (DiskStatus::Disabled, "objects that were not moved are on it".to_owned())
            }
        };
        DiskUsage {
            path: text_of(&disk.path),
            used: disk.usage.stored + disk.usage.dead,
            budget: disk.usage.budget,
            state,
            why,
            file_system: disk.file_system,
        }
    });
    shown.collect()
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// Checks that a new disk is below one of the roots, a folder of its own, and contains only files of
/// Forebay.
fn check_folder(path: &Path, disks: Vec<PathBuf>, roots: Option<&DiskRoots>) -> Result<()> {
    let look = |e: std::io::Error| {
        Error::invalid(format!("{} cannot be a disk: {e}", path.display()))
            .hint("make the folder on the target's machine, or mount the disk there")
    };
    let real = std::fs::canonicalize(path);
    if let Some(roots) = roots {
        // Before any other error, which would show what is on the machine.
        roots.check(real.as_deref().unwrap_or(path))?;
    }
    let real = real.map_err(look)?;
    let mut names = std::fs::read_dir(&real).map_err(look)?;
    for disk in disks {
        let known = std::fs::canonicalize(&disk).unwrap_or_else(|_| disk.clone());
        if real.starts_with(&known) || known.starts_with(&real) {
            let text = format!("disk {} is attached already", disk.display());
            return Err(Error::new(ErrorCode::Conflict, text)
                .hint("give another folder, or enable it if it is disabled"));
        }
    }
    let foreign = names.find_map(|name| match name {
        Ok(name) if name.file_name() == "lost+found" => None,
        Ok(name) => Some(Ok(name.file_name())),
        Err(e) => Some(Err(e)),
    });
    match foreign.transpose().map_err(look)? {
        Some(name) if !real.join(".forebay").is_dir() => {
            let (at, name) = (path.display(), name.display());
            Err(Error::new(ErrorCode::Conflict, format!("{at} is not empty: {name} is in it"))
                .hint("give a folder that holds nothing else"))
        }
        _ => Ok(()),
    }
}
