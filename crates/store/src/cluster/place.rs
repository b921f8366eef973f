//! What a server needs of the machine it runs on: its programs, a user, a port.

use super::{ClusterError, Result, failed};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let port = listener.and_then(|listener| listener.local_addr()).map(|at| at.port());
    port.map_err(|error| failed("a port of the loopback address", &error))
}

pub(super) fn chown(folder: &Path, (uid, gid): (u32, u32)) -> Result<()> {
    let owned = std::os::unix::fs::chown(folder, Some(uid), Some(gid));
    owned.map_err(|error| failed("a folder for another user", &error))
}

/// The user and group to run as, if we are root: PostgreSQL refuses to run as root.
pub(super) fn other_user(ours: &Path) -> Result<Option<(u32, u32)>> {
    let owner = fs::metadata(ours).map_err(|error| failed("our own folder", &error))?;
    if owner.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| failed("the list of users", &error))?;
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let user = ["postgres", "nobody"].into_iter().find_map(ids);
    let missing = "PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody` here";
    Ok(Some(user.ok_or_else(|| ClusterError(missing.to_owned()))?))
}

/// A program of PostgreSQL. All are taken from where `postgres` is, so that they are of one version.
pub(super) fn binary(name: &str) -> Result<PathBuf> {
    let missing = || {
        ClusterError(format!(
            "there is no `{name}` of PostgreSQL in PATH or /usr/lib/postgresql/*/bin; install it (Debian: apt-get install \
             postgresql)"
        ))
    };
    let server = places().into_iter().map(|place| place.join("postgres"));
    // It may be a link to where the others are, too.
    let server = server
        .filter_map(|file| fs::canonicalize(file).ok())
        .find(|file| file.is_file());
    let program = server.and_then(|server| Some(server.parent()?.join(name)));
    program.filter(|file| file.is_file()).ok_or_else(missing)
}

/// The folders of PATH, and those where Debian has the server, the newest first.
fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    versions.sort_by_key(|version| {
        let number = version.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        std::cmp::Reverse(number)
    });
    places.extend(versions.into_iter().map(|version| version.join("bin")));
    places
}
