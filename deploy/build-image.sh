#!/usr/bin/env bash
# Writes the container image localhost/forebay:VERSION as an archive, which docker, podman, ctr, kind and
# skopeo read. None of them is needed: oci_image.py makes it, and says what is in it.
#
#   build-image.sh [--load] [ARCHIVE]      (default build/forebay-image.tar)
#
#   --load       also gives it to docker or podman, whichever is there
#
#   IMAGE        name without a tag         (default localhost/forebay)
#   BINARY       a static program to take instead of building one
#   CA_BUNDLE    certificates to put in     (default /etc/ssl/certs/ca-certificates.crt)
#   THIRD_PARTY  licence texts of what is linked in, to take instead of collecting them
#
# Prints the image's name with its tag.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../ci/dist/build_env.sh"

say() { printf 'build-image: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

archive='' load=''
while [ $# -gt 0 ]; do
    case $1 in
    --load) load=yes ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    -*) fail "unknown option $1; see --help" ;;
    *) archive=$1 ;;
    esac
    shift
done
archive=${archive:-$root/build/forebay-image.tar}
bundle=${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}
[ -s "$bundle" ] || fail "$bundle not found; install ca-certificates, or set CA_BUNDLE"

revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
name=${IMAGE:-localhost/forebay}
binary=${BINARY:-$("$root/ci/dist/program.sh")}
if linked=$(ldd "$binary" 2>/dev/null) && [[ $linked != *"statically linked"* ]]; then
    fail "$binary needs shared libraries, and the image has none: $linked"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "${THIRD_PARTY:-}" ]; then
    cp "$THIRD_PARTY" "$work/THIRD-PARTY.txt"
else
    python3 "$root/ci/dist/third_party.py" --target "$(uname -m)-unknown-linux-gnu" "$work/THIRD-PARTY.txt"
fi
mkdir -p "$(dirname "$archive")"
python3 "$here/oci_image.py" --program "$binary" --name "$name" --version "$version" \
    --revision "$revision" --created "$RELEASE_EPOCH" --certificates "$bundle" \
    --license "$root/LICENSE" --license "$work/THIRD-PARTY.txt" "$archive"
say "made $archive"
if [ -n "$load" ]; then
    for loader in docker podman ''; do
        [ -n "$loader" ] || fail "neither docker nor podman is installed"
        if command -v "$loader" >/dev/null; then break; fi
    done
    "$loader" load --quiet --input "$archive" >&2
fi
printf '%s\n' "$name:$version"
