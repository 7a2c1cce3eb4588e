#!/usr/bin/env bash
# Prints the path of mdbook, which makes the book: the one in FOREBAY_MDBOOK, one on PATH, the one built
# before, or else a fresh build (minutes). Exit codes: 2 if FOREBAY_MDBOOK names no program, 3 if cargo is
# missing.
set -euo pipefail
version=0.4.52
built=${FOREBAY_CACHE:-$HOME/.cache/forebay}/bin/mdbook-$version

say() { printf 'mdbook: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_MDBOOK:-}" ]; then
    [ -f "$FOREBAY_MDBOOK" ] && [ -x "$FOREBAY_MDBOOK" ] || {
        say "FOREBAY_MDBOOK: $FOREBAY_MDBOOK is not an executable file"
        exit 2
    }
    printf '%s\n' "$FOREBAY_MDBOOK"
elif found=$(command -v mdbook); then
    printf '%s\n' "$found"
else
    if [ ! -x "$built" ]; then
        command -v cargo >/dev/null || { say "it is not built yet and cargo is missing"; exit 3; }
        say "building it once, into $built"
        mkdir -p "$(dirname "$built")"
        work=$(mktemp -d "$(dirname "$built")/.mdbook-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        # Without its server and its watcher of files. From a folder that has no settings of cargo.
        (cd "$work" && CARGO_TARGET_DIR=$work/target nice cargo install mdbook --version "$version" --locked \
            --no-default-features --features search --root "$work") >&2
        mv "$work/bin/mdbook" "$built"
    fi
    printf '%s\n' "$built"
fi
