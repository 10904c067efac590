//! Programs that are likely to be on a machine, and what to let them do.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// One command line.
#[derive(Debug, Clone)]
pub struct Job {
    /// File name of the program.
    pub name: String,
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

/// From small to large; each starts, does next to nothing and ends, so that start-up is what is measured.
const JOBS: [&[&str]; 5] = [
    &["git", "--version"],
    &["bash", "-c", "true"],
    &["python3", "-c", "1"],
    &["gdb", "--batch"],
    &["node", "-e", "console.log(1)"],
];

impl Job {
    /// The job of a command line, if its program is here and no script.
    pub fn find<S: AsRef<str>>(words: &[S]) -> Option<Self> {
        let (program, args) = words.split_first()?;
        let path = find_elf(program.as_ref())?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some(Self { name, path, args: args.iter().map(|arg| arg.as_ref().to_owned()).collect() })
    }

    /// The command line, for people.
    pub fn shown(&self) -> String {
        let words: Vec<&str> = std::iter::once(&self.name).chain(&self.args).map(String::as_str).collect();
        words.join(" ")
    }
}

/// All that can run here.
pub fn usual() -> Vec<Job> {
    JOBS.iter().filter_map(|words| Job::find(words)).collect()
}

/// The usual job of one program.
pub fn usual_of(name: &str) -> Option<Job> {
    JOBS.iter().find(|words| words[0] == name).and_then(|words| Job::find(words))
}

/// The first program of that name in PATH that is an ELF file: managers of versions put scripts before it.
fn find_elf(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return std::fs::canonicalize(name).ok().filter(|path| is_elf(path));
    }
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path).map(|directory| directory.join(name));
    candidates.filter_map(|path| std::fs::canonicalize(path).ok()).find(|path| is_elf(path))
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok()) && magic == *b"\x7fELF"
}
