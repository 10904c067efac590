//! Any text is a trace that is written and read back alike, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_model::{Trace, hot_order};

fuzz_target!(|text: &str| {
    // The header is long; without it the fuzzer would not get past it for hours.
    let headed = format!(
        "pagein-trace 1\nprogram \"a\"\nsize 65536\ndigest {:064}\ncommand []\nreads-self no\n{text}",
        0
    );
    for text in [text, &headed] {
        let Ok(trace) = text.parse::<Trace>() else { continue };
        assert_eq!(trace.to_string().parse::<Trace>().as_ref(), Ok(&trace));
        assert!(hot_order(std::slice::from_ref(&trace), 16).len() <= trace.touches.len());
    }
});
