//! Any text is a scenario with a digest, or an error that names a line of it.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pagein_experiment::scenario::Scenario;

fuzz_target!(|text: &str| {
    match Scenario::parse(text, Path::new("f")) {
        Ok(scenario) => assert_eq!(scenario.digest().len(), 64),
        Err(error) => assert!(error.line <= text.matches('\n').count() + 1),
    }
});
