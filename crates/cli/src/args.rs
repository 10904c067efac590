//! The command line.
// The doc comments are what `--help` prints: no Markdown.
#![allow(clippy::doc_markdown, rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use pagein_loader::Failure;
use pagein_model::Policy;
use pagein_profile::linker::Linker;
use pagein_profile::order;
use pagein_simnet::queue::{LossModel, QueueLimit};
use pagein_simnet::units::{Bandwidth, ByteSize, parse_duration};
use pagein_source::Location;

/// Run a large program straight from a web server or a directory: it starts at once, and its pages come in when they are
/// touched.
///
/// Exit status: that of the program; 125 if pagein fails, 126 if the program cannot run here, 127 if there is no such
/// program or image, 128+N if signal N ended the program.
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "Examples:
  pagein demo                                         all of it, on this machine
  pagein record -o git.trace -- git status            note which pages `git status` touches
  pagein split /usr/bin/git --trace git.trace -o images/git
  pagein serve images                                 http://127.0.0.1:8080/git
  pagein run http://127.0.0.1:8080/git -- status      run it from there";

#[derive(Subcommand)]
pub(crate) enum Command {
    Record(Record),
    Split(Split),
    Serve(Serve),
    Run(Run),
    Inspect(Inspect),
    Verify(Verify),
    Plan(Plan),
    Profile(Profile),
    Relayout(Relayout),
    Layout(Layout),
    Cache(Cache),
    Demo(Demo),
    #[command(
        after_help = "Example:\n  pagein net --bandwidth 10mbit --rtt 20ms -- pagein run http://host.pagein:8080/git -- status"
    )]
    Net(pagein_simnet::net::NetArgs),
    Experiment(Experiment),
}

/// Run a local program and note which of its pages are touched first, in which order
///
/// The program runs as always, with your terminal, input and environment. Forked children and threads are included.
/// Needs root or CAP_SYS_PTRACE (userfaultfd).
#[derive(clap::Args)]
#[command(after_help = "Example:\n  pagein record -o git.trace -- git status")]
pub(crate) struct Record {
    /// Where to write the trace [default: NAME.trace, NAME being the program's]
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: Option<PathBuf>,
    /// Let the dynamic linker apply all relocations; the trace then has the pages that it touches. For images that are cut or
    /// run with the same option
    #[arg(long)]
    pub(crate) no_page_in_linking: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "APP")]
    pub(crate) command: Vec<OsString>,
}

/// Cut a program into an image that any static web server can serve
///
/// Pages that the traces touched become the hot object, in the order of their first touch; all others are put into
/// groups that are fetched on demand.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pagein split /usr/bin/git --trace status.trace --trace log.trace -o images/git
  pagein split /usr/bin/git --profile git.profile --trace status.trace -o images/git")]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Split {
    /// The program: a path, or a name to be found in PATH
    #[arg(value_name = "APP")]
    pub(crate) app: OsString,
    /// What `pagein record` wrote; may be given several times
    #[arg(short, long = "trace", value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// What `pagein profile` wrote: put the functions that it names next to each other first, as `pagein relayout` does, and cut
    /// the result. Traces may be of APP as it is, or of what `relayout` makes of it with the same profiles. Without a trace the
    /// profile's code is hot. May be given several times
    #[arg(short, long = "profile", value_name = "PROFILE")]
    pub(crate) profiles: Vec<PathBuf>,
    /// Directory of the image; must not exist, or be an image (then it is replaced)
    #[arg(short, long, value_name = "IMAGE")]
    pub(crate) output: PathBuf,
    /// Make every group of pages a file of its own, for servers that ignore Range requests
    #[arg(long)]
    pub(crate) page_files: bool,
    /// A page is hot if at least this share of the traces touched it
    #[arg(long, value_name = "0..1", default_value_t = 0.1, value_parser = probability)]
    pub(crate) min_probability: f64,
    /// Pages of 4 KiB in a group of pages that are not hot; where no trace touched anything near, twice as many
    #[arg(long, value_name = "PAGES", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) group_pages: u32,
    /// zstd level, 1 (quick) to 22 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = 19, value_parser = clap::value_parser!(i32).range(1..=22))]
    pub(crate) level: i32,
    /// Leave out the groups in file order that only `--policy paged` uses
    #[arg(long)]
    pub(crate) no_paged: bool,
    /// Do not prepare the pages for `run` to apply relocations as they come in
    #[arg(long)]
    pub(crate) no_page_in_linking: bool,
    /// Print what was made as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn probability(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("not between 0 and 1".to_owned()) }
}

