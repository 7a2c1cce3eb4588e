#!/usr/bin/env bash
# Prints the folder of the programs of an environment with schemathesis, with which tests send requests
# by the description of the API, and with openapi-spec-validator. Installs it once into the cache folder
# (seconds).
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
#   PYTHON         which interpreter  (default python3)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
python=${PYTHON:-python3}
hash=$({
    cat "$here/requirements-api.txt"
    "$python" -VV
} | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)
venv=$cache/api-venv-$hash

# The stamp is written last, so an installation that was interrupted is not mistaken for a whole one.
if [ ! -f "$venv/.complete" ]; then
    mkdir -p "$cache"
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    "$venv/bin/python" -m pip --quiet --disable-pip-version-check --no-input install \
        --no-deps -r "$here/requirements-api.txt" >&2
    : >"$venv/.complete"
fi
printf '%s\n' "$venv/bin"
