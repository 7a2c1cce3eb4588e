#!/usr/bin/env bash
# Prints the path of a MinIO server, the S3 that tests and `make demo-s3` run against: the one in
# FOREBAY_MINIO, one on PATH, the one built before, or else a fresh build (minutes). Exit codes as
# in go_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/go_built.sh"
version=v0.0.0-20260212201848-7aac2a2c5b7c

build() { installed "github.com/minio/minio@$version" "$@"; }

if [ -n "${FOREBAY_MINIO:-}" ] || ! command -v minio; then
    provide minio FOREBAY_MINIO "$cache/bin/minio"
fi
