#!/usr/bin/env bash
# Prints the path of a fake-gcs-server, the Google Cloud Storage that tests and `examples/gcs` run
# against: the one in FOREBAY_FAKE_GCS, one on PATH, the one built before, or else a fresh build
# (minutes, with Go). Exit code 3: there is none and no Go to build it with.
set -euo pipefail
version=v1.56.1
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
built=$cache/bin/fake-gcs-server

say() { printf 'fake-gcs-server: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_FAKE_GCS:-}" ]; then
    if [ ! -x "$FOREBAY_FAKE_GCS" ]; then
        say "FOREBAY_FAKE_GCS=$FOREBAY_FAKE_GCS is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_FAKE_GCS"
elif command -v fake-gcs-server; then
    :
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! command -v go >/dev/null; then
    say "fake-gcs-server not found and Go is missing"
    exit 3
else
    say "building fake-gcs-server $version once, into $built"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/bin/.fake-gcs-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    CGO_ENABLED=0 GOBIN=$work go install -trimpath -ldflags='-s -w' "github.com/fsouza/fake-gcs-server@$version" >&2
    # A rename within one folder: an interrupted build never leaves half a binary under the name.
    mv "$work/fake-gcs-server" "$built"
    printf '%s\n' "$built"
fi
