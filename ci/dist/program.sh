#!/usr/bin/env bash
# Builds the program that ships, and prints its path: statically linked, the profile `dist`, the same
# bits for the same commit and toolchain (build_env.sh). More arguments go to cargo.
#
# The C library is linked in, so that one program runs on every Linux of its processor and in an image
# that has nothing else. With glibc rather than musl: its allocator and its DNS client are the ones
# that everything here is tested with, and it needs no second toolchain.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/build_env.sh"
cd "$root"
cargo rustc --profile dist --locked -p forebay-cli --bin forebay "$@" -- -C target-feature=+crt-static >&2
program=$CARGO_TARGET_DIR/dist/forebay
# Of a static program ldd says "statically linked", or fails.
if linked=$(ldd "$program" 2>/dev/null) && [[ $linked != *"statically linked"* ]]; then
    printf 'program: %s needs shared libraries: %s\n' "$program" "$linked" >&2
    exit 1
fi
printf '%s\n' "$program"
