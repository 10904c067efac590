//! `pagein cache`: what is kept of programs that ran.

use std::process::ExitCode;

use pagein_loader::{Cache, Count, Failure, default_cache};

use super::{bytes, print, print_json};
use crate::args;

pub(crate) fn cache(args: &args::Cache) -> Result<ExitCode, Failure> {
    let cache = Cache::open(&args.dir.clone().unwrap_or_else(default_cache))?;
    let Some(limit) = args.trim else {
        let contents = cache.contents();
        if args.json {
            print_json(&contents)?;
        } else {
            print(&format!("{}", contents.path.display()))?;
            for (what, count) in [
                ("complete programs", contents.programs),
                ("started lazily", contents.headers),
                ("frames and groups", contents.blobs),
                ("notes", contents.records),
            ] {
                print(&format!("{what:<18} {:>6}  {:>10}", count.entries, bytes(count.bytes)))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let trimmed = cache.trim(limit.0, true).ok_or_else(|| Failure {
        code: Failure::PAGEIN,
        text: format!("{}: cannot lock the cache: it is read-only or full", cache.root().display()),
    })?;
    if args.json {
        print_json(&trimmed)?;
    } else {
        print(&format!("deleted: {}; left: {}", words(trimmed.removed), bytes(trimmed.left)))?;
        if trimmed.in_use.entries > 0 {
            print(&format!("running, so kept: {}", words(trimmed.in_use)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn words(count: Count) -> String {
    format!("{} ({})", count.entries, bytes(count.bytes))
}
