#!/usr/bin/env bash
# Prints the path of helm 3, which the tests of the chart need: the one in FOREBAY_HELM, one on PATH,
# the one built before, or else a fresh build (minutes). Exit codes as in go_built.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/go_built.sh"
version=v3.22.0

build() { installed "helm.sh/helm/v3/cmd/helm@$version" "$@"; }

if [ -z "${FOREBAY_HELM:-}" ] && found=$(command -v helm) &&
    [[ $(helm version --short 2>/dev/null) == v3.* ]]; then
    printf '%s\n' "$found"
else
    provide helm FOREBAY_HELM "$cache/bin/helm-$version"
fi
