//! Any bytes are an error or a packet-delivery trace that is written and read back alike, and whose opportunities go on for
//! ever without running backwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_simnet::{time::Time, trace_file::Trace};

fuzz_target!(|input: (u64, &[u8])| {
    let (now, text) = input;
    let Ok(trace) = Trace::parse(text) else { return };
    assert_eq!(Trace::parse(trace.to_text().as_bytes()).as_ref(), Ok(&trace));
    // A century: what an emulation can live to see.
    let now = Time::from_nanos(now % (100 * 365 * 86_400 * 1_000_000_000));
    let first = trace.first_after(now);
    assert!(trace.at(first) > now);
    assert!(first == 0 || trace.at(first - 1) <= now);
    assert!(trace.at(first + 1) >= trace.at(first));
});
