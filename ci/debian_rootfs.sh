#!/usr/bin/env bash
# Prints the path of a folder with a Debian 12 that has Python and no toolchain, for the test that
# installs what is released. Made once by debootstrap (minutes, as root), afterwards it answers at once.
# Exit code 3: it cannot be made here, because debootstrap is missing or this user is not root.
#
#   FOREBAY_CACHE  where it is kept   (default ~/.cache/forebay)
set -euo pipefail
cache=${FOREBAY_CACHE:-$HOME/.cache/forebay}
suite=bookworm
# curl and procps are in the README's first steps; libstdc++6 is what PyTorch needs.
packages=python3,python3-venv,ca-certificates,curl,procps,libstdc++6
built=$cache/debian-$suite-$(printf '%s' "$packages" | sha256sum | cut -c1-8)

say() { printf 'debian_rootfs: %s\n' "$*" >&2; }

if [ ! -d "$built" ]; then
    if [ "$(id -u)" != 0 ]; then
        say "only root can make one"
        exit 3
    elif ! command -v debootstrap >/dev/null; then
        say "debootstrap is missing: apt-get install debootstrap"
        exit 3
    fi
    say "making $built"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/.debian-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/rootfs" >&2
    # A rename within one folder: an interrupted build never leaves half of it under the name.
    mv "$work/rootfs" "$built"
fi
printf '%s\n' "$built"
