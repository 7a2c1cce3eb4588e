#!/usr/bin/env bash
# Prints the path of a program that runs minio-go's functional tests by name: the one in
# FOREBAY_MINIO_GO, the one built before, or else a fresh build (seconds). Exit codes as in
# go_built.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. ci/go_built.sh
sources=(tests/minio_go/go.mod tests/minio_go/go.sum tests/minio_go/main.go)
key=$(cat "${sources[@]}" ci/minio_go.sh | sha256sum | cut -c1-16)

build() {
    cp "${sources[@]}" "$1"
    cd "$1"
    go mod download github.com/minio/minio-go/v7
    local tests
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
    CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$2" .
}

provide minio-go FOREBAY_MINIO_GO "$cache/bin/minio-go-$key"
