#!/usr/bin/env bash
# Builds everything that ships into dist/: `make dist`. deploy/README.md says what is in it. One build
# of the program is in all of it. Minutes; needs Rust, a C compiler and Python 3.11 or later, and Go
# for helm where it is missing. SIGN and other settings: see dist/pack.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/dist/build_env.sh"
cd "$root"
base=$(ci/python_env.sh)
start=$SECONDS
say() { printf 'dist: %5d s  %s\n' $((SECONDS - start)) "$*" >&2; }

say "building the program"
program=$(ci/dist/program.sh)
say "building the wheels"
ci/wheels.sh
say "building the source packages"
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
"$base/bin/maturin" sdist --manifest-path sdk/Cargo.toml --out "$packages/out"
# In a copy: setuptools leaves a folder of its own beside the sources.
cp -R pytorch "$packages/pytorch"
(cd "$packages/pytorch" && rm -rf build ./*.egg-info src/*.egg-info &&
    "$base/bin/python" -c '
import sys
from setuptools import build_meta
build_meta.build_sdist(sys.argv[1])' "$packages/out" >/dev/null 2>&1)
cp build/wheels/forebay-*.whl build/wheels/forebay_torch-*.whl "$packages/out"
say "laying out dist/"
ci/dist/pack.sh "$program" "$packages/out" dist
say "done"
(cd dist && find . -type f ! -path './simple/*.html' -printf '%10s  %P\n' | LC_ALL=C sort -k2) >&2
