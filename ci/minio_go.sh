#!/usr/bin/env bash
# Prints the path of a program that runs minio-go's functional tests by name: the one in
# FOREBAY_MINIO_GO, the one built before, or else a fresh build (seconds, with Go). Exit code 3: there
# is none and no Go to build it with.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
source=tests/minio_go
key=$(cat "$source"/go.mod "$source"/go.sum "$source"/main.go ci/minio_go.sh | sha256sum | cut -c1-16)
built=$cache/bin/minio-go-$key

say() { printf 'minio-go: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_MINIO_GO:-}" ]; then
    if [ ! -x "$FOREBAY_MINIO_GO" ]; then
        say "FOREBAY_MINIO_GO=$FOREBAY_MINIO_GO is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_MINIO_GO"
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! command -v go >/dev/null; then
    say "Go is missing"
    exit 3
else
    say "building minio-go's functional tests once, into $built"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/bin/.minio-go-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cp "$source"/go.mod "$source"/go.sum "$source"/main.go "$work"
    cd "$work"
    go mod download github.com/minio/minio-go/v7
    tests=$(go list -m -f '{{.Dir}}' github.com/minio/minio-go/v7)/functional_tests.go
    # Their main function runs all of them, and the first failure ends it. Buckets with object lock
    # are not served here: without it these tests judge versions and tags.
    sed -e '/^\/\/go:build mint/d' -e '/^\/\/ +build mint/d' -e 's/^func main() {/func all() {/' \
        -e 's/ObjectLocking: true/ObjectLocking: false/' "$tests" >functional.go
    {
        printf 'package main\n\nvar tests = map[string]func(){\n'
        sed -n 's/^func \(test[A-Za-z0-9]*\)() {$/\t"\1": \1,/p' functional.go
        printf '}\n'
    } >names.go
    CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o program . >&2
    # A rename within one folder: an interrupted build never leaves half a binary under the name.
    mv program "$built"
    printf '%s\n' "$built"
fi
