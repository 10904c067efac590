//! What `pagein net` is told: its options, and the validated configuration that they become.

use std::{ffi::OsString, fs, path::PathBuf, sync::Arc, time::Duration};

use super::NetError;
use crate::{
    link::{Direction, Link, LinkRate},
    queue::{Distribution, Jitter, LossModel, QueueLimit},
    trace_file::Trace,
    units::{Bandwidth, format_duration, parse_duration},
};

/// The options of `pagein net`.
///
/// The command sees the outer machine as host.pagein (10.77.0.1) and can reach every TCP server that listens there on a
/// loopback address or on all addresses; nothing else.
#[derive(Debug, Clone, clap::Args)]
pub struct NetArgs {
    /// Rate in both directions, IP headers included, such as 10mbit [default: unlimited]
    #[arg(long, value_name = "RATE", conflicts_with = "trace")]
    pub bandwidth: Option<Bandwidth>,
    /// Rate from the command to the servers, if it differs
    #[arg(long, value_name = "RATE", conflicts_with = "uplink_trace")]
    pub uplink: Option<Bandwidth>,
    /// Round trip time without queues, half of it in each direction, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0")]
    pub rtt: Duration,
    /// Variation of the delay in each direction: 2ms, 2ms:normal, 2ms:exponential, with :reorder to let packets overtake
    #[arg(long, value_name = "TIME[:SHAPE]")]
    pub jitter: Option<Jitter>,
    /// Packets lost in each direction: 1%, or bursts as burst:ENTER,LEAVE[,LOSS WHILE BAD[,LOSS WHILE GOOD]]
    #[arg(long, value_name = "LOSS")]
    pub loss: Option<LossModel>,
    /// What may wait in front of each direction: 64KiB, 100p (packets) or unlimited [default: what passes in a round trip or
    /// 20 ms, at least 48 kB]
    #[arg(long, value_name = "LENGTH")]
    pub queue: Option<QueueLimit>,
    /// Rate from the servers to the command as recorded, in mahimahi's format
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Rate from the command to the servers as recorded [default: as --trace]
    #[arg(long, value_name = "FILE")]
    pub uplink_trace: Option<PathBuf>,
    /// Of losses and jitter; the same packets at the same times meet the same fate
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// The congestion control of TCP on both sides
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congestion: String,
    /// A shell command that runs on the far side, at server.pagein, until the command ends; the command starts when it listens
    #[arg(long, value_name = "SHELL COMMAND")]
    pub server: Option<OsString>,
    /// Write queue length, throughput and drops every 100 ms, as CSV
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// What to run behind the link, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A command, the link that it runs behind, and what is around them.
#[derive(Debug, Clone)]
pub struct NetConfig {
    /// The link; `up` goes from the command to the servers.
    pub link: Link,
    /// The congestion control of TCP on both sides, one of the kernel's.
    pub congestion: String,
    /// A shell command for the far side.
    pub server: Option<OsString>,
    /// Where the log goes.
    pub log: Option<PathBuf>,
    /// Program and arguments; at least the program.
    pub command: Vec<OsString>,
}

impl NetArgs {
    /// Checks the options and reads the traces.
    pub fn into_config(self) -> Result<NetConfig, NetError> {
        let down = match (&self.trace, self.bandwidth) {
            (Some(path), _) => read_trace(path)?,
            (None, Some(bandwidth)) => LinkRate::Constant(bandwidth),
            (None, None) => LinkRate::Unlimited,
        };
        let up = match (&self.uplink_trace, self.uplink) {
            (Some(path), _) => read_trace(path)?,
            (None, Some(bandwidth)) => LinkRate::Constant(bandwidth),
            (None, None) => down.clone(),
        };
        let jitter = self.jitter.unwrap_or_default();
        let one_way = self.rtt / 2;
        if jitter.distribution == Distribution::Uniform && jitter.amount > one_way {
            return Err(NetError::Config(format!(
                "a jitter of {} does not fit into a delay of {} in each direction (half of --rtt)",
                format_duration(jitter.amount),
                format_duration(one_way)
            )));
        }
        let loss = self.loss.unwrap_or(LossModel::NONE);
        if loss.mean() >= 1.0 {
            return Err(NetError::Config(
                "with this --loss no packet would ever arrive; it must be below 100%".into(),
            ));
        }
        if self.queue == Some(QueueLimit::Packets(0)) || matches!(self.queue, Some(QueueLimit::Bytes(..1500)))
        {
            return Err(NetError::Config("--queue must hold at least one packet of 1500 bytes".into()));
        }
        let direction = |rate: LinkRate, delay| Direction {
            queue: self.queue.unwrap_or_else(|| rate.default_queue(self.rtt)),
            rate,
            loss,
            delay,
            jitter,
        };
        let link = Link {
            up: direction(up, one_way),
            down: direction(down, self.rtt.saturating_sub(one_way)),
            seed: self.seed,
        };
        let config = NetConfig {
            link,
            congestion: self.congestion,
            server: self.server,
            log: self.log,
            command: self.command,
        };
        if config.command.is_empty() {
            return Err(NetError::Config("there is no command to run".into()));
        }
        Ok(config)
    }
}

fn read_trace(path: &PathBuf) -> Result<LinkRate, NetError> {
    let text = fs::read(path).map_err(|cause| NetError::ReadTrace { path: path.clone(), cause })?;
    let trace = Trace::parse(&text).map_err(|cause| NetError::Trace { path: path.clone(), cause })?;
    Ok(LinkRate::Trace(Arc::new(trace)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        net: NetArgs,
    }

    fn parse(line: &str) -> Result<NetConfig, String> {
        let words = ["net"].into_iter().chain(line.split_whitespace());
        let args = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        args.net.into_config().map_err(|error| error.to_string())
    }

    #[test]
    fn options_become_a_link() {
        let config =
            parse("--bandwidth 10mbit --uplink 1mbit --rtt 20ms --loss 1% -- curl -s --loss x").unwrap();
        assert_eq!(config.link.down.rate, LinkRate::Constant("10mbit".parse().unwrap()));
        assert_eq!(config.link.up.rate, LinkRate::Constant("1mbit".parse().unwrap()));
        assert_eq!(config.link.round_trip(), Duration::from_millis(20));
        assert_eq!(config.link.down.queue, QueueLimit::Bytes(48_000));
        assert_eq!(config.command, ["curl", "-s", "--loss", "x"]);
    }

    #[test]
    fn mistakes_say_what_is_allowed() {
        for (line, expected) in [
            ("--bandwidth 10 -- true", "such as 10mbit"),
            ("--bandwidth 10mbit --rtt 20 -- true", "such as 20ms"),
            ("--rtt 2ms --jitter 5ms -- true", "does not fit into a delay of 1ms"),
            ("--loss 100% -- true", "must be below 100%"),
            ("--queue 100 -- true", "at least one packet"),
            ("--bandwidth 1mbit --trace x -- true", "cannot be used with"),
            ("--trace /nonexistent -- true", "cannot read the trace /nonexistent"),
            ("--bandwidth 1mbit", "required"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
