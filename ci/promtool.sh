#!/usr/bin/env bash
# Prints the path of a tool of Prometheus: promtool, its checker of metrics and rules, or with the argument
# `prometheus` the server. It is the one in FOREBAY_PROMTOOL or FOREBAY_PROMETHEUS, one on PATH, the one
# unpacked before, or else the one of Debian's or Ubuntu's package `prometheus`, which is downloaded and
# unpacked without being installed (seconds, no root). Exit code 2: the variable names no program; 3: there
# is none and no apt-get to get it with.
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
set -euo pipefail
name=${1:-promtool}
variable=FOREBAY_${name^^}
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
built=$cache/bin/$name
named=${!variable:-}

say() { printf '%s: %s\n' "$name" "$*" >&2; }

if [ -n "$named" ]; then
    if [ ! -f "$named" ] || [ ! -x "$named" ]; then
        say "$variable=$named is not an executable file"
        exit 2
    fi
    printf '%s\n' "$named"
elif command -v "$name"; then
    :
elif [ -x "$built" ]; then
    printf '%s\n' "$built"
elif ! { command -v apt-get && command -v dpkg-deb; } >/dev/null; then
    say "not found, and apt-get is missing: set $variable to the one of a Prometheus release"
    exit 3
else
    say "unpacking it once, into $built"
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/.prometheus-XXXXXX")
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
    # Renames within one folder: an interrupted download never leaves half of a program under its name.
    for program in promtool prometheus; do
        "$work/tree/usr/bin/$program" --version >&2
        mv "$work/tree/usr/bin/$program" "$cache/bin/$program"
    done
    printf '%s\n' "$built"
fi
