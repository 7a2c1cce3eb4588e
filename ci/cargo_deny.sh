#!/usr/bin/env bash
# Prints the path of cargo-deny: the one in FOREBAY_CARGO_DENY, one on PATH, the one built before, or else a
# fresh build (minutes). Exit codes: 2 if FOREBAY_CARGO_DENY names no program, 3 if cargo is missing.
set -euo pipefail
version=0.20.2
built=${FOREBAY_CACHE:-$HOME/.cache/forebay}/bin/cargo-deny-$version

say() { printf 'cargo-deny: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_CARGO_DENY:-}" ]; then
    [ -f "$FOREBAY_CARGO_DENY" ] && [ -x "$FOREBAY_CARGO_DENY" ] || {
        say "FOREBAY_CARGO_DENY: $FOREBAY_CARGO_DENY is not an executable file"
        exit 2
    }
    printf '%s\n' "$FOREBAY_CARGO_DENY"
elif found=$(command -v cargo-deny); then
    printf '%s\n' "$found"
else
    if [ ! -x "$built" ]; then
        command -v cargo >/dev/null || { say "it is not built yet and cargo is missing"; exit 3; }
        say "building it once, into $built"
        mkdir -p "$(dirname "$built")"
        work=$(mktemp -d "$(dirname "$built")/.cargo-deny-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        # Without optimization: it runs for seconds. From a folder that has no settings of cargo.
        (cd "$work" && CARGO_TARGET_DIR=$work/target CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
            nice cargo install cargo-deny --version "$version" --locked --root "$work") >&2
        mv "$work/bin/cargo-deny" "$built"
    fi
    printf '%s\n' "$built"
fi
