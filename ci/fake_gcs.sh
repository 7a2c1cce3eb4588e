#!/usr/bin/env bash
# Prints the path of a fake-gcs-server, the Google Cloud Storage that tests and `examples/gcs` run
# against: the one in FOREBAY_FAKE_GCS, one on PATH, the one built before, or else a fresh build
# (minutes). Exit codes as in go_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/go_built.sh"
version=v1.56.1

build() { installed "github.com/fsouza/fake-gcs-server@$version" "$@"; }

if [ -n "${FOREBAY_FAKE_GCS:-}" ] || ! command -v fake-gcs-server; then
    provide fake-gcs-server FOREBAY_FAKE_GCS "$cache/bin/fake-gcs-server"
fi
