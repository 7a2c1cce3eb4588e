#!/usr/bin/env bash
# Prints the path of helm, which the tests of the chart need: the one in FOREBAY_HELM, one on PATH,
# the one built before, or else a fresh build (minutes, with Go).
# Exit code 3: there is none and no Go to build it with.
set -euo pipefail
version=v3.22.0
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
built=$cache/bin/helm-$version

say() { printf 'helm: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_HELM:-}" ]; then
    if [ ! -x "$FOREBAY_HELM" ]; then
        say "FOREBAY_HELM=$FOREBAY_HELM is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_HELM"
elif found=$(command -v helm) && [[ $(helm version --short 2>/dev/null) == v3.* ]]; then
    printf '%s\n' "$found"
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! command -v go >/dev/null; then
    say "helm 3 not found and Go is missing"
    exit 3
else
    say "building helm $version once, into $built"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/bin/.helm-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    CGO_ENABLED=0 GOBIN=$work go install -trimpath -ldflags='-s -w' "helm.sh/helm/v3/cmd/helm@$version" >&2
    # A rename within one folder: an interrupted build never leaves half a binary under the name.
    mv "$work/helm" "$built"
    printf '%s\n' "$built"
fi
