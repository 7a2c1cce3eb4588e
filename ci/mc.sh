#!/usr/bin/env bash
# Prints the path of `mc`, MinIO's client: the one in FOREBAY_MC, the one built before, or else a
# fresh build (minutes). One on PATH may be Midnight Commander. Exit codes as in go_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/go_built.sh"
version=v0.0.0-20250313080218-cf909e1063a9

build() { installed "github.com/minio/mc@$version" "$@"; }

provide mc FOREBAY_MC "$cache/bin/mc"
