#!/usr/bin/env bash
# Prints the path of a MinIO server, the S3 that tests and `make demo-s3` run against: the one
# in FOREBAY_MINIO, one on PATH, the one built before, or else a fresh build (minutes, with Go).
# Exit code 3: there is none and no Go to build it with.
set -euo pipefail
version=v0.0.0-20260212201848-7aac2a2c5b7c
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
built=$cache/bin/minio

say() { printf 'minio: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_MINIO:-}" ]; then
    if [ ! -x "$FOREBAY_MINIO" ]; then
        say "FOREBAY_MINIO=$FOREBAY_MINIO is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_MINIO"
elif command -v minio; then
    :
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! command -v go >/dev/null; then
    say "minio not found and Go is missing"
    exit 3
else
    say "building MinIO $version once, into $built"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/bin/.minio-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    CGO_ENABLED=0 GOBIN=$work go install -trimpath -ldflags='-s -w' "github.com/minio/minio@$version" >&2
    # A rename within one folder: an interrupted build never leaves half a binary under the name.
    mv "$work/minio" "$built"
    printf '%s\n' "$built"
fi
