#!/usr/bin/env bash
# Prints a folder that holds the AIStore SDK 2.0 and nothing it needs: with the folder first in
# PYTHONPATH, the test environment (python_env.sh) has the newer SDK and all else as it is.
# Made on first use (one small download), afterwards answers at once.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
packages=(aistore==2.0.0 xxhash==4.0.1)
base=$("$here/python_env.sh")
folder=$cache/aistore-2-$({ echo "${packages[*]} $base"; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)

if [ ! -d "$folder" ]; then
    printf 'aistore_2: making %s\n' "$folder" >&2
    new=$(mktemp -d "$cache/aistore-2.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    "$base/bin/python" -m pip install --disable-pip-version-check --no-input --quiet --no-deps \
        --target "$new" "${packages[@]}" >&2
    # What another process made meanwhile is the same.
    [ -d "$folder" ] || mv "$new" "$folder"
fi
printf '%s\n' "$folder"
