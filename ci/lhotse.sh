#!/usr/bin/env bash
# Prints a folder that holds Lhotse and those of its needs that the test environment
# (python_env.sh) does not have: with the folder in PYTHONPATH, its tests run. Made on first use (a
# few MB), afterwards answers at once.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
packages=(lhotse==1.33.0 audioread==3.1.0 soundfile==0.13.1 cffi==2.0.0 pycparser==2.23
    click==8.3.0 cytoolz==1.1.0 toolz==1.1.0 intervaltree==3.1.0 tabulate==0.9.0 tqdm==4.67.1)
base=$("$here/python_env.sh")
folder=$cache/lhotse-$({ echo "${packages[*]} $base"; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)

if [ ! -d "$folder" ]; then
    printf 'lhotse: making %s\n' "$folder" >&2
    new=$(mktemp -d "$cache/lhotse.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    "$base/bin/python" -m pip install --disable-pip-version-check --no-input --quiet --no-deps \
        --target "$new" "${packages[@]}" >&2
    # What another process made meanwhile is the same.
    [ -d "$folder" ] || mv "$new" "$folder"
fi
printf '%s\n' "$folder"
