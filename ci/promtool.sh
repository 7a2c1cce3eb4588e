#!/usr/bin/env bash
# Prints the path of promtool, Prometheus' checker of metrics and rules: the one in FOREBAY_PROMTOOL, one on
# PATH, the one unpacked before, or else the one of Debian's or Ubuntu's package `prometheus`, which is
# downloaded and unpacked without being installed (seconds, no root). Exit code 2: FOREBAY_PROMTOOL is no
# program; 3: there is none and no apt-get to get it with.
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
set -euo pipefail
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
built=$cache/bin/promtool

say() { printf 'promtool: %s\n' "$*" >&2; }

if [ -n "${FOREBAY_PROMTOOL:-}" ]; then
    if [ ! -f "$FOREBAY_PROMTOOL" ] || [ ! -x "$FOREBAY_PROMTOOL" ]; then
        say "FOREBAY_PROMTOOL=$FOREBAY_PROMTOOL is not an executable file"
        exit 2
    fi
    printf '%s\n' "$FOREBAY_PROMTOOL"
elif command -v promtool; then
    :
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! { command -v apt-get && command -v dpkg-deb; } >/dev/null; then
    say "promtool not found, and apt-get is missing: set FOREBAY_PROMTOOL to the one of a Prometheus release"
    exit 3
else
    say "unpacking it once, into $built"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/.promtool-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/tree"
    # Lists of packages in a folder of our own: the machine may have none, and only root may update its own.
    # No sandbox: its user cannot write to the cache folder.
    own=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o APT::Sandbox::User=)
    (
        cd "$work"
        apt-get -qq -o APT::Sandbox::User= download prometheus 2>/dev/null ||
            { apt-get -qq "${own[@]}" update && apt-get -qq "${own[@]}" download prometheus; }
    ) >&2
    dpkg-deb --extract "$work"/prometheus_*.deb "$work/tree"
    "$work/tree/usr/bin/promtool" --version >&2
    # A rename within one folder: an interrupted download never leaves half of it under the name.
    mv "$work/tree/usr/bin/promtool" "$built"
    printf '%s\n' "$built"
fi
