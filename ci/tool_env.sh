#!/usr/bin/env bash
# ci/tool_env.sh NAME REQUIREMENTS: prints the folder of the programs of a Python environment of its own,
# with the packages of a file beside this one. Installs it once into the cache folder (seconds).
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
#   PYTHON         which interpreter  (default python3)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$1 requirements=$here/$2
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
python=${PYTHON:-python3}
hash=$({
    cat "$requirements"
    "$python" -VV
} | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)
venv=$cache/$name-venv-$hash

# The stamp is written last, so an installation that was interrupted is not mistaken for a whole one.
if [ ! -f "$venv/.complete" ]; then
    mkdir -p "$cache"
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    "$venv/bin/python" -m pip --quiet --disable-pip-version-check --no-input install \
        --no-deps -r "$requirements" >&2
    : >"$venv/.complete"
fi
printf '%s\n' "$venv/bin"
