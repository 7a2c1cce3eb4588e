#!/usr/bin/env bash
# Wheels of both Python packages into build/wheels; that of forebay has the program `forebay` in it,
# so that `pip install forebay` also brings the command and the local server, and the licence texts of
# all that is linked in.
#
#   ci/wheels.sh                     for this machine, with the build/dist/forebay that is there; for
#                                    the glibc of this machine and those after it
#   ci/wheels.sh x86_64 aarch64      manylinux_2_28 wheels for these processors, program included,
#                                    cross-built by zig. Needs `pip install ziglang` and, for each,
#                                    `rustup target add PROCESSOR-unknown-linux-gnu`
#
# One wheel serves Python 3.11 and all that follow. Interpreters for which it is none get their own
# when they are named, 3.10 and the builds without a GIL:
#
#   OTHER_PYTHONS="python3.10 python3.14t" ci/wheels.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=ci/dist/build_env.sh
. "$here/dist/build_env.sh"
cd "$root"
base=$("$here/python_env.sh")
export PATH=$base/bin:$PATH
wheels=$root/build/wheels

say() { printf 'wheels: %s\n' "$*" >&2; }

# Builds the wheels of forebay around one program: pack PROGRAM TARGET MATURIN_OPTION…
pack() {
    local program=$1 target=$2 other made
    shift 2
    made=$(mktemp -d)
    "$base/bin/python" ci/dist/third_party.py --target "$target" "$made/THIRD-PARTY.txt"
    maturin build --quiet --profile dist --manifest-path sdk/Cargo.toml --out "$made" \
        --interpreter "$base/bin/python" "$@"
    for other in ${OTHER_PYTHONS:-}; do
        maturin build --quiet --profile dist --manifest-path sdk/Cargo.toml --out "$made" \
            --interpreter "$other" --no-default-features "$@"
    done
    for wheel in "$made"/*.whl; do
        "$base/bin/python" ci/wheel_program.py "$wheel" "$program" "$made/THIRD-PARTY.txt"
    done
    mv "$made"/*.whl "$wheels"
    rm -r "$made"
}

mkdir -p "$wheels"
rm -f "$wheels"/forebay-*.whl "$wheels"/forebay_torch-*.whl
if [ $# = 0 ]; then
    program=$CARGO_TARGET_DIR/dist/forebay
    [ -x "$program" ] || { say "$program is missing; run \`make shipped\`"; exit 1; }
    pack "$program" "$(uname -m)-unknown-linux-gnu"
fi
for processor in "$@"; do
    target=$processor-unknown-linux-gnu
    say "$target"
    # The version behind the dot is the oldest glibc that it shall run with.
    cargo zigbuild --version >/dev/null 2>&1 ||
        { say "cargo-zigbuild is missing: pip install cargo-zigbuild ziglang"; exit 1; }
    cargo zigbuild --profile dist --locked -p forebay-cli --target "$target.2.28"
    pack "$CARGO_TARGET_DIR/$target/dist/forebay" "$target" \
        --target "$target" --zig --compatibility manylinux_2_28
done
"$base/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir "$wheels" ./pytorch
rm -rf pytorch/build
ls -l "$wheels" >&2
