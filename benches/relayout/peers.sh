#!/bin/sh
# One program (SQLite with a small main), one profile, four ways to apply it: pagein relayout on the linked file, llvm-bolt's
# -reorder-functions on the same file (linked with --emit-relocs), lld's --symbol-ordering-file, and relayout on the stripped file.
# The job that is measured was not profiled. Prints pages and compressed bytes (kB) of code and of everything at startup.
#
#     benches/relayout/peers.sh DIR    DIR has sqlite3.c and sqlite3.h (crate libsqlite3-sys, directory sqlite3)
#
# Needs cc, ld.lld, llvm-bolt (or LLVM_BOLT=...), root, and PAGEIN and BENCH: the commands pagein and relayout (of the benches).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sqlite=$(cd "$1" && pwd)
pagein=${PAGEIN:-$here/../../target/release/pagein}
bench=${BENCH:-$here/../../target/release/relayout}
bolt=${LLVM_BOLT:-llvm-bolt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

flags="-O2 -ffunction-sections -fno-omit-frame-pointer -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -I$sqlite"
# shellcheck disable=SC2086
cc $flags -c "$sqlite/sqlite3.c" "$here/driver.c"
cc -o app sqlite3.o driver.o -lm -Wl,--emit-relocs
cc -o stripped sqlite3.o driver.o -lm -s
cc -o lld sqlite3.o driver.o -lm -fuse-ld=lld

"$pagein" profile -o 1.profile -- ./app "select 1" > /dev/null
"$pagein" profile -o 2.profile -- ./app "create table t(a, b); insert into t values (1, 'x'), (2, 'y')" \
    "select a, b from t where a > 1 order by b" > /dev/null
"$pagein" profile -o 3.profile -- ./app "select json('[1, 2]'), upper('a') || 'b', round(2.5)" > /dev/null
"$pagein" profile merge 1.profile 2.profile 3.profile -o app.profile > /dev/null
measure() {
    "$pagein" record -o "$1.trace" -- "./$1" "create table u(k integer primary key, v text)" \
        "insert into u(v) values ('b'), ('a'), ('b')" "select v, count(*) from u group by v order by 2 desc" > "$1.out"
    cmp -s app.out "$1.out" || { echo "$1 prints something else" >&2; exit 1; }
    printf '%-40s ' "$2"
    "$bench" --of "$work/$1=$work/$1.trace"
}

measure app "as linked (GNU ld)"
"$pagein" relayout ./app --profile app.profile -o app.relaid > /dev/null
measure app.relaid "pagein relayout"
"$pagein" relayout ./stripped --profile app.profile -o stripped.relaid > /dev/null
measure stripped "stripped"
measure stripped.relaid "pagein relayout of the stripped file"
measure lld "as linked by lld"
"$pagein" relayout ./app --profile app.profile --linker lld -o app.order > /dev/null
cc -o lld.ordered sqlite3.o driver.o -lm -fuse-ld=lld -Wl,--symbol-ordering-file=app.order
measure lld.ordered "lld --symbol-ordering-file"
"$bolt" app -o bolt --reorder-functions=user --function-order=app.order > bolt.log 2>&1 || { tail -3 bolt.log; exit 1; }
measure bolt "llvm-bolt --reorder-functions=user"
echo "llvm-bolt on the stripped file:"
"$bolt" stripped -o bolt.stripped --reorder-functions=user --function-order=app.order 2>&1 | grep -E 'ERROR|WARNING' | head -2