/// Serve every image below a directory over HTTP/1.1 and HTTP/2
#[derive(clap::Args)]
#[command(after_help = "Example:\n  pagein serve --listen 0.0.0.0:8080 images")]
pub(crate) struct Serve {
    /// Address and port; port 0 takes a free one
    #[arg(short, long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// One line on stderr for each request
    #[arg(long)]
    pub(crate) log: bool,
    /// The directory; nothing outside it can be read
    pub(crate) dir: PathBuf,
}

/// Run a program from an image
///
/// The program takes the place of this command: its pid, terminal, standard streams, environment, working directory and
/// exit status are the command's.
#[derive(clap::Args)]
#[command(after_help = "Policies:
  auto             from the cache if all is there; else streamed, and the rest in the background; original for
                   programs that read their own file
  original         the whole file, then start
  paged            a group of neighbouring pages when one of them is touched
  reordered-paged  a group of pages that are touched one after the other
  reordered        the likely-used part, then start; the rest on demand
  streamed         start at once; the likely-used part flows in meanwhile

Examples:
  pagein run http://127.0.0.1:8080/git -- status
  pagein run --stats stats.json --policy reordered https://example.org/images/node -- -e 'console.log(1)'
  pagein run ./images/git#3f1c...  -- log       the manifest must have this digest (see `pagein inspect`)")]
pub(crate) struct Run {
    /// How pages come in
    #[arg(long, value_name = "POLICY", default_value = "auto")]
    pub(crate) policy: PolicyArg,
    /// Write what was transferred and how long it took to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Name that the program is called by (argv[0]) [default: the program's file name]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) argv0: Option<OsString>,
    /// Let the dynamic linker apply all relocations, which touches every page that has one
    #[arg(long)]
    pub(crate) no_page_in_linking: bool,
    /// Directory for executable files and what was received [default: $PAGEIN_CACHE, $XDG_CACHE_HOME/pagein or
    /// ~/.cache/pagein]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Keep at most so much in the cache; what was not used for longest is deleted first
    #[arg(long, value_name = "SIZE", env = "PAGEIN_CACHE_SIZE", default_value = "5GiB")]
    pub(crate) cache_size: ByteSize,
    /// Do not ask the server whether the image is still the same if that was asked less than so many seconds ago. A
    /// source with #DIGEST is never asked
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = seconds_or_none)]
    pub(crate) max_age: f64,
    /// Give up on a transfer after this long without a byte, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// Attempts for each request, the first included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) attempts: u32,
    /// Do not say it when all of the program is fetched because it cannot be paged here
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// http://HOST/IMAGE, https://HOST/IMAGE or a directory; with #DIGEST the manifest must have that digest
    #[arg(value_parser = Location::parse)]
    pub(crate) source: Location,
    /// The program's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if value > 0.0 && value < 1e6 { Ok(value) } else { Err("not a positive number of seconds".to_owned()) }
}

fn seconds_or_none(text: &str) -> Result<f64, String> {
    if text == "0" { Ok(0.0) } else { seconds(text) }
}

/// `auto` or a policy.
#[derive(Clone)]
pub(crate) struct PolicyArg(pub(crate) Option<Policy>);

impl std::str::FromStr for PolicyArg {
    type Err = pagein_model::UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self(None)) } else { text.parse().map(|policy| Self(Some(policy))) }
    }
}

