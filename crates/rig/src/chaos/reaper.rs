//! Ends all processes of the rig and removes its files, however the rig itself ends: a shell waits for the end of a pipe from it.
//!
//! What must stay true: a process is in the shell's list as long as it may run, and is killed by its id only.

use anyhow::Context;
use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

/// `+ PID` and `- PID` add and remove a process; `keep` keeps the files. A stopped process needs SIGCONT to end.
const SCRIPT: &str = r#"
folder=$1; running=" "; left=remove
while read -r word pid; do
  case "$word" in
    +) running="$running$pid " ;;
    -) running="${running%% $pid *} ${running#* $pid }" ;;
    keep) left=keep ;;
  esac
done
for pid in $running; do kill -s KILL -- "-$pid"; kill -s CONT -- "-$pid"; done 2>/dev/null
[ "$left" = keep ] || rm -rf "$folder"
"#;

/// The folder of the rig and the list of its processes. Dropping it kills the processes.
pub struct Reaper {
    shell: Child,
    processes: ProcessList,
    folder: PathBuf,
}

/// The pipe to the shell.
#[derive(Clone)]
pub struct ProcessList(Arc<Mutex<Option<ChildStdin>>>);

impl Reaper {
    /// Creates the folder and starts the shell.
    pub fn start(folder: &Path) -> anyhow::Result<Reaper> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(folder);
        // Ctrl-C must not reach it.
        let mut shell = shell.process_group(0).stdin(Stdio::piped()).spawn().context("sh")?;
        let processes = ProcessList(Arc::new(Mutex::new(shell.stdin.take())));
        Ok(Reaper {
            shell,
            processes,
            folder: folder.to_owned(),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The sender for changes of the list.
    pub fn processes(&self) -> ProcessList {
        self.processes.clone()
    }

    /// Keeps the folder.
    pub fn keep(&self) {
        self.processes.say("keep 0");
    }
}

impl ProcessList {
    fn say(&self, line: &str) {
        let mut input = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(input) = input.as_mut() {
            let _ = writeln!(input, "{line}"); // if the shell is gone, it has killed them
        }
    }

    /// Adds the leader of a process group.
    pub fn runs(&self, pid: u32) {
        self.say(&format!("+ {pid}"));
    }

    /// Removes a process that ended and was waited for.
    pub fn ended(&self, pid: u32) {
        self.say(&format!("- {pid}"));
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.processes.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
    }

    #[test]
    fn dropping_it_kills_listed_processes_only() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("rig");
        let reaper = Reaper::start(&folder).unwrap();
        let (mut listed, mut again, mut free) = (sleeper(), sleeper(), sleeper());
        for pid in [free.id(), listed.id(), again.id()] {
            reaper.processes().runs(pid);
        }
        reaper.processes().ended(free.id());
        drop(reaper);
        assert!(!folder.exists());
        assert!(!listed.wait().unwrap().success() && !again.wait().unwrap().success());
        assert!(free.try_wait().unwrap().is_none(), "it was taken off the list");
        free.kill().unwrap();
        free.wait().unwrap();
    }

    #[test]
    fn kept_files_stay() {
        let root = tempfile::tempdir().unwrap();
        let reaper = Reaper::start(&root.path().join("rig")).unwrap();
        reaper.keep();
        drop(reaper);
        assert!(root.path().join("rig").exists());
    }
}
