//! Checks `needs`: every task exists, and no task needs itself, directly or through others.

use super::view::{Task, View};
use crate::check::Check;
use crate::diagnostics::{Severity, quote};
use crate::graph::{CycleWords, Upstream, report_cycles};
use fermata_expr::nearest;
use std::collections::HashSet;

const WORDS: CycleWords = CycleWords {
    nodes: "tasks",
    help: "remove one of these `needs`: workflows cannot loop; to repeat a request that fails, use `retries`",
};

/// For each task of the view, the tasks that need it.
pub(super) struct Graph {
    /// A misspelled name counts as the task that was probably meant, so that one typo is not reported
    /// again wherever the task is read.
    dependents: Vec<Vec<usize>>,
    acyclic: bool,
}

pub(super) fn check(check: &mut Check, view: &View) -> Graph {
    let mut dependents = vec![Vec::new(); view.tasks.len()];
    let mut guessed = Vec::new();
    for (at, task) in view.tasks.iter().enumerate() {
        let mut seen = HashSet::new();
        for (place, need) in task.needs.iter().enumerate() {
            let is_new = seen.insert(need.name);
            match view.by_name.get(need.name) {
                _ if !is_new => doubled(check, task, place),
                Some(needed) if *needed == at => itself(check, task, place),
                Some(needed) => dependents[*needed].push(at),
                None => guessed.extend(unknown(check, view, task, place).map(|needed| (needed, at))),
            }
        }
    }
    let names: Vec<&str> = view.names().collect();
    let closing = |last: usize, first: usize| closing_need(&view.tasks[first], names[last]);
    let acyclic = report_cycles(check, &WORDS, &names, &dependents, closing);
    if acyclic {
        for (needed, at) in guessed {
            dependents[needed].push(at);
        }
    }
    Graph { dependents, acyclic }
}

fn doubled(check: &mut Check, task: &Task, place: usize) {
    if check.room(Severity::Warning) {
        let need = &task.needs[place];
        let message = format!("task {} needs {} twice", quote(task.name), quote(need.name));
        let problem = check.warning("DOUBLED_NEED", &need.pointer, message);
        check.add(problem.help("remove one of them"));
    }
}

fn itself(check: &mut Check, task: &Task, place: usize) {
    if check.room(Severity::Error) {
        let message = format!("task {} needs itself", quote(task.name));
        let problem = check.error("CYCLE", &task.needs[place].pointer, message);
        check.add(problem.help("remove it from its own `needs`"));
    }
}

/// Reports a name that is not a task, and returns the task that was probably meant.
fn unknown(check: &mut Check, view: &View, task: &Task, place: usize) -> Option<usize> {
    if !check.room(Severity::Error) {
        return None;
    }
    let need = &task.needs[place];
    let (name, wanted) = (quote(task.name), quote(need.name));
    let message = format!("task {name} needs {wanted}, which does not exist in this workflow");
    let problem = check.error("UNKNOWN_NODE", &need.pointer, message);
    let near = nearest(need.name, view.names().filter(|other| *other != task.name));
    check.add(problem.did_you_mean(near));
    near.and_then(|near| view.by_name.get(near).copied())
}

/// The pointer to where `task` names `needed`.
fn closing_need(task: &Task, needed: &str) -> String {
    let need = task.needs.iter().find(|need| need.name == needed);
    need.map_or_else(|| task.pointer.clone(), |need| need.pointer.clone())
}

impl Graph {
    /// Which tasks precede which; `None` if the graph has a cycle.
    pub(super) fn upstream(&self) -> Option<Upstream> {
        self.acyclic.then(|| Upstream::new(&self.dependents))
    }
}