/// Show what an image holds
#[derive(clap::Args)]
#[command(after_help = "Example:\n  pagein inspect http://127.0.0.1:8080/git")]
pub(crate) struct Inspect {
    /// http://HOST/IMAGE, https://HOST/IMAGE or a directory
    #[arg(value_name = "IMAGE", value_parser = Location::parse)]
    pub(crate) source: Location,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Fetch all of an image and check every byte
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 if all is well, 125 if not.\n\nExample:\n  pagein verify images/git")]
pub(crate) struct Verify {
    /// http://HOST/IMAGE, https://HOST/IMAGE or a directory
    #[arg(value_name = "IMAGE", value_parser = Location::parse)]
    pub(crate) source: Location,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Predict how long a program would take to start over a link, for each policy, and show what `auto` would do
///
/// The loader's requests, decisions and installations are replayed in virtual time, TCP's connection set-up and slow start
/// included, with the touches and times of a recorded run. Nothing but the manifest and the tables of the image is fetched.
/// Without a trace the program is taken to touch the hot pages in their order and to need no time of its own.
#[derive(clap::Args)]
#[command(
    after_help = "The floor is what no loader could do better: the round trips of a connection and a request, then the compressed pages
that the job touches, in that order, while the program computes.

Examples:
  pagein plan images/git --bandwidth 10mbit --rtt 20ms
  pagein plan http://127.0.0.1:8080/git --bandwidth 1mbit --rtt 100ms --trace log.trace --trace status.trace
  pagein plan images/git --bandwidth 10mbit --rtt 20ms --json | jq '.jobs[0].policies[] | [.policy, .total_ms]'"
)]
pub(crate) struct Plan {
    /// http://HOST/IMAGE, https://HOST/IMAGE or a directory
    #[arg(value_name = "IMAGE", value_parser = Location::parse)]
    pub(crate) source: Location,
    /// Rate of the link in both directions, IP headers included, such as 10mbit
    #[arg(long, value_name = "RATE")]
    pub(crate) bandwidth: Bandwidth,
    /// Round trip time without queues, half of it in each direction, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) rtt: Duration,
    /// Rate to the server, if it differs
    #[arg(long, value_name = "RATE")]
    pub(crate) uplink: Option<Bandwidth>,
    /// Packets lost in each direction: 1%, or bursts as burst:ENTER,LEAVE[,LOSS WHILE BAD[,LOSS WHILE GOOD]]
    #[arg(long, value_name = "LOSS")]
    pub(crate) loss: Option<LossModel>,
    /// What may wait in front of each direction: 64KiB, 100p (packets) or unlimited [default: what passes in a round trip or
    /// 20 ms, at least 48 kB]
    #[arg(long, value_name = "LENGTH")]
    pub(crate) queue: Option<QueueLimit>,
    /// A run of the program, as `pagein record` wrote it: the job to predict. It need not be one that the image was cut with; may
    /// be given several times
    #[arg(short, long = "trace", value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a local program and note which of its functions run first, in which order
///
/// The program runs as always, with your terminal, input and environment. Forked children and threads are included. Every
/// function and every basic block of the program costs one stop (some tens of microseconds) when it first runs, and none
/// later. Needs permission to trace (ptrace), not root.
///
/// The profile is written when the program and all its descendants have ended. It is text: it can be kept under version
/// control, merged, and applied to a rebuilt program. Shared libraries are not profiled.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "Examples:
  pagein profile -o status.profile -- git status
  pagein profile -o log.profile -- git log -1
  pagein profile merge status.profile log.profile -o git.profile"
)]
pub(crate) struct Profile {
    #[command(subcommand)]
    pub(crate) action: Option<ProfileAction>,
    /// Where to write the profile [default: NAME.profile, NAME being the program's]
    #[arg(short, long, value_name = "PROFILE")]
    pub(crate) output: Option<PathBuf>,
    /// Watch entries of functions only, not their blocks: fewer stops; large functions cannot be cut to what ran
    #[arg(long)]
    pub(crate) functions_only: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "APP")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Subcommand)]
pub(crate) enum ProfileAction {
    Merge(Merge),
    Import(Import),
}

