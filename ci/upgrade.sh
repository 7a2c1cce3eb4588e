#!/usr/bin/env bash
# ci/upgrade.sh COMMIT|PROGRAM: upgrades a cluster under load from an older commit, or from a program
# built before, to build/release/forebay, one node after the other, and back, with the history checked.
# The older commit is built in a worktree under build/upgrade. Needs root, as ci/faults.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

older=${1:-}
[ -n "$older" ] || { echo "which older commit or program? make upgrade-test FROM=HEAD~20" >&2; exit 2; }
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
    echo "skipped: the upgrade runs in network namespaces, which need root and iproute2"
    exit 0
fi
if [ -f "$older" ] && [ -x "$older" ]; then
    program=$(realpath "$older")
else
    commit=$(git rev-parse --verify --quiet "$older^{commit}") \
        || { echo "$older is no commit and no program" >&2; exit 2; }
    tree=$PWD/build/upgrade/tree
    program=$PWD/build/upgrade/forebay-${commit:0:12}
    if [ ! -x "$program" ]; then
        git worktree remove --force "$tree" 2>/dev/null || true
        git worktree prune
        mkdir -p "$PWD/build/upgrade"
        git worktree add --detach "$tree" "$commit"
        (cd "$tree" && CARGO_TARGET_DIR=$tree/../build cargo build --release --locked -p forebay-cli)
        cp "$tree/../build/release/forebay" "$program"
        git worktree remove --force "$tree"
    fi
fi
echo "from: $("$program" --version)"
echo "to:   $("${FOREBAY_BIN:-build/release/forebay}" --version)"
export FOREBAY_OLDER_BIN=$program FOREBAY_FAULT_SECONDS=${FOREBAY_FAULT_SECONDS:-60}
export FOREBAY_FIGURES=${FOREBAY_FIGURES:-$PWD/build/faults}
# shellcheck disable=SC2086
cargo test --release ${CARGO_FLAGS:-} --workspace --exclude forebay-sdk --test faults \
    -- --ignored --nocapture --test-threads 1 a_rolling_upgrade
