#!/usr/bin/env bash
# Builds ./sdk and ./pytorch and installs them into build/venv, an environment of this checkout
# that sees everything of the shared one (python_env.sh). Prints its path. When no source has
# changed since the last time it answers at once. PROFILE=dist builds the native core as it is shipped.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
base=$("$here/python_env.sh")
venv=$root/build/venv
stamp=$venv/.installed
profile=${PROFILE:-release}

say() { printf 'install_python: %s\n' "$*" >&2; }

# Everything that ends up in the two packages: their own files and the crates under the native core.
sources() {
    cd "$root"
    echo "$base $venv $profile"
    find core client sdk pytorch Cargo.toml Cargo.lock .cargo \
        \( -name __pycache__ -o -name '*.egg-info' -o -name tests -o -name '.*_cache' -o -name build -o -name dist \) -prune \
        -o -type f ! -name '*.so' ! -name '*.pyc' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum
}
wanted=$(sources | sha256sum | cut -c1-64)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    printf '%s\n' "$venv"
    exit 0
fi

mkdir -p "$root/build"
if command -v flock >/dev/null; then
    exec 9>"$root/build/venv.lock"
    flock 9
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        printf '%s\n' "$venv"
        exit 0
    fi
fi
rm -f "$stamp"
if [ "$(cat "$venv/.base" 2>/dev/null)" != "$base $venv" ]; then
    say "making $venv"
    rm -rf "$venv"
    options=()
    if grep -qi '^include-system-site-packages *= *true' "$base/pyvenv.cfg"; then
        options+=(--system-site-packages)
    fi
    "$base/bin/python" -m venv --without-pip ${options[@]+"${options[@]}"} "$venv" >&2
    # addsitedir, not a bare path: the shared environment may hold .pth files of its own.
    site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
    printf 'import site; site.addsitedir(%s)\n' \
        "$("$base/bin/python" -c 'import sys; print(repr(sys.argv[1]))' "$(site "$base")")" \
        >"$(site "$venv")/forebay_base.pth"
    printf '%s\n' "$base $venv" >"$venv/.base"
fi

# pip builds in the package's folder: a relative path would be one in there.
target=${CARGO_TARGET_DIR:-build}
case $target in /*) ;; *) target=$root/$target ;; esac

start=$SECONDS
say "building the packages forebay and forebay-torch"
packages=("$root/sdk")
[ -f "$root/pytorch/pyproject.toml" ] && packages+=("$root/pytorch")
# maturin, the build backend of sdk/, is a program in the shared environment.
PATH=$base/bin:$PATH CARGO_TARGET_DIR=$target MATURIN_PEP517_ARGS="--profile $profile" \
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --quiet \
    --no-build-isolation --no-deps --force-reinstall "${packages[@]}" >&2
rm -rf "$root/pytorch/build"
# For the tests of resume. It asks for torch, whose CUDA packages --no-deps keeps away.
"$venv/bin/python" -c 'import torchdata' 2>/dev/null ||
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --quiet --no-deps \
        torchdata==0.11.0 >&2
printf '%s\n' "$wanted" >"$stamp"
say "done in $((SECONDS - start)) s"
printf '%s\n' "$venv"
