#!/usr/bin/env bash
# Prints the path of cargo-deny, which `make deny` runs. Exit codes as in cargo_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cargo_built.sh"

# Without optimization: it runs for seconds.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off
provide cargo-deny 0.20.2 FOREBAY_CARGO_DENY
