//! What a row says about the machine.

use std::path::Path;

use pagein_image::Digest;

/// The machine and the pagein that measure.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// Its name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor, and how many there are.
    pub processor: String,
    /// Version of pagein and the beginning of its executable's digest.
    pub pagein: String,
}

impl Host {
    /// This machine, with the given `pagein` executable.
    pub(crate) fn this(pagein: &Path) -> std::io::Result<Self> {
        let names = nix::sys::utsname::uname()?;
        let digest = Digest::of(&std::fs::read(pagein)?).to_string();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            name: names.nodename().to_string_lossy().into_owned(),
            kernel: names.release().to_string_lossy().into_owned(),
            processor: format!("{count} x {}", model.map_or("unknown", |(_, name)| name.trim())),
            pagein: format!("{} {}", env!("CARGO_PKG_VERSION"), &digest[..12]),
        })
    }
}

/// Load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}
