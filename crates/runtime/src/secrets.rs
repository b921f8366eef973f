//! Secrets: values that templates name with `{{ secrets.NAME }}`, from the environment or a folder of files.
//!
//! Secrets belong to the owner of the workflow. The operator's are for shared workflows: the environment variable
//! `FERMATA_SECRET_NAME`, else the file `NAME` in the folder. A tenant's are the files in a subfolder with the name of the tenant.
//! Files are read for each attempt, so a changed file counts at once.
//!
//! What must stay true:
//!
//! * A tenant's workflow never gets a secret of the operator or of another tenant.
//! * A value exists in memory only, from the moment an action is called until its result was searched for it. It is never
//!   part of a message, a log line or anything that is stored. [`Secret`] does not show it.

mod echo;

pub(crate) use echo::Echoes;

use crate::engine::Shared;
use fermata_core::{Failure, code};
use fermata_dialects::{Compiled as CompiledDocument, Document};
use fermata_expr::template::{Rendered, is_secret_name};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    sync::Arc,
};
use uuid::Uuid;

/// The prefix of environment variables that are secrets.
pub const SECRET_PREFIX: &str = "FERMATA_SECRET_";
/// The longest secret, in bytes.
const LONGEST: usize = 64 * 1024;
/// The secrets of one attempt may together add this many bytes to its parameters.
const MOST_BYTES: usize = 1024 * 1024;
/// The characters of a tenant that the name of its folder has too.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The value of a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Secret {
        Secret(value.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Where secrets come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    variables: BTreeMap<String, Secret>,
    folder: Option<PathBuf>,
}

/// Why a secret cannot be used. The message does not contain its value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unusable {
    message: String,
    retriable: bool,
}

impl Secrets {
    /// The secrets among these environment variables, and in this folder.
    pub fn new(environment: impl IntoIterator<Item = (String, String)>, folder: Option<PathBuf>) -> Secrets {
        let secret = |(name, value): (String, String)| {
            let name = name.strip_prefix(SECRET_PREFIX)?;
            is_secret_name(name).then(|| (name.to_owned(), value.into()))
        };
        Secrets {
            variables: environment.into_iter().filter_map(secret).collect(),
            folder,
        }
    }

    /// The secret that the workflows of this tenant know by this name. Shared workflows have an empty tenant.
    fn find(&self, owner: &str, name: &str) -> Result<Option<Secret>, Unusable> {
        let unusable = |what: &str, retriable| Unusable {
            message: format!("the secret `{name}` {what}"),
            retriable,
        };
        let found = match self.variables.get(name).filter(|_| owner.is_empty()) {
            Some(value) => Some(value.clone()),
            None => match &self.folder {
                Some(folder) => {
                    let text = read(&file_of(folder, owner, name));
                    let text = text.map_err(|error| match error.kind() {
                        ErrorKind::InvalidData => unusable("is not UTF-8 text", false),
                        ErrorKind::FileTooLarge => unusable(&format!("is longer than {LONGEST} bytes"), false),
                        kind => unusable(&format!("cannot be read: {kind}"), true),
                    });
                    text?.map(Secret::from)
                }
                None => None,
            },
        };
        match found {
            Some(value) if value.expose().is_empty() => Err(unusable("is empty", false)),
            found => Ok(found),
        }
    }

    /// The values of these secrets, without those that cannot be used. For comparing: they must not be stored or shown.
    pub(crate) fn values(&self, owner: &str, names: &[String]) -> Vec<Vec<u8>> {
        let value = |name: &String| self.find(owner, name).ok().flatten();
        let found = names.iter().filter_map(value);
        found.map(|secret| secret.expose().as_bytes().to_vec()).collect()
    }

    fn all(&self, owner: &str, names: &[String]) -> Found {
        let find = |name: &String| (name.clone(), self.find(owner, name));
        names.iter().map(find).collect()
    }

    /// Adds a warning for each secret of a document that is not known here.
    pub(crate) fn warn(&self, document: &Document, compiled: &mut CompiledDocument, owner: &str) {
        let mut names: Vec<&str> = Vec::new();
        for secret in &compiled.secrets {
            if names.contains(&secret.name.as_str()) {
                continue;
            }
            names.push(&secret.name);
            if !matches!(self.find(owner, &secret.name), Ok(Some(_))) {
                compiled
                    .warnings
                    .push(secret.unknown(document, &how(owner, &secret.name)));
            }
        }
    }
}

