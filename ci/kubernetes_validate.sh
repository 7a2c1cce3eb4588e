#!/usr/bin/env bash
# Prints the path of kubernetes-validate, with which the tests of the chart check manifests against
# Kubernetes' own schemas. Installs it once into the cache folder (seconds).
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
#   PYTHON         which interpreter  (default python3)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
python=${PYTHON:-python3}
hash=$({
    cat "$here/requirements-chart.txt"
    "$python" -VV
} | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)
venv=$cache/chart-venv-$hash

# The stamp is written last, so an installation that was interrupted is not mistaken for a whole one.
if [ ! -f "$venv/.complete" ]; then
    mkdir -p "$cache"
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    "$venv/bin/python" -m pip --quiet --disable-pip-version-check --no-input install \
        --no-deps -r "$here/requirements-chart.txt" >&2
    : >"$venv/.complete"
fi
printf '%s\n' "$venv/bin/kubernetes-validate"
