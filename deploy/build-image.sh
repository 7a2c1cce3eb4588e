#!/usr/bin/env bash
# Builds the container image localhost/forebay:VERSION with buildah, podman or docker, whichever is
# there. Nothing is pulled: the image starts from scratch.
#
#   --oci DIR       also writes it as an OCI layout (buildah)
#   --archive FILE  also writes it as an archive for `kind load image-archive`, `docker load`
#   --load          also gives it to Docker (what docker builds is there anyway)
#
#   IMAGE           name without a tag          (default localhost/forebay)
#   BINARY          a static program to take instead of building one
#   BUILDER         buildah, podman or docker   (default: the first that is installed)
#   CA_BUNDLE       certificates to put in      (default /etc/ssl/certs/ca-certificates.crt)
#   STORAGE_DRIVER  buildah's own; vfs works inside containers
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")

say() { printf 'build-image: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

oci='' archive='' load=''
while [ $# -gt 0 ]; do
    case $1 in
    --oci) oci=${2:?--oci needs a folder} && shift ;;
    --archive) archive=${2:?--archive needs a file} && shift ;;
    --load) load=yes ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    *) fail "unknown option $1; see --help" ;;
    esac
    shift
done

builder=${BUILDER:-}
for candidate in buildah podman docker; do
    if [ -z "$builder" ] && command -v "$candidate" >/dev/null; then builder=$candidate; fi
done
[ -n "$builder" ] || fail "none of buildah, podman, docker is installed"
if [ "$builder" = docker ] && [ -n "$oci" ]; then fail "--oci needs buildah or podman"; fi
bundle=${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}
[ -s "$bundle" ] || fail "$bundle not found; install ca-certificates, or set CA_BUNDLE"

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
created=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)
image=${IMAGE:-localhost/forebay}:$version

# The C library is linked in. With glibc rather than musl: its allocator and its DNS client are the
# ones that everything here is tested with, and it needs no second toolchain. Only the last link
# differs from `make shipped`, so what that compiled is used again; the next one links anew.
binary=${BINARY:-}
if [ -z "$binary" ]; then
    out=${CARGO_TARGET_DIR:-$root/build}
    (cd "$root" && CARGO_TARGET_DIR=$out cargo rustc --profile dist --locked -p forebay-cli --bin forebay -- \
        -C target-feature=+crt-static) >&2
    binary=$out/dist/forebay
fi
# Of a static program ldd says "statically linked", or fails.
if linked=$(ldd "$binary" 2>/dev/null) && [[ $linked != *"statically linked"* ]]; then
    fail "$binary needs shared libraries, and the image has none: $linked"
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context"/rootfs/{etc/ssl/certs,usr/local/bin,var/lib} "$context/state"
install -m 755 "$binary" "$context/rootfs/usr/local/bin/forebay"
install -m 644 "$bundle" "$context/rootfs/etc/ssl/certs/ca-certificates.crt"
printf 'root:x:0:0:root:/:/\nforebay:x:65532:65532:forebay:/var/lib/forebay:/\n' >"$context/rootfs/etc/passwd"
printf 'root:x:0:\nforebay:x:65532:\n' >"$context/rootfs/etc/group"
printf 'hosts: files dns\n' >"$context/rootfs/etc/nsswitch.conf"

arguments=(--file "$here/Containerfile" --tag "$image"
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision")
case $builder in
# The same commit and program give the same image.
buildah) buildah bud --quiet --isolation chroot --format oci --timestamp "$created" "${arguments[@]}" "$context" >&2 ;;
podman) podman build --quiet --format oci --timestamp "$created" "${arguments[@]}" "$context" >&2 ;;
docker) docker build --quiet "${arguments[@]}" "$context" >&2 ;;
esac
say "made $image"

copy() { if [ "$builder" = docker ]; then docker save -o "$archive" "$image"; else "$builder" push --quiet "$image" "$1"; fi; }
if [ -n "$oci" ]; then copy "oci:$oci:$version"; fi
if [ -n "$archive" ]; then
    rm -f "$archive"
    copy "docker-archive:$archive:$image"
fi
if [ -n "$load" ] && [ "$builder" != docker ]; then copy "docker-daemon:$image"; fi
printf '%s\n' "$image"
