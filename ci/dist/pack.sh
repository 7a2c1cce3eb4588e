#!/usr/bin/env bash
# Lays out what ships, from parts that are built already: pack.sh PROGRAM PACKAGES OUT
#
#   PROGRAM   the static program `forebay`
#   PACKAGES  a folder of wheels and source packages
#   OUT       the folder to write; what is in it is removed
#
#   SIGN         who signs SHA256SUMS: the file of a private key of SSH (SHA256SUMS.sig), else the
#                name of a key of gpg (SHA256SUMS.asc); nobody if empty
#   CA_BUNDLE    certificates for the image (default /etc/ssl/certs/ca-certificates.crt)
#   SBOM_TARGET  the target triple whose crates are listed (default: this machine's)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/build_env.sh"
here=$root/ci/dist
program=$(realpath "$1")
packages=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
processor=$(uname -m)
target=${SBOM_TARGET:-$processor-unknown-linux-gnu}

say() { printf 'dist: %s\n' "$*" >&2; }

if [ -n "$(ls -A "$out")" ] && [ ! -f "$out/SHA256SUMS" ]; then
    say "$out holds other files; remove them or name another folder"
    exit 2
fi
rm -rf "${out:?}"/*

install -m 755 "$program" "$out/forebay-$version-$processor-linux"
cp "$root/LICENSE" "$out/LICENSE"
python3 "$here/third_party.py" --target "$target" "$out/THIRD-PARTY.txt"
python3 "$here/package_index.py" "$out/simple" "$packages"/*.whl "$packages"/*.tar.gz
BINARY=$program THIRD_PARTY=$out/THIRD-PARTY.txt \
    "$root/deploy/build-image.sh" "$out/forebay-image-$version-$processor.tar"

# helm needs Go to be built, which the other parts do not.
rc=0
helm=$("$root/ci/helm.sh") || rc=$?
if [ $rc = 0 ]; then
    chart=$(mktemp -d)
    "$helm" package "$root/deploy/helm/forebay" --destination "$chart" >&2
    mv "$chart/forebay-$version.tgz" "$out/forebay-chart-$version.tgz"
    rmdir "$chart"
elif [ $rc = 3 ] && [ -z "${FOREBAY_REQUIRE_HELM:-}" ]; then
    say "no chart: helm is missing, and Go, which builds it"
else
    exit $rc
fi

cd "$out"
listed=()
while IFS= read -r file; do listed+=(--file "$file"); done < <(
    find . -type f \( -name 'forebay-*' -o -name 'forebay_torch-*' \) ! -name '*.metadata' | LC_ALL=C sort
)
python3 "$here/sbom.py" --target "$target" "${listed[@]}" "forebay-$version.cdx.json"
# Listed before the list itself is there.
mapfile -t files < <(find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort)
sha256sum "${files[@]}" >SHA256SUMS

if [ -n "${SIGN:-}" ]; then
    if [ -f "$SIGN" ]; then
        ssh-keygen -q -Y sign -f "$SIGN" -n forebay-release SHA256SUMS
    else
        gpg --batch --yes --local-user "$SIGN" --armor --detach-sign SHA256SUMS
    fi
fi