/// Make a profile of what perf or a list of symbols says
///
/// Functions are found by name, so APP needs its symbols. perf samples: functions come in the order of their first sample, and only
/// those that ran long enough are there; a profile by `pagein profile` is better where one can be taken.
#[derive(clap::Args)]
#[command(
    group(clap::ArgGroup::new("from").required(true)),
    after_help = "Examples:
  perf record -e cycles:u -j any,u ./app; perf script --no-demangle -F ip,sym,dso,brstacksym | pagein profile import ./app --perf - -o app.profile
  perf record -e cycles:u ./app; perf script --no-demangle -F ip,sym,dso | pagein profile import ./app --perf - -o app.profile
  pagein profile import ./app --symbols app.order -o app.profile       one symbol a line, as for --symbol-ordering-file"
)]
pub(crate) struct Import {
    /// The program: a path, or a name to be found in PATH
    #[arg(value_name = "APP")]
    pub(crate) app: OsString,
    /// What `perf script` printed; - for standard input
    #[arg(long, value_name = "FILE", group = "from")]
    pub(crate) perf: Option<PathBuf>,
    /// Symbols in order, one a line, as they stand in the file (mangled); - for standard input
    #[arg(long, value_name = "FILE", group = "from")]
    pub(crate) symbols: Option<PathBuf>,
    /// Where to write the profile
    #[arg(short, long, value_name = "PROFILE")]
    pub(crate) output: PathBuf,
}

/// Put the profiles of several runs into one
///
/// The order is that of the first profile; what only a later one has is put behind the function that it follows there.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  pagein profile merge status.profile log.profile -o git.profile")]
pub(crate) struct Merge {
    /// What `pagein profile` wrote
    #[arg(required = true, value_name = "PROFILE")]
    pub(crate) profiles: Vec<PathBuf>,
    /// Where to write the merged profile; may be one of those read
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
}

/// Put the functions that a profile names next to each other, in the program as it was shipped
///
/// They are copied into a new segment, and what refers to them goes there; the originals stay. The result is an ordinary
/// ELF file that runs without pagein too. A program that cannot be treated ends with 126 and a line that says why; nothing
/// is written.
#[derive(clap::Args)]
#[command(after_help = "Orders:
  first-touch       as they were entered first; with several runs, what more of them share comes first
  pettis-hansen     by call weight, pairs that call each other closest
  c3                call chains, callers before callees (as hfsort)
  compilation-unit  what was linked together stays together
  method            what belongs to one type stays together

Examples:
  pagein relayout /usr/bin/git --profile git.profile -o git.hot
  pagein relayout /usr/bin/git --profile git.profile -o git.hot --verify-run 'git log -1; git nosuch'
  pagein record -o git.trace -- ./git.hot status      then split the result, not the original
  pagein split ./git.hot --trace git.trace -o images/git

If you can relink, compile with -ffunction-sections and give the linker an order instead (mold takes none):
  pagein relayout ./app --profile app.profile --linker lld  -o app.order   -Wl,--symbol-ordering-file=app.order
  pagein relayout ./app --profile app.profile --linker gold -o app.order   -Wl,--section-ordering-file=app.order
  pagein relayout ./app --profile app.profile --linker bfd  -o app.ld      -Wl,-T,app.ld")]
pub(crate) struct Relayout {
    /// The program: a path, or a name to be found in PATH
    #[arg(value_name = "APP")]
    pub(crate) app: OsString,
    /// What `pagein profile` wrote
    #[arg(short, long, value_name = "PROFILE")]
    pub(crate) profile: PathBuf,
    /// Where to write the program; it gets the permissions of APP
    #[arg(short, long, value_name = "APP2")]
    pub(crate) output: PathBuf,
    /// The order of the functions
    #[arg(long, value_name = "ORDER", default_value = "first-touch", hide_possible_values = true,
          value_parser = order_names())]
    pub(crate) order: String,
    /// Share of the functions of jobs that are not profiled, which the profile does not name, in percent; 0 if only profiled jobs are
    /// run. If such a job would touch more pages than before, APP is left as it is (exit status 126) [default: as the profile's
    /// runs tell; 25 if it has one]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) unseen: Option<u32>,
    /// Run this shell command with APP as it is and with the new file in its place; keep the new file only if both print and end
    /// alike. May be given several times. The command runs twice: it should print the same each time
    #[arg(long, value_name = "CMD", conflicts_with = "linker")]
    pub(crate) verify_run: Vec<String>,
    /// Write an ordering file for this linker instead of a program
    #[arg(long, value_name = "LINKER", value_parser = linkers())]
    pub(crate) linker: Option<Linker>,
}

