#!/usr/bin/env bash
# Prints the path of Azurite, the Azure Blob Storage that tests run against: the one in
# FOREBAY_AZURITE, one on PATH, the one installed before, or else a fresh one (a minute, with npm).
# Exit code 3: there is none and no npm to install it with.
set -euo pipefail
version=3.35.0
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
installed=$cache/azurite-$version
program=$installed/node_modules/.bin/azurite-blob

say() { printf 'azurite: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_AZURITE:-}" ]; then
    if [ ! -x "$FOREBAY_AZURITE" ]; then
        say "FOREBAY_AZURITE=$FOREBAY_AZURITE is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_AZURITE"
elif command -v azurite-blob; then
    :
elif [ -x "$program" ]; then
    printf '%s\n' "$program"
elif ! { command -v npm && command -v node; } >/dev/null; then
    say "Azurite not found, and Node.js with npm is missing"
    exit 3
else
    say "installing Azurite $version once, into $installed"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/.azurite-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    npm install --prefix "$work" --ignore-scripts --no-audit --no-fund --loglevel=error \
        "azurite@$version" >&2
    # A rename: an interrupted installation never leaves half of one under the name.
    rm -rf "$installed"
    mv "$work" "$installed"
    trap - EXIT
    ln -sfn "../azurite-$version/node_modules/.bin/azurite-blob" "$cache/bin/azurite-blob"
    printf '%s\n' "$program"
fi
