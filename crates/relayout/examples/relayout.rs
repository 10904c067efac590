//! Experiments: `relayout blocks|functions OUT.txt APP ARGS...` traces; `relayout clone APP ORDER.txt OUT` reorders;
//! `relayout pages APP ARGS...` counts the pages of code that a run touches.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use pagein_relayout::{Options, Points, Touched, points, relayout};
use pagein_uffd::breakpoint::{Breakpoints, Trace, trace};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [mode @ ("blocks" | "functions"), out, app, ref rest @ ..] => {
            let (trace, _) = run(app, rest, mode == "blocks", false)?;
            let lines: Vec<String> = trace.hits.iter().map(|h| format!("{:x}\n", h.address)).collect();
            fs::write(out, lines.concat())?;
            eprintln!("{} first touches, {} images", trace.hits.len(), trace.images);
        }
        ["clone", app, order, out] => {
            // `all`: every function, last one first.
            let order: Result<Vec<u64>, _> = match order {
                "all" => {
                    let functions = pagein_relayout::Functions::read(&fs::read(app)?)?;
                    Ok(functions.as_slice().iter().rev().map(|f| f.start).collect())
                }
                // `blocks3`: every third block.
                "blocks3" => {
                    Ok(points(&fs::read(app)?, true)?.addresses.iter().copied().step_by(3).collect())
                }
                file => fs::read_to_string(file)?.lines().map(|l| u64::from_str_radix(l, 16)).collect(),
            };
            let on = |name| std::env::var_os(name).is_none();
            let options = Options {
                pointers: on("NO_POINTERS"),
                jump_tables: on("NO_TABLES"),
                clip_over: Some(
                    std::env::var("CLIP")
                        .ok()
                        .and_then(|n| n.parse().ok())
                        .unwrap_or(pagein_relayout::CLIP_OVER),
                ),
                even_without_gain: !on("FORCE"),
                ..Options::default()
            };
            let (bytes, report) = relayout(&fs::read(app)?, &order?, &options)?;
            let _ = fs::remove_file(out);
            fs::write(out, bytes)?;
            fs::set_permissions(out, fs::metadata(app)?.permissions())?;
            eprintln!("{report:?}");
        }
        ["pages", app, ref rest @ ..] => {
            let (trace, points) = run(app, rest, true, true)?;
            let len = |addr| points.addresses.binary_search(&addr).map_or(0, |n| points.lengths[n]);
            let touched = Touched::of(trace.hits.iter().map(|h| (h.address, len(h.address))));
            println!("{} pages, {} bytes", touched.pages, touched.bytes);
        }
        _ => return Err("see the source for how to call this".into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn run(app: &str, args: &[&str], blocks: bool, quiet: bool) -> Result<(Trace, Points), Box<dyn Error>> {
    let points = points(&fs::read(app)?, blocks)?;
    let mut command = Command::new(app);
    command.args(args);
    if quiet {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let watch = Breakpoints { program: Path::new(app), entry: points.entry, addresses: &points.addresses };
    Ok((trace(command, watch)?, points))
}
