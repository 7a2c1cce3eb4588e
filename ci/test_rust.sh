#!/usr/bin/env bash
# Runs all tests in Rust, then prints which of them were skipped, and why. CARGO_FLAGS go to cargo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p build
export FOREBAY_SKIPPED=$PWD/build/skipped-rust.txt
: >"$FOREBAY_SKIPPED"
rc=0
# shellcheck disable=SC2086
(set -x; cargo test --release ${CARGO_FLAGS:-} --workspace --exclude forebay-sdk) || rc=$?
ci/skipped.sh "$FOREBAY_SKIPPED"
exit $rc
