#!/usr/bin/env bash
# Prints a folder that holds these packages and nothing that they need: with the folder in
# PYTHONPATH, the test environment (python_env.sh) has them beside all else. Made on first use,
# afterwards answers at once.
#
#   ci/package_folder.sh NAME PACKAGE==VERSION…
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
name=$1
shift
base=$("$here/python_env.sh")
folder=$cache/$name-$({ echo "$* $base"; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)

if [ ! -d "$folder" ]; then
    printf '%s: making %s\n' "$name" "$folder" >&2
    new=$(mktemp -d "$cache/$name.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    # --no-deps: some ask for PyTorch with its CUDA packages.
    "$base/bin/python" -m pip install --disable-pip-version-check --no-input --quiet --no-deps \
        --target "$new" "$@" >&2
    # Another process may have made the same folder meanwhile.
    [ -d "$folder" ] || mv "$new" "$folder"
fi
printf '%s\n' "$folder"
