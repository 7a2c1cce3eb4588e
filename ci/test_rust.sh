#!/usr/bin/env bash
# Runs all tests in Rust, then prints which of them were skipped, and why, and the reasons of failures.
# CARGO_FLAGS go to cargo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p build
export FOREBAY_SKIPPED=$PWD/build/skipped-rust.txt
log=$PWD/build/test-rust.log
: >"$FOREBAY_SKIPPED"
rc=0
# shellcheck disable=SC2086
(set -x; cargo test --release ${CARGO_FLAGS:-} --workspace --exclude forebay-sdk) 2>&1 |
    tee "$log" || rc=$?
ci/skipped.sh "$FOREBAY_SKIPPED"
if [ "$rc" -ne 0 ]; then
    # The output of a failed test has the logs of its nodes, which are long. These lines come last.
    awk '/^---- .* stdout ----$/ { name = $2 }
        / panicked at / { left = 6; print "\nfailed: " name }
        left > 0 { print substr($0, 1, 1000); left-- }' "$log"
fi
exit $rc
