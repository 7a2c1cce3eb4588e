#!/usr/bin/env bash
# Prints the path of `mc`, MinIO's client: the one in FOREBAY_MC, the one built before, or else a
# fresh build (minutes, with Go). One on PATH may be Midnight Commander. Exit code 3: there is none and
# no Go to build it with.
set -euo pipefail
version=v0.0.0-20250313080218-cf909e1063a9
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
built=$cache/bin/mc

say() { printf 'mc: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_MC:-}" ]; then
    if [ ! -x "$FOREBAY_MC" ]; then
        say "FOREBAY_MC=$FOREBAY_MC is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_MC"
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! command -v go >/dev/null; then
    say "Go is missing"
    exit 3
else
    say "building mc $version once, into $built"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/bin/.mc-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    CGO_ENABLED=0 GOBIN=$work go install -trimpath -ldflags='-s -w' "github.com/minio/mc@$version" >&2
    # A rename within one folder: an interrupted build never leaves half a binary under the name.
    mv "$work/mc" "$built"
    printf '%s\n' "$built"
fi
