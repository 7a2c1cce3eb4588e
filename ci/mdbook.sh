#!/usr/bin/env bash
# Prints the path of mdbook, which makes the book. Exit codes as in cargo_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cargo_built.sh"

# Without its server and its watcher of files.
provide mdbook 0.4.52 FOREBAY_MDBOOK --no-default-features --features search
