#!/usr/bin/env bash
# Checks that the native core of the Python package compiles for interpreters without a GIL. It needs
# none of them: PyO3 gets the configuration of such an interpreter by a file. If one is installed,
# `OTHER_PYTHONS=python3.14t ci/wheels.sh` builds the wheel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/build}
mkdir -p "$target"
cat >"$target/free-threaded.txt" <<'CONFIG'
implementation=CPython
version=3.14
shared=true
abi3=false
pointer_width=64
build_flags=Py_GIL_DISABLED
suppress_build_script_link_lines=true
CONFIG
# A folder of its own: for another interpreter PyO3 is compiled anew each time.
PYO3_CONFIG_FILE=$target/free-threaded.txt CARGO_TARGET_DIR=$target/free-threaded \
    cargo check --release ${CARGO_FLAGS:-} -p forebay-sdk --no-default-features
