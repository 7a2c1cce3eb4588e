#!/usr/bin/env bash
# Prints a folder with AIStore's own integration tests, built from its Go module: the program
# `ais-tests` and the data that it reads. The folder in FOREBAY_AISTORE_GO, the one built before, or
# else a fresh build (minutes). Exit codes as in go_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/go_built.sh"

build() {
    local source
    source=$(aistore_source "$1")
    mkdir "$2"
    # One package at a time: many link against the same large SDKs of clouds.
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go test -c -p "${GO_PACKAGES_AT_ONCE:-1}" \
        -ldflags='-s -w' -o "$2/ais-tests" ./ais/test)
    cp -R "$source/ais/test/data" "$2/data"
    chmod -R u+w "$2/data"
}

provide aistore-go FOREBAY_AISTORE_GO "$cache/aistore-go-$aistore_version" ais-tests
