//! A folder of documents: published at the start, and again whenever one of them changes.
//!
//! The folder is looked at again and again; a file counts as changed when its time or size does, and is read once it
//! was the same for two looks, so that a file that is still being written is not told as broken. What must stay true:
//! a workflow belongs to the first file that has its id, for as long as that file has it; nothing that happens in the
//! folder takes a published version away.

use super::publish::publish;
use crate::{cli, validate};
use fermata_runtime::{Engine, EngineError, Refusal};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(150);

/// What tells that a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    size: u64,
}

/// What is known of a folder.
pub struct Folder {
    root: PathBuf,
    engine: Engine,
    /// As they were at the last look.
    seen: BTreeMap<PathBuf, Stamp>,
    /// As they were when they were read.
    read: HashMap<PathBuf, Stamp>,
    /// Which file a workflow belongs to.
    owners: HashMap<String, PathBuf>,
    /// Files with an id that belongs to another one.
    doubles: HashSet<PathBuf>,
    /// Whether the last look failed, so that it is told once.
    unreadable: bool,
}

impl Folder {
    /// A folder that was not looked at yet.
    pub fn new(root: PathBuf, engine: Engine) -> Folder {
        Folder {
            root,
            engine,
            seen: BTreeMap::new(),
            read: HashMap::new(),
            owners: HashMap::new(),
            doubles: HashSet::new(),
            unreadable: false,
        }
    }

    /// Publishes everything that is there; the workflows that could be.
    pub async fn open(&mut self) -> io::Result<Vec<String>> {
        self.seen = stamps(&self.root)?;
        for path in self.seen.keys().cloned().collect::<Vec<_>>() {
            self.take(&path).await;
        }
        let mut workflows: Vec<String> = self.owners.keys().cloned().collect();
        workflows.sort();
        Ok(workflows)
    }

    /// Looks again and again.
    pub async fn watch(mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            match stamps(&self.root) {
                Ok(now) => {
                    self.unreadable = false;
                    self.compare(now).await;
                }
                Err(error) if !self.unreadable => {
                    self.unreadable = true;
                    let root = self.root.display();
                    cli::say(format_args!(
                        "{root} cannot be read: {error}; published workflows stay as they are"
                    ));
                }
                Err(_) => {}
            }
        }
    }

    async fn compare(&mut self, now: BTreeMap<PathBuf, Stamp>) {
        let before = std::mem::replace(&mut self.seen, now);
        for path in before.keys().filter(|path| !self.seen.contains_key(*path)) {
            self.read.remove(path);
            self.doubles.remove(path);
            let of = self
                .owners
                .iter()
                .find(|(_, owner)| *owner == path)
                .map(|(id, _)| id.clone());
            let left = match of {
                Some(id) => {
                    self.owners.remove(&id);
                    format!("; the workflow {id} stays as it is")
                }
                None => String::new(),
            };
            cli::say(format_args!("{} is gone{left}", self.name(path)));
        }
        // An id may be free now that was another file's.
        let waiting = self.doubles.iter().filter(|path| self.is_free(path)).cloned();
        let changed = self.seen.iter().filter_map(|(path, stamp)| {
            let settled = before.get(path) == Some(stamp);
            (settled && self.read.get(path) != Some(stamp)).then(|| path.clone())
        });
        let due: HashSet<PathBuf> = waiting.chain(changed).collect();
        let mut due: Vec<PathBuf> = due.into_iter().collect();
        due.sort();
        for path in due {
            self.take(&path).await;
        }
    }

    /// Whether a double is one no longer.
    fn is_free(&self, path: &Path) -> bool {
        let id = std::fs::read(path).ok().and_then(|source| self.id(&source, path).ok());
        id.is_some_and(|id| !self.owners.contains_key(&id))
    }

    fn id(&self, source: &[u8], path: &Path) -> Result<String, EngineError> {
        let stage = fermata_dialects::Stage::Publish;
        let (_, compiled) = self.engine.workflows().check(source, &self.name(path), stage)?;
        Ok(compiled.plan.workflow.clone())
    }

    /// Reads a file and publishes it, and tells what came of it.
    async fn take(&mut self, path: &Path) {
        let name = self.name(path);
        if let Some(stamp) = self.seen.get(path) {
            self.read.insert(path.to_owned(), *stamp);
        }
        let known = self
            .owners
            .iter()
            .find(|(_, owner)| *owner == path)
            .map(|(id, _)| id.clone());
        let kept = match &known {
            Some(id) => format!("{id} stays as it was"),
            None => "it is not published".to_owned(),
        };
        let source = match std::fs::read(path) {
            Ok(source) => source,
            Err(error) => return cli::say(format_args!("{name} cannot be read: {error}; {kept}")),
        };
        let id = match self.id(&source, path) {
            Ok(id) => id,
            Err(error) => return self.tell(&error, &name, &kept),
        };
        if let Some(owner) = self.owners.get(&id).filter(|owner| *owner != path) {
            let owner = self.name(owner);
            self.doubles.insert(path.to_owned());
            return cli::say(format_args!("{name} has the same id as {owner} ({id}); {kept}"));
        }
        self.doubles.remove(path);
        match publish(&self.engine, &source, &name).await {
            Ok(published) => {
                if known.as_ref().is_some_and(|known| *known != id) {
                    self.owners.retain(|_, owner| owner != path);
                }
                let word = match (published.created, known.is_some()) {
                    (true, true) => "republished",
                    (true, false) => "published",
                    (false, _) => "unchanged:",
                };
                self.owners.insert(id, path.to_owned());
                cli::say(format_args!("{word} {name} as version {}", published.version));
            }
            Err(error) => self.tell(&error, &name, &kept),
        }
    }

    fn tell(&self, error: &EngineError, name: &str, kept: &str) {
        match error {
            EngineError::Refused(Refusal::InvalidDocument(problems)) => {
                cli::say(problems.render(cli::colors(&io::stderr())).trim_end());
                cli::say(format_args!("{name} has errors; {kept}"));
            }
            error => cli::say(format_args!("{name}: {error}; {kept}")),
        }
    }

    /// A file as people here call it.
    fn name(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

fn stamps(root: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut stamps = BTreeMap::new();
    for path in validate::in_folder(root)? {
        // A file that is gone again is one that was never there.
        if let Ok(data) = std::fs::metadata(&path) {
            let stamp = Stamp {
                modified: data.modified().ok(),
                size: data.len(),
            };
            stamps.insert(path, stamp);
        }
    }
    Ok(stamps)
}
