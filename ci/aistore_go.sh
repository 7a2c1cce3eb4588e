#!/usr/bin/env bash
# Prints a folder with AIStore's own integration tests, built from its Go module: the program
# `ais-tests` and the data that it reads. The folder in FOREBAY_AISTORE_GO, the one built before, or
# else a fresh build (minutes). Exit codes as in go_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/go_built.sh"
# The 5.0 line.
version=v1.5.0

build() {
    local source
    source=$(cd "$1" && GOFLAGS=-mod=mod go mod download -json \
        "github.com/NVIDIA/aistore@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    mkdir "$2"
    # One package at a time: many link against the same large SDKs of clouds.
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go test -c -p "${GO_PACKAGES_AT_ONCE:-1}" \
        -ldflags='-s -w' -o "$2/ais-tests" ./ais/test)
    cp -R "$source/ais/test/data" "$2/data"
    chmod -R u+w "$2/data"
}

provide aistore-go FOREBAY_AISTORE_GO "$cache/aistore-go-$version" ais-tests
