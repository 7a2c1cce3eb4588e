#!/usr/bin/env bash
# Prints the path of an `aisnode`, AIStore's server that is measured beside Forebay: the one in AISNODE, the
# one built before, or else a fresh build from its Go module (minutes). Exit codes as in go_built.sh.
#
# AIStore binds its public listener to all interfaces, whatever address is configured. This build binds
# the configured address if AIS_LAB_BIND_PUB is set; nothing else of the source is changed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/go_built.sh"

build() {
    local module
    module=$(aistore_source "$1")
    # A copy: Go refuses to replace files of a module's folder.
    cp -R "$module" "$1/source"
    chmod -R u+w "$1/source"
    sed -i '/^func (h \*htrun) pubAddrAny(/,/^}/ s/^\tswitch {$/\tswitch {\n\tcase os.Getenv("AIS_LAB_BIND_PUB") != "":\n\t\treturn false/' \
        "$1/source/ais/htrun.go"
    if cmp -s "$1/source/ais/htrun.go" "$module/ais/htrun.go"; then
        say "version $aistore_version has no pubAddrAny to change"
        exit 1
    fi
    # Few packages at a time: many link against the same large SDKs of clouds.
    (cd "$1/source" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -p "${GO_PACKAGES_AT_ONCE:-2}" \
        -trimpath -ldflags='-s -w' -tags='mono aws dsort' -o "$2" ./cmd/aisnode)
}

provide aisnode AISNODE "$cache/bin/aisnode-$aistore_version"
