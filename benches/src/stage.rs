//! What must be there before a run: traces, images and a server, all made by the `pagein` command itself.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use pagein_image::PageNo;
use pagein_model::Trace;
use serde::Serialize;

use crate::jobs::Job;

/// The `pagein` command of the same build: it lies beside this program.
pub fn pagein_command() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("pagein");
    if !path.is_file() {
        bail!("{} is not there: build it first (cargo build --release -p pagein)", path.display());
    }
    Ok(path)
}

/// How two recordings of one job differ: what no prediction can know.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// Pages that the first recording touched.
    pub pages: usize,
    /// Pages that only one of the two touched.
    pub differ: usize,
    /// Pages that the second touched and the first, from which the image is cut, did not.
    pub unforeseen: usize,
}

/// Records a job twice and cuts it, with the first trace, into `images/NAME`.
pub fn prepare(pagein: &Path, job: &Job, directory: &Path, level: i32) -> anyhow::Result<Spread> {
    let trace = |number: u32| directory.join(format!("{}.{number}.trace", job.name));
    let mut pages = Vec::new();
    for number in [1, 2] {
        let mut command = Command::new(pagein);
        command.arg("record").arg("-o").arg(trace(number)).arg("--").arg(&job.path).args(&job.args);
        run(command)?;
        let text = std::fs::read_to_string(trace(number)).context("no trace was written")?;
        pages.push(text.parse::<Trace>()?.pages().collect::<HashSet<PageNo>>());
    }
    let mut command = Command::new(pagein);
    command.arg("split").arg(&job.path).arg("--trace").arg(trace(1));
    command.arg("-o").arg(directory.join("images").join(&job.name)).arg(format!("--level={level}"));
    run(command)?;
    Ok(Spread {
        pages: pages[0].len(),
        differ: pages[0].symmetric_difference(&pages[1]).count(),
        unforeseen: pages[1].difference(&pages[0]).count(),
    })
}

/// Standard streams as in the runs that are measured: programs touch other pages for a terminal than for a pipe.
fn run(mut command: Command) -> anyhow::Result<()> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    if !child.wait_with_output()?.status.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}

/// A running `pagein serve`; ends with this value.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    /// Serves a directory on a free port of the loopback interface.
    pub fn start(pagein: &Path, directory: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(pagein);
        command.args(["serve", "--listen", "127.0.0.1:0"]).arg(directory);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("it was piped")?).lines();
        let url = loop {
            let line = lines.next().context("the server ended")??;
            if let Some(at) = line.find("http://") {
                let url = line[at..].split_whitespace().next().unwrap_or_default();
                break url.trim_end_matches(['/', ',']).to_owned();
            }
        };
        Ok(Self { child, url })
    }

    /// The address of an image.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
