#!/usr/bin/env bash
# Prints the path of a Python environment that has what the tests, the demo and the package
# builds need: requirements-test.txt and PyTorch. Makes it on first use (minutes, one download
# of about 540 MB), afterwards answers at once.
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
#   PYTHON         which interpreter  (default: the first of python3, python3.14 … that is 3.11+)
#
# Only the path goes to stdout; what happens on the way goes to stderr.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}

say() { printf 'python_env: %s\n' "$*" >&2; }

# Prints what decides the content of the environment; fails when the interpreter is too old.
describe() {
    "$1" - <<'PY' 2>/dev/null
import importlib.metadata, os, platform, sys
if sys.version_info < (3, 11):
    sys.exit(1)
try:
    torch = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    torch = "none"
print(os.path.realpath(sys.executable), platform.python_version(), platform.machine(), torch)
PY
}

python=
for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
    if described=$(describe "$candidate"); then
        python=$candidate
        break
    fi
    if [ -n "${PYTHON:-}" ]; then
        say "PYTHON=$PYTHON does not run or is older than 3.11"
        exit 2
    fi
done
if [ -z "$python" ]; then
    say "no Python 3.11 or newer found; install one, or set PYTHON to its path"
    exit 2
fi

if compgen -G '/dev/nvidia[0-9]*' >/dev/null; then gpu=yes; else gpu=no; fi
hash=$({
    cat "$here/requirements-test.txt" "$here/requirements-torch.txt" "$here/cpu_torch_stubs.py"
    echo "$described gpu=$gpu"
} | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16)
venv=$cache/venv-$hash

# The stamp is written last, so a build that was interrupted is not mistaken for a finished one.
if [ -f "$venv/.complete" ]; then
    printf '%s\n' "$venv"
    exit 0
fi

mkdir -p "$cache"
if command -v flock >/dev/null; then
    exec 9>"$cache/venv.lock"
    flock -n 9 || { say "another build is running; waiting for it"; flock 9; }
    if [ -f "$venv/.complete" ]; then
        printf '%s\n' "$venv"
        exit 0
    fi
fi

start=$SECONDS
rm -rf "$venv"
options=()
own_torch=yes
if [ "${described##* }" != none ] && "$python" -c 'import torch' 2>/dev/null; then
    say "using the PyTorch ${described##* } that $python already has"
    options+=(--system-site-packages)
    own_torch=no
fi
say "making $venv"
"$python" -m venv ${options[@]+"${options[@]}"} "$venv" >&2
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@" >&2; }
pip install --quiet "$(grep '^pip==' "$here/requirements-test.txt")"
# --no-deps: the list is whole, and a client in it asks for PyTorch with its CUDA packages.
pip install --quiet --no-deps -r "$here/requirements-test.txt"

if [ "$own_torch" = yes ]; then
    torch=$(grep '^torch==' "$here/requirements-torch.txt")
    rest=$(grep -v -e '^torch==' -e '^#' "$here/requirements-torch.txt")
    # shellcheck disable=SC2086  # a list of words
    pip install --quiet $rest
    if [ "$gpu" = no ] && [ "$(uname -s)" = Linux ]; then
        say "installing $torch without its CUDA packages (no NVIDIA GPU here)"
        pip install --quiet --no-deps --resume-retries 5 "$torch"
        "$venv/bin/python" "$here/cpu_torch_stubs.py" >&2
    else
        say "installing $torch"
        pip install --quiet --resume-retries 5 "$torch"
    fi
fi

"$venv/bin/python" -c 'import torch; assert (torch.ones(2, 2) @ torch.ones(2, 2)).sum() == 8' || {
    say "PyTorch does not work in $venv; remove that folder and try again"
    exit 1
}
: >"$venv/.complete"
say "done in $((SECONDS - start)) s"
printf '%s\n' "$venv"
