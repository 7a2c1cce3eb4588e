#!/usr/bin/env bash
# Prints a folder with AIStore's own integration tests, built from its Go module: the program
# `ais-tests` and the data that it reads. The folder in FOREBAY_AISTORE_GO, the one built before, or
# else a fresh build (minutes, with Go). Exit code 3: there is none and no Go to build it with.
set -euo pipefail
# The 5.0 line.
version=v1.5.0
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
built=$cache/aistore-go-$version

say() { printf 'aistore-go: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_AISTORE_GO:-}" ]; then
    if [ ! -x "$FOREBAY_AISTORE_GO/ais-tests" ]; then
        say "FOREBAY_AISTORE_GO=$FOREBAY_AISTORE_GO holds no program ais-tests"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_AISTORE_GO"
elif [ -x "$built/ais-tests" ]; then
    printf '%s\n' "$built"
elif ! command -v go >/dev/null; then
    say "AIStore's tests are not built and Go is missing"
    exit 3
else
    say "building AIStore's tests $version once, into $built"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.aistore-go-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    source=$(cd "$work" && GOFLAGS=-mod=mod go mod download -json \
        "github.com/NVIDIA/aistore@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    # One package at a time: many link against the same large SDKs of clouds.
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go test -c -p "${GO_PACKAGES_AT_ONCE:-1}" \
        -ldflags='-s -w' -o "$work/ais-tests" ./ais/test) >&2
    cp -R "$source/ais/test/data" "$work/data"
    chmod -R u+w "$work/data"
    rm -rf "$built"
    # A rename within one folder: an interrupted build never leaves half of it under the name.
    mv "$work" "$built"
    trap - EXIT
    chmod 755 "$built"
    printf '%s\n' "$built"
fi
