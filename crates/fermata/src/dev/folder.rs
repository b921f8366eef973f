//! A folder of documents: published at the start, and again whenever one of them changes.
//!
//! The folder is polled. A file has changed when its time or size has; it is read when two polls in a row found the same
//! values, so that a file that is still being written is not reported as broken. What must stay true: a workflow belongs to
//! the first file that has its id, for as long as that file has it; no change of the folder removes a published version.

use super::{publish::publish, sample};
use crate::{cli, validate};
use fermata_dialects::{Compiled, Diagnostic, Document, Stage};
use fermata_runtime::{Engine, EngineError, Refusal};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// The time between two polls.
const POLL: Duration = Duration::from_millis(150);

/// The values by which a changed file is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    size: u64,
}

/// A folder and the state of its files.
pub struct Folder {
    root: PathBuf,
    engine: Engine,
    /// The files as the last poll found them.
    seen: BTreeMap<PathBuf, Stamp>,
    /// The files as they were when they were read.
    read: HashMap<PathBuf, Stamp>,
    /// The file that each workflow belongs to.
    owners: HashMap<String, PathBuf>,
    /// Files whose id belongs to another file.
    doubles: HashSet<PathBuf>,
    /// Whether the last poll failed, so that the error is printed once.
    unreadable: bool,
}

impl Folder {
    /// A folder that was not read yet.
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

    /// Publishes all documents of the folder. Returns the workflows that were published, each with a trigger to try it
    /// with.
    pub async fn open(&mut self) -> io::Result<Vec<(String, Value)>> {
        self.seen = stamps(&self.root)?;
        for path in self.seen.keys().cloned().collect::<Vec<_>>() {
            self.take(&path).await;
        }
        let mut workflows: Vec<(String, PathBuf)> = self.owners.clone().into_iter().collect();
        workflows.sort();
        let sampled = workflows.into_iter().map(|(id, path)| {
            let compiled = std::fs::read(&path)
                .ok()
                .and_then(|source| self.compile(&source, &path).ok());
            let trigger = compiled.map(|compiled| sample::trigger(&compiled.plan));
            (id, trigger.unwrap_or_default())
        });
        Ok(sampled.collect())
    }

    /// Polls the folder until the task is aborted.
    pub async fn watch(mut self) {
        loop {
            tokio::time::sleep(POLL).await;
            match stamps(&self.root) {
                Ok(now) => {
                    self.unreadable = false;
                    self.compare(now).await;
                }
                Err(error) if !self.unreadable => {
                    self.unreadable = true;
                    let root = self.root.display();
                    cli::say(format_args!("{root} cannot be read: {error}; workflows stay published"));
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
                    format!("; the workflow {id} stays published")
                }
                None => String::new(),
            };
            cli::say(format_args!("{} was deleted{left}", self.name(path)));
        }
        // An id of a deleted file may be free now for another file.
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

    /// Whether the id of a double belongs to no file any more.
    fn is_free(&self, path: &Path) -> bool {
        let id = std::fs::read(path).ok().and_then(|source| self.id(&source, path).ok());
        id.is_some_and(|id| !self.owners.contains_key(&id))
    }

    fn id(&self, source: &[u8], path: &Path) -> Result<String, EngineError> {
        Ok(self.compile(source, path)?.plan.workflow.clone())
    }

    fn compile(&self, source: &[u8], path: &Path) -> Result<Compiled, EngineError> {
        let (_, compiled) = self
            .engine
            .workflows()
            .check(source, &self.name(path), Stage::Publish)?;
        Ok(compiled)
    }

    /// Prints the warnings of a document, as `fermata validate` does.
    fn warn(&self, source: &[u8], name: &str, warnings: Vec<Diagnostic>) {
        if warnings.is_empty() {
            return;
        }
        let limits = &self.engine.settings().dialects.document;
        if let Ok(document) = Document::parse(source, name, limits) {
            cli::say(document.report(warnings).render(cli::colors(&io::stderr())).trim_end());
        }
    }

    /// Reads a file, publishes it and prints the result.
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
            Some(id) => format!("{id} keeps its current version"),
            None => "it is not published".to_owned(),
        };
        let source = match std::fs::read(path) {
            Ok(source) => source,
            Err(error) => return cli::say(format_args!("{name} cannot be read: {error}; {kept}")),
        };
        let id = match self.id(&source, path) {
            Ok(id) => id,
            Err(error) => return self.refused(&error, &name, &kept),
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
                self.warn(&source, &name, published.warnings);
                cli::say(format_args!("{word} {name} as version {}", published.version));
            }
            Err(error) => self.refused(&error, &name, &kept),
        }
    }

    fn refused(&self, error: &EngineError, name: &str, kept: &str) {
        match error {
            EngineError::Refused(Refusal::InvalidDocument(problems)) => {
                cli::say(problems.render(cli::colors(&io::stderr())).trim_end());
                cli::say(format_args!("{name} has errors; {kept}"));
            }
            error => cli::say(format_args!("{name}: {error}; {kept}")),
        }
    }

    /// The path of a file below the folder.
    fn name(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

fn stamps(root: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut stamps = BTreeMap::new();
    for path in validate::in_folder(root)? {
        // A file that was deleted meanwhile is left out.
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
