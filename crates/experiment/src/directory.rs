//! The output directory: what lies where, whose it is, and that only one experiment works in it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::scenario::Scenario;

/// Version of what lies in a directory.
const VERSION: u32 = 1;

const OWNER: &str = "experiment.json";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    version: u32,
    scenario: String,
    digest: String,
}

/// A directory that is ours until this value is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    _lock: Flock<File>,
}

impl Directory {
    /// Opens or makes the directory of a scenario.
    pub(crate) fn open(root: &Path, scenario: &Scenario, text: &str) -> Result<Self, ExperimentError> {
        fs::create_dir_all(root).map_err(|error| ExperimentError::file(root, error))?;
        let root = root.canonicalize().map_err(|error| ExperimentError::file(root, error))?;
        let owner = Owner { version: VERSION, scenario: scenario.name.clone(), digest: scenario.digest() };
        let path = root.join(OWNER);
        let known = match fs::read(&path) {
            Ok(bytes) => {
                Some(serde_json::from_slice::<Owner>(&bytes).map_err(|error| ExperimentError::Directory {
                    path: root.clone(),
                    why: format!("{OWNER} is damaged ({error})"),
                })?)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(ExperimentError::file(&path, error)),
        };
        let why = match &known {
            None if !is_empty(&root)? => Some("it is not empty and holds no experiment".to_owned()),
            Some(known) if known.version != VERSION => Some("it is of another version of pagein".to_owned()),
            Some(known) if *known != owner => Some(format!(
                "it holds results of another scenario, or of another version of it ({:?}; a copy is {}/scenario.toml)",
                known.scenario,
                root.display()
            )),
            _ => None,
        };
        if let Some(why) = why {
            return Err(ExperimentError::Directory { path: root, why });
        }
        let lock_path = root.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|error| ExperimentError::file(&lock_path, error))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => ExperimentError::Busy(root.clone()),
            other => ExperimentError::file(&lock_path, other.into()),
        })?;
        let directory = Self { root, _lock: lock };
        if known.is_none() {
            directory.write("scenario.toml", text.as_bytes())?;
            let json = serde_json::to_vec_pretty(&owner).expect("plain data");
            directory.write(OWNER, &json)?;
        }
        // What an interrupted run left.
        let scratch = directory.scratch();
        let _ = fs::remove_dir_all(&scratch);
        for path in [scratch, directory.images(), directory.path("programs"), directory.path("work")] {
            fs::create_dir_all(&path).map_err(|error| ExperimentError::file(&path, error))?;
        }
        Ok(directory)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The images, as they are served.
    pub(crate) fn images(&self) -> PathBuf {
        self.path("images")
    }

    /// Traces and reference output of a program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.path("programs").join(name)
    }

    /// The directory in which a program's jobs run.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
    }

    /// For caches and statistics of runs that are going on.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.path("scratch")
    }

    /// Puts a whole file in place.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ExperimentError> {
        let path = self.path(name);
        replace(&path, bytes).map_err(|error| ExperimentError::file(&path, error))
    }
}

/// Writes a file that is there as a whole or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let directory = path.parent().expect("it lies in a directory");
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Whether nothing is there but what an interrupted first start leaves.
fn is_empty(root: &Path) -> Result<bool, ExperimentError> {
    let entries = fs::read_dir(root).map_err(|error| ExperimentError::file(root, error))?;
    let ours = |name: &std::ffi::OsStr| {
        name == "lock" || name == "scenario.toml" || name.to_string_lossy().starts_with(".tmp")
    };
    Ok(entries.flatten().all(|entry| ours(&entry.file_name())))
}