fn order_names() -> PossibleValuesParser {
    PossibleValuesParser::new(order::all().map(order::Order::name))
}

fn linkers() -> impl TypedValueParser<Value = Linker> {
    PossibleValuesParser::new(Linker::ALL.map(|(name, _)| name)).map(|given| {
        let known = Linker::ALL.into_iter().find(|(name, _)| *name == given);
        known.expect("one of the possible values").1
    })
}

/// Show what reordering a program's functions gains: pages of code that the profile touches, before and after
///
/// Pages are counted for what the profile saw: functions, or the blocks of them that ran.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  pagein layout /usr/bin/git --profile git.profile --svg git.svg")]
pub(crate) struct Layout {
    /// The program: a path, or a name to be found in PATH
    #[arg(value_name = "APP")]
    pub(crate) app: OsString,
    /// What `pagein profile` wrote
    #[arg(short, long, value_name = "PROFILE")]
    pub(crate) profile: PathBuf,
    /// Draw the pages before and after, in order of first touch
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// As for `pagein relayout`: with 0, what the profiled jobs gain is shown even if others would lose
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) unseen: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a grid of programs, links and policies, and write a report
///
/// Every run is `pagein run` behind `pagein net`, with an empty cache; cells may be simulated instead. Each run that has ended is in
/// results.csv at once: after Ctrl-C, kill -9 or a power cut the same command goes on where it was. docs/experiment.md lists
/// the keys of a scenario.
#[derive(clap::Args)]
#[command(after_help = "What is in DIR afterwards:
  report.html      figures and tables; needs no other file and no network
  results.csv      one row for each run, with its command line
  summary.csv      medians and quartiles of each cell, prediction and floor
  *.svg            the figures

Exit status: 0, 1 if runs failed (see results.csv), 125 if pagein failed, 130 if interrupted.

Examples:
  pagein experiment benches/scenarios/smoke.toml -o smoke
  pagein experiment benches/scenarios/lee1999.toml -o lee1999 --parallel 16
  pagein experiment benches/scenarios/modern.toml -o modern --mode simulated     in seconds, no root for the runs")]
pub(crate) struct Experiment {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// Directory for results: empty, new, or one in which this experiment was begun
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Directory of fetched programs (see benches/scenarios/fetch)
    #[arg(long, value_name = "DIR", default_value = "target/programs")]
    pub(crate) programs: PathBuf,
    /// All cells in this mode, whatever the scenario says
    #[arg(long, value_name = "MODE", value_parser = modes())]
    pub(crate) mode: Option<pagein_experiment::scenario::Mode>,
    /// So many runs at a time, whatever the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) parallel: Option<u32>,
    /// Make runs that failed again
    #[arg(long)]
    pub(crate) retry_failed: bool,
}

fn modes() -> impl TypedValueParser<Value = pagein_experiment::scenario::Mode> {
    use pagein_experiment::scenario::Mode;
    PossibleValuesParser::new([Mode::Real, Mode::Simulated].map(Mode::name))
        .map(|name| if name == Mode::Real.name() { Mode::Real } else { Mode::Simulated })
}

/// Show what is kept of programs that ran, or delete it
///
/// The cache keeps itself below `run --cache-size`. Programs that run are never deleted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  pagein cache                what there is
  pagein cache --trim 1GiB    delete what was not used for longest until 1 GiB is left
  pagein cache --trim 0       delete everything that is not running")]
pub(crate) struct Cache {
    /// The cache [default: $PAGEIN_CACHE, $XDG_CACHE_HOME/pagein or ~/.cache/pagein]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Delete what was not used for longest until this is left
    #[arg(long, value_name = "SIZE")]
    pub(crate) trim: Option<ByteSize>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Record, cut, serve and run a program of this machine under every policy, and print a table
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pagein demo\n  pagein demo -- git --version")]
pub(crate) struct Demo {
    /// Runs of each policy; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments [default: the largest of node, python3, gdb, git and bash]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

/// Bad arguments end with 125, as in docker(1), not with clap's 2: 2 may be the program's own status.
pub(crate) fn parse_or_exit() -> Args {
    Args::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        std::process::exit(if error.use_stderr() { i32::from(Failure::PAGEIN) } else { 0 })
    })
}
