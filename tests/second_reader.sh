#!/bin/sh
# Runs tests/second_reader.py with its packages in an environment of its own, made at the first call.
#
#   second_reader.sh IMAGE-DIRECTORY PROGRAM [MANIFEST-DIGEST]
#   second_reader.sh --install        only make the environment
#
# Exit status 77: the environment cannot be made here (no python3 with venv, or no package index).
set -eu
here=$(dirname "$(realpath "$0")")
venv=${PAGEIN_TEST_VENV:-$here/../target/second-reader-venv}
stamp=$venv/requirements.txt

make_environment() {
    # The copied list comes last: an interrupted installation must not look like a whole one. Tests that start at once wait.
    mkdir -p "$(dirname "$venv")"
    exec 9>"$venv.lock"
    flock 9
    cmp -s "$stamp" "$here/requirements.txt" && return
    rm -rf "$venv" &&
        python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" &&
        cp "$here/requirements.txt" "$stamp"
}

if ! cmp -s "$stamp" "$here/requirements.txt"; then
    (make_environment) >&2 || {
        echo "second_reader.sh: cannot make $venv; install python3-venv (apt-get install python3-venv), and see that pip finds packages" >&2
        exit 77
    }
fi
[ "${1-}" = --install ] && exit 0
exec "$venv/bin/python3" "$here/second_reader.py" "$@"
