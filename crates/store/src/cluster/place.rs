//! What a PostgreSQL server needs on this machine: programs, an operating system user, a port.

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
    port.map_err(|error| failed("find a free port on the loopback address", &error))
}

pub(super) fn chown(folder: &Path, (uid, gid): (u32, u32)) -> Result<()> {
    let owned = std::os::unix::fs::chown(folder, Some(uid), Some(gid));
    owned.map_err(|error| failed("change the owner of a directory", &error))
}

/// The user and group for the server if this process runs as root: PostgreSQL refuses to run as root.
pub(super) fn other_user(own: &Path) -> Result<Option<(u32, u32)>> {
    let owner = fs::metadata(own).map_err(|error| failed("read the owner of the data directory", &error))?;
    if owner.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| failed("read /etc/passwd", &error))?;
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let user = ["postgres", "nobody"].into_iter().find_map(ids);
    let missing = "PostgreSQL does not run as root, and this machine has neither a user `postgres` nor `nobody`";
    Ok(Some(user.ok_or_else(|| ClusterError(missing.to_owned()))?))
}

/// The path of a PostgreSQL program. All programs are taken from the directory of `postgres`, so that they have the same
/// version.
pub(super) fn binary(name: &str) -> Result<PathBuf> {
    let missing = || {
        ClusterError(format!(
            "the PostgreSQL program `{name}` was not found in PATH or /usr/lib/postgresql/*/bin; install it (Debian: \
             apt-get install postgresql)"
        ))
    };
    let server = places().into_iter().map(|place| place.join("postgres"));
    // `postgres` may be a link into the directory with the other programs.
    let server = server
        .filter_map(|file| fs::canonicalize(file).ok())
        .find(|file| file.is_file());
    let program = server.and_then(|server| Some(server.parent()?.join(name)));
    program.filter(|file| file.is_file()).ok_or_else(missing)
}

/// The directories of PATH, then the server directories of Debian, newest version first.
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