type Found = BTreeMap<String, Result<Option<Secret>, Unusable>>;

/// How to make a secret known.
fn how(owner: &str, name: &str) -> String {
    match owner {
        "" => {
            format!("set the environment variable {SECRET_PREFIX}{name}, or add a file `{name}` to `secrets.folder`")
        }
        tenant => {
            let folder = folder_of(tenant);
            format!("add a file `{name}` to the folder `{folder}` in `secrets.folder`")
        }
    }
}

/// The name of a tenant's folder: other characters than letters, digits, `-`, `_` and `.` are percent-encoded.
fn folder_of(tenant: &str) -> String {
    let encoded = utf8_percent_encode(tenant, ENCODED).to_string();
    // A name that begins with a dot could lead out of the folder.
    match encoded.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => encoded,
    }
}

fn file_of(folder: &Path, owner: &str, name: &str) -> PathBuf {
    match owner {
        "" => folder.join(name),
        tenant => folder.join(folder_of(tenant)).join(name),
    }
}

/// The text of a file without the line break at its end; `None` if there is no such file.
fn read(path: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| match file.metadata()?.is_file() {
        true => file.take(LONGEST as u64 + 3).read_to_string(&mut text),
        false => Err(ErrorKind::NotFound.into()),
    });
    match read {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(error),
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    match text.len() > LONGEST {
        true => Err(ErrorKind::FileTooLarge.into()),
        false => Ok(Some(text)),
    }
}

/// The parameters of a call with their secrets, and what its result is searched for: all secrets of the workflow, since a
/// service can return what another request gave it. `names` are the secrets of the workflow, `allowed` says whether the node may
/// use them.
pub(crate) async fn resolve(
    shared: &Shared,
    workflow: Uuid,
    names: &[String],
    allowed: bool,
    rendered: Rendered,
) -> Result<(Value, Echoes), Failure> {
    if names.is_empty() {
        return Ok((rendered.value, Echoes::default()));
    }
    let owner = match shared.workflows.owner(workflow).await {
        Ok(Some(owner)) => owner,
        Ok(None) => {
            let message = "the workflow does not exist any more, so its secrets are unknown";
            return Err(Failure::permanent(code::TEMPLATE_ERROR, message));
        }
        Err(error) => {
            let message = format!("the owner of the workflow could not be read: {error}");
            return Err(Failure::retriable(code::TEMPLATE_ERROR, message));
        }
    };
    let secrets = &shared.settings.secrets;
    let found = match secrets.folder {
        None => secrets.all(&owner, names),
        Some(_) => {
            let (own, owner, names) = (secrets.clone(), owner.clone(), names.to_vec());
            shared.offload.elsewhere(move || own.all(&owner, &names)).await
        }
    };
    insert(&owner, &found, allowed, rendered)
}

/// Inserts the secrets that were found.
fn insert(owner: &str, found: &Found, allowed: bool, rendered: Rendered) -> Result<(Value, Echoes), Failure> {
    let refuse = |message: String| Failure::permanent(code::TEMPLATE_ERROR, message);
    for name in rendered.secret_names() {
        if !allowed {
            let message = format!("the secret `{name}` cannot be used here: what this node gets is recorded");
            return Err(refuse(message));
        }
        match found.get(name) {
            Some(Ok(Some(_))) => {}
            Some(Err(error)) if error.retriable => {
                return Err(Failure::retriable(code::TEMPLATE_ERROR, error.message.clone()));
            }
            Some(Err(error)) => return Err(refuse(error.message.clone())),
            Some(Ok(None)) | None => {
                let how = how(owner, name);
                return Err(refuse(format!("the secret `{name}` is unknown; {how}")));
            }
        }
    }
    let known: BTreeMap<&str, &str> = found
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.as_ref().ok()?.as_ref()?.expose())))
        .collect();
    let parameters = rendered.resolve(MOST_BYTES, |name| known.get(name).copied());
    let parameters = parameters.map_err(refuse)?;
    Ok((parameters, Echoes::of(known.into_values())))
}

#[cfg(test)]
mod tests;
