//! Any bytes: the ELF reader and the rewriter give an error or a file that can be read; a profile that parses is written and read again.
//! It starts from small programs: `fuzz/run.sh` makes them of `fuzz/seed.c`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_profile::Profile;
use pagein_relayout::{Functions, Options, points, relayout};

fuzz_target!(|input: &[u8]| {
    if let Ok(functions) = Functions::read(input) {
        let _ = (functions.code_hashes(input), points(input, true));
        let order: Vec<u64> = functions.as_slice().iter().rev().map(|f| f.start).collect();
        let options = Options { even_without_gain: true, ..Options::default() };
        if let Ok((new, _)) = relayout(input, &order, &options) {
            assert!(Functions::read(&new).is_ok());
        }
    }
    if let Ok(profile) = std::str::from_utf8(input).map_err(drop).and_then(|text| Profile::parse(text).map_err(drop)) {
        assert_eq!(Profile::parse(&profile.to_string()).as_ref(), Ok(&profile));
    }
});
