#!/usr/bin/env bash
# Runs tests of faults in network namespaces (tests/tests/faults), one after the other.
#
#   ci/faults.sh all     every row, 60 s each; figures go to build/faults and are printed
#   ci/faults.sh three   three rows of 20 s, others at each commit; a missed deadline gets a second try
#
# They need root and iproute2, some also python3, loop devices, memory cgroups or faketime: what
# cannot run says so and is skipped. FOREBAY_FAULT_SECONDS, FOREBAY_SEED: see docs/book/README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

which=${1:?all or three}
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
    echo "skipped: faults in network namespaces need root and iproute2"
    exit 0
fi
# The same crates as `make test`, so that nothing is compiled twice.
run() {
    # shellcheck disable=SC2086
    cargo test --release ${CARGO_FLAGS:-} --workspace --exclude forebay-sdk --test faults \
        -- --ignored --test-threads 1 "$@"
}
mapfile -t rows < <(run --list 2>/dev/null | sed -n 's/^\(.*::row_.*\): test$/\1/p' | sort)
[ ${#rows[@]} -gt 0 ] || { echo "no rows of faults are found" >&2; exit 1; }

case $which in
all)
    export FOREBAY_FAULT_SECONDS=${FOREBAY_FAULT_SECONDS:-60} FOREBAY_FIGURES=$PWD/build/faults
    rm -rf "$FOREBAY_FIGURES"
    rc=0
    run --nocapture ::row_ || rc=$?
    python3 bench/faults.py "$FOREBAY_FIGURES"
    exit $rc
    ;;
three)
    export FOREBAY_FAULT_SECONDS=${FOREBAY_FAULT_SECONDS:-20}
    first=$(($(git rev-list --count HEAD 2>/dev/null || echo 0) * 3))
    chosen=()
    for n in 0 1 2; do
        chosen+=("${rows[$(((first + n) % ${#rows[@]}))]}")
    done
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    run --nocapture --exact "${chosen[@]}" 2>&1 | tee "$log" && exit 0
    # A machine that others slow down may miss a deadline; a broken rule is one however busy it is.
    if grep -Eq 'violations; the first|led at once|acknowledged (Some|Sample)' "$log"; then
        exit 1
    fi
    echo "faults: a row failed without a broken rule; once more"
    run --nocapture --exact "${chosen[@]}"
    ;;
*)
    echo "all or three, not $which" >&2
    exit 2
    ;;
esac
