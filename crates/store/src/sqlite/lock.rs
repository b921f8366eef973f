//! Exclusive use of a database file, and the check that it is still the file that was opened.
//!
//! What must stay true:
//! * A file is used by one process, under any name. A lock file beside the real path excludes processes that use the
//!   same name or a symbolic link; a lock on the file itself excludes those that use a hard link.
//! * While SQLite has the file open, this process closes no descriptor of it: closing would release SQLite's own locks.
//! * A file that was deleted or replaced is detected: data written to it would be lost when the process ends.

use super::open::beside;
use crate::{Result, StoreError};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Database files are readable by their owner only. SQLite copies the mode of the database to the files beside it.
const PRIVATE: u32 = 0o600;

/// An exclusive lock on a database, held until it is dropped. Close connections first.
pub(super) struct Lock {
    /// The database, without symbolic links.
    pub(super) path: PathBuf,
    database: Watched,
    /// The log, from the moment it exists.
    log: Option<Watched>,
    _beside: File,
    /// Also locked, and kept open for that.
    _file: File,
}

/// A path and the identity of the file that it must lead to.
struct Watched {
    path: PathBuf,
    file: (u64, u64),
}

impl Watched {
    fn new(path: PathBuf) -> std::io::Result<Watched> {
        let file = identity(&path)?;
        Ok(Watched { path, file })
    }

    fn check(&self) -> Result<(), String> {
        match identity(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            Ok(_) => Err(format!("{} was replaced by another file", self.path.display())),
            Err(error) => Err(format!("{} is gone ({error})", self.path.display())),
        }
    }
}

/// The device and the inode. The times of the file are not read: after that, Linux gives the file a new time with its next
/// change, and the sync of that change takes a third longer.
#[cfg(target_os = "linux")]
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO)?;
    Ok((makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

/// The device and the inode.
#[cfg(not(target_os = "linux"))]
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|data| (data.dev(), data.ino()))
}

/// Creates an empty file that only its owner may read, unless it exists.
pub(super) fn create(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .open(path)
        .map(drop)
}

impl Lock {
    /// Locks an existing file. `name` is used in messages.
    pub(super) fn take(path: &Path, name: &str) -> Result<Lock> {
        let unopenable = |error: std::io::Error| StoreError::Unopenable {
            path: name.to_owned(),
            what: error.to_string(),
        };
        let path = fs::canonicalize(path).map_err(unopenable)?;
        // First, so that this process does not open and close a file that it uses already.
        let beside = lock_beside(&path, name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(unopenable)?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked {
                    path: name.to_owned(),
                    holder: " under another name of the same file".to_owned(),
                });
            }
            // The file system does not support such locks: rely on the lock file.
            Err(TryLockError::Error(error)) => {
                tracing::warn!(path = name, %error, "the database file itself cannot be locked; do not use hard links to it");
            }
        }
        let database = Watched::new(path.clone()).map_err(unopenable)?;
        Ok(Lock {
            path,
            database,
            log: None,
            _beside: beside,
            _file: file,
        })
    }

    /// Records the identity of the log, once SQLite has created it.
    pub(super) fn watch_log(&mut self) {
        self.log = Watched::new(beside(&self.path, "-wal")).ok();
    }

    /// An error if the files are no longer those that were opened.
    pub(super) fn check(&self) -> Result<(), String> {
        self.database.check()?;
        self.log.as_ref().map_or(Ok(()), Watched::check)
    }
}

/// Takes the lock file; the error names the process that has it.
fn lock_beside(path: &Path, name: &str) -> Result<File> {
    let beside = beside(path, "-lock");
    let unopenable = |error: std::io::Error| StoreError::Unopenable {
        path: name.to_owned(),
        what: format!("{}: {error}", beside.display()),
    };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE);
    let mut file = options.open(&beside).map_err(unopenable)?;
    match try_lock(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let known = file.read_to_string(&mut pid).is_ok() && pid.trim().parse::<u32>().is_ok();
            return Err(StoreError::Locked {
                path: name.to_owned(),
                holder: if known {
                    format!(" (process {})", pid.trim())
                } else {
                    String::new()
                },
            });
        }
        Err(TryLockError::Error(error)) => return Err(unopenable(error)),
    }
    // The pid is information for people only; a full disk must not keep a database from opening.
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

/// Retries for a moment: a child process that is being started may still hold a copy of the descriptor.
fn try_lock(file: &File) -> std::result::Result<(), TryLockError> {
    for _ in 0..20 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            answer => return answer,
        }
    }
    file.try_lock()
}
