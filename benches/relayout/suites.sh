#!/usr/bin/env bash
# Test suites of real programs, run with the original and with relaid executables in its place.
#
#   benches/relayout/suites.sh DIR [-v VARIANT]... [SUITE]...
#
#   DIR      scratch: sources, builds and results stay there and are used again
#   VARIANT  profiled: relaid with the profile of a short job
#            every:    every function that can be is cloned, the last one first, whatever it gains
#            blocks:   every third block: functions are cut to pieces, control goes back and forth  [default: all three]
#   SUITE    redis:    Debian's redis-server (stripped, C), the Tcl suite of its source
#            sqlite:   testfixture of SQLite, built as PIE at -O2 and stripped, veryquick.test
#            python:   Debian's python3.11 (not position-independent, C), its own test package but what takes long
#            jsoncpp:  its tests, built at -O2 and stripped (C++, throws and catches)  [default: all four]
#
# One line for each suite and variant: tests, passed by the original, passed by the relaid one, names of tests that differ.
# Exit status 1 if any differs. DIR/SUITE.VARIANT.log is what the suite printed, .results what was read from it. Some tests of
# redis depend on time: run a suite that differs again before you believe it (delete SUITE.original.results for a new original). One
# of redis differs with blocks, and why is known: docs/relayout.md.
#
# Versions are pinned; one that Debian has replaced meanwhile can be set: REDIS, SQLITE, PYTHON, JSONCPP. Runs on Debian 12, as root.
# PAGEIN and REORDER name the command and the example `relayout` of crates/relayout
#   (cargo build --release -p pagein; cargo build --release -p pagein-relayout --example relayout); CLIENTS: parallel tests [2].
# Functions are called by names made of the suite's.
# shellcheck disable=SC2317
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,/^# Functions are/{/^# Functions are/d;s/^# \{0,1\}//;p}' "$0"; exit "$1"; }

case ${1:-} in '') usage 2 >&2 ;; -h | --help) usage 0 ;; esac
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
variants=()
suites=()
while [ $# -gt 0 ]; do
    case $1 in
        -v) variants+=("${2:?-v needs a variant}"); shift ;;
        redis | sqlite | python | jsoncpp) suites+=("$1") ;;
        *) usage 2 >&2 ;;
    esac
    shift
