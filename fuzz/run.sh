#!/bin/sh
# Runs fuzz targets without cargo-fuzz and on stable Rust: coverage-guided, but without AddressSanitizer (the parsers have
# no unsafe code; panics, overflows and memory are what is looked for).
#
#   fuzz/run.sh SECONDS [TARGET]...     each target for so long; all of them by default
set -eu
cd "$(dirname "$0")"
seconds=${1:?give the seconds for each target}
shift
[ $# -gt 0 ] || set -- $(ls fuzz_targets | sed -n 's/\.rs$//p')
# What cargo-fuzz passes, but for the sanitizer.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --target "$host"
# From nothing, a fuzzer finds hardly more of ELF than its first bytes.
seeds() { # TO
    for flags in "-static-pie -fPIE" "-static -no-pie -fno-pie" "-shared -fPIC" "-pie -fPIE"; do
        name=$1/seed$(printf %s "$flags" | tr -d ' ')
        # shellcheck disable=SC2086
        cc -O2 $flags -nostdlib -Wl,-z,noseparate-code -Wl,--eh-frame-hdr seed.c -o "$name"
        strip -o "$name-stripped" "$name"
    done
}
for target in "$@"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    case $target in relayout | elf_*) seeds "corpus/$target" ;; esac
    echo "== $target, $seconds s"
    "target/$host/release/$target" "corpus/$target" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 2>&1 | tail -n 12 >"artifacts/$target/log" || true
    cat "artifacts/$target/log"
    # A file beside the log is an input that failed.
    [ "$(ls "artifacts/$target")" = log ] || { echo "found: artifacts/$target" >&2; exit 1; }
done
