//! Whatever becomes of the rig, its processes end and its files go: a shell waits for that on a pipe from us.
//!
//! What must stay true: a process is in the shell's list for as long as it may run, and is ended by its id alone.

use anyhow::Context;
use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

/// `+ PID` and `- PID` say who runs; `keep` says that the files are of use. A stopped process has to go on to end.
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

/// A folder for everything, and the list of what runs. Ends it all when it is dropped.
pub struct Reaper {
    shell: Child,
    words: Words,
    folder: PathBuf,
}

/// The way to the shell.
#[derive(Clone)]
pub struct Words(Arc<Mutex<Option<ChildStdin>>>);

impl Reaper {
    /// For a new folder at this place.
    pub fn start(folder: &Path) -> anyhow::Result<Reaper> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(folder);
        // Ctrl-C is not for it.
        let mut shell = shell.process_group(0).stdin(Stdio::piped()).spawn().context("sh")?;
        let words = Words(Arc::new(Mutex::new(shell.stdin.take())));
        Ok(Reaper {
            shell,
            words,
            folder: folder.to_owned(),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where to tell of processes.
    pub fn words(&self) -> Words {
        self.words.clone()
    }

    /// The folder stays.
    pub fn keep(&self) {
        self.words.say("keep 0");
    }
}

impl Words {
    fn say(&self, line: &str) {
        let mut input = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(input) = input.as_mut() {
            let _ = writeln!(input, "{line}"); // a shell that is gone has ended them
        }
    }

    /// The leader of a process group of ours runs.
    pub fn runs(&self, pid: u32) {
        self.say(&format!("+ {pid}"));
    }

    /// It ended, and was waited for.
    pub fn ended(&self, pid: u32) {
        self.say(&format!("- {pid}"));
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.words.0.lock().unwrap_or_else(PoisonError::into_inner).take());
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
    fn what_runs_ends_with_it_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("rig");
        let reaper = Reaper::start(&folder).unwrap();
        let (mut listed, mut again, mut free) = (sleeper(), sleeper(), sleeper());
        for pid in [free.id(), listed.id(), again.id()] {
            reaper.words().runs(pid);
        }
        reaper.words().ended(free.id());
        drop(reaper);
        assert!(!folder.exists());
        assert!(!listed.wait().unwrap().success() && !again.wait().unwrap().success());
        assert!(free.try_wait().unwrap().is_none(), "it was taken off the list");
        free.kill().unwrap();
        free.wait().unwrap();
    }

    #[test]
    fn files_that_are_of_use_stay() {
        let root = tempfile::tempdir().unwrap();
        let reaper = Reaper::start(&root.path().join("rig")).unwrap();
        reaper.keep();
        drop(reaper);
        assert!(root.path().join("rig").exists());
    }
}