done
[ ${#variants[@]} -gt 0 ] || variants=(profiled every blocks)
[ ${#suites[@]} -gt 0 ] || suites=(jsoncpp redis sqlite python)
pagein=${PAGEIN:-$here/../../target/release/pagein}
reorder=${REORDER:-$here/../../target/release/examples/relayout}
clients=${CLIENTS:-2}
redis=${REDIS:-5:7.0.15-1~deb12u10}
sqlite=${SQLITE:-3.40.1-2+deb12u2}
python=${PYTHON:-3.11.2-6+deb12u9}
jsoncpp=${JSONCPP:-1.9.5-4}

# The original source of a Debian package, unpacked. apt checks it against the signed index.
source_of() { # PACKAGE VERSION TO
    local parts=$PWD/apt/parts lists=$PWD/apt/lists
    mkdir -p "$parts" "$lists"
    sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$parts/source.sources"
    local options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$parts" -o "Dir::State::lists=$lists"
        -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd apt && apt-get "${options[@]}" source --download-only "$1=$2")
    mkdir "$3"
    tar xf "apt/$1_$(upstream "$2").orig.tar."[gx]z -C "$3" --strip-components=1
}

upstream() { local version=${1#*:}; echo "${version%-*}"; }

# Packages, unpacked into a directory, not installed.
unpack() { # TO PACKAGE=VERSION...
    local to=$1
    shift
    mkdir -p packages "$to"
    (cd packages && apt-get -qq -o APT::Sandbox::User=root download "$@")
    for package in "$@"; do dpkg -x "packages/${package%%=*}"_*.deb "$to"; done
}

needs() { # PACKAGE...
    dpkg -s "$@" >/dev/null 2>&1 || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

# For each suite: _make sets it up in the current directory, _program is the file that is exchanged, _profile profiles a short job,
# _run runs the suite, and _results makes "pass NAME" and "fail NAME" lines of what it printed.

redis_make() {
    needs tcl
    source_of redis "$redis" tree
    unpack binaries "redis-tools=$redis"
    for name in redis-cli redis-benchmark redis-check-aof redis-check-rdb; do cp "binaries/usr/bin/$name" tree/src/; done
    # One file under four names; tests execute two of them.
    cp binaries/usr/bin/redis-check-rdb tree/src/redis-server
}
redis_program() { echo tree/src/redis-server; }
redis_profile() { # PROFILE
    local socket=$dir/redis/socket
    (until [ -S "$socket" ]; do sleep 0.1; done
        for line in "set a b" "lpush l 1 2" "get a" "info" "shutdown nosave"; do
            # shellcheck disable=SC2086
            tree/src/redis-cli -s "$socket" $line
        done) >/dev/null &
    "$pagein" profile -o "$1" -- tree/src/redis-server --port 0 --unixsocket "$socket" --save ""
}
# Left out: TLS needs certificates.
redis_run() { cd tree && ./runtest --clients "$clients" --skipunit unit/tls; }
redis_results() { # names: without times, and without numbers, which are random in some
    sed -n -e 's/\x1b\[[0-9;]*m//g' -e 's/ ([0-9]* ms)$//' -e 's/[0-9]\+/N/g' \
        -e 's/ in tests\/[^ ]*\.tcl$//' -e 's/^\[ok\]: /pass /p' -e 's/^\[\(err\|exception\)\]: /fail /p'
}

sqlite_make() {
    needs gcc make libc6-dev tcl-dev zlib1g-dev
    source_of sqlite3 "$sqlite" tree
    (cd tree && ./configure --with-tcl=/usr/lib/tcl8.6 CFLAGS="-O2 -fPIE" LDFLAGS="-pie" && make testfixture && strip testfixture) >make.log 2>&1
}
sqlite_program() { echo tree/testfixture; }
sqlite_profile() { (cd tree && "$pagein" profile -o "$1" -- ./testfixture test/select1.test); }
sqlite_run() { # it refuses to run as root
    chown -R nobody tree
    cd tree && setpriv --reuid nobody --clear-groups ./testfixture test/veryquick.test
}
sqlite_results() { sed -n -e 's/^\([^ ]*\)\.\.\. Ok$/pass \1/p' -e 's/^! \([^ ]*\) expected.*/fail \1/p'; }

python_make() {
    unpack tree {python3.11{,-minimal},libpython3.11-{minimal,stdlib,testsuite}}="$python"
}
python_program() { echo tree/usr/bin/python3.11; }
python_profile() { "$pagein" profile -o "$1" -- tree/usr/bin/python3.11 -m json.tool --help; }
# Left out: what takes minutes (processes, installations), and what tests gdb or a build tree.
python_run() {
    tree/usr/bin/python3.11 -m test -j "$clients" --timeout 600 --junit-xml "$PWD/results.xml" -x test_asyncio test_concurrent_futures \
        test_multiprocessing_fork test_multiprocessing_forkserver test_multiprocessing_spawn test_gdb test_venv test_ensurepip \
        test_tools test_lib2to3 test_peg_generator test_regrtest test_distutils test_freeze test_c_analyzer test_zipfile64 \
        test_zoneinfo test_subprocess test_socket test_imaplib test_ftplib test_compileall test_tokenize test_idle test_tkinter
}
python_results() {
    python3 -c 'import sys, xml.etree.ElementTree as tree
for case in tree.parse("results.xml").iter("testcase"):
    kinds = {child.tag for child in case}
    if "skipped" not in kinds:
        print("fail" if kinds & {"failure", "error"} else "pass", case.get("name"))'
}

jsoncpp_make() {
    needs g++ make cmake
    source_of libjsoncpp "$jsoncpp" tree
    (mkdir tree/build && cd tree/build && cmake .. -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O2 -DBUILD_SHARED_LIBS=OFF \
        -DBUILD_OBJECT_LIBS=OFF -DJSONCPP_WITH_POST_BUILD_UNITTEST=OFF && make jsoncpp_test && strip bin/jsoncpp_test) >make.log 2>&1
}
jsoncpp_program() { echo tree/build/bin/jsoncpp_test; }
jsoncpp_profile() { "$pagein" profile -o "$1" -- tree/build/bin/jsoncpp_test --test ValueTest/objects; }
jsoncpp_run() { tree/build/bin/jsoncpp_test; }
jsoncpp_results() { sed -n -e 's/^Testing \(.*\): OK$/pass \1/p' -e 's/^Testing \(.*\): FAILED$/fail \1/p'; }

# "--unseen 0": the suites ask whether a relaid program is right, not whether it gains. A profile of one short job foretells a loss for
# some (python), and `relayout` would write nothing.
relay() { # SUITE VARIANT OUT
    case $2 in
        profiled)
            "$1_profile" "$PWD/profile" >/dev/null 2>&1 || true
            "$pagein" relayout ./original --profile profile --unseen 0 -o "$3" ;;
        every) FORCE=1 "$reorder" clone ./original all "$3" 2>&1 | cut -c 1-200 ;;
        blocks) FORCE=1 CLIP=0 "$reorder" clone ./original blocks3 "$3" 2>&1 | cut -c 1-200 ;;
        *) usage 2 >&2 ;;
    esac >"$dir/$1.$2.relayout"
}

# Runs a suite with one file in the program's place.
run() { # SUITE VARIANT FILE
    local log=$dir/$1.$2.log
    install -m 755 "$3" "$("$1_program")"
    ("$1_run") >"$log" 2>&1 </dev/null || true # failed tests are counted, not the exit status
    "$1_results" <"$log" | LC_ALL=C sort -u >"$dir/$1.$2.results"
    [ -s "$dir/$1.$2.results" ] || { echo "$1 $2: no test ran; see $log" >&2; exit 1; }
}

passed() { grep -c '^pass ' "$1" || true; }

status=0
for suite in "${suites[@]}"; do
    cd "$dir"
    if [ ! -f "$suite/original" ]; then
        rm -rf "$suite"
        mkdir "$suite"
        (cd "$suite" && "${suite}_make" && cp "$("${suite}_program")" original)
    fi
    cd "$dir/$suite"
    before=$dir/$suite.original.results
    for variant in "${variants[@]}"; do
        cp original "$("${suite}_program")"
        relay "$suite" "$variant" relaid
        [ -s "$before" ] || run "$suite" original original
        run "$suite" "$variant" relaid
        after=$dir/$suite.$variant.results
        # A test that one of them did not come to differs too.
        LC_ALL=C comm -3 "$before" "$after" | tr -d '\t' | cut -d' ' -f2- | sort -u >"$dir/$suite.$variant.differ"
        differ=$(wc -l <"$dir/$suite.$variant.differ")
        echo "$suite, $variant: $(wc -l <"$before") tests, passed $(passed "$before") by the original and $(passed "$after") relaid, $differ differ"
        [ "$differ" -eq 0 ] || status=1
    done
done
exit $status
