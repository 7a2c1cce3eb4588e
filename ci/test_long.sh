#!/usr/bin/env bash
# Runs the tests that take too long for every commit: ci/test_long.sh all, or `turn`: one of them that
# changes with each commit. They are marked `long`; those that are marked `hour`, too, have no turn.
# More arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
which=$1
shift

python=build/venv/bin/python
export FOREBAY_TEST_LONG=1
# Packages of frameworks that are not in the test environment.
PYTHONPATH="$(ci/lightning.sh):$(ci/accelerate.sh):$(ci/transformers.sh):$(ci/tables.sh)"
export PYTHONPATH
mapfile -t files < <(grep -lE 'pytest\.mark\.long|^@long$' pytorch/tests/test_*.py tests/python/test_*.py)

case $which in
all)
    failed=0
    # Each file by itself: the folders have different conftest.py.
    for file in "${files[@]}"; do
        (set -x && "$python" -m pytest "$file" -m long -s "$@") || failed=1
    done
    exit $failed
    ;;
turn)
    commit=$((16#$(git rev-parse --short=7 HEAD)))
    # A file, then one of its tests: otherwise a file with a hundred cases would have most turns.
    for ((tried = 0; tried < ${#files[@]}; tried++)); do
        file=${files[(commit + tried) % ${#files[@]}]}
        found=$("$python" -m pytest "$file" -m 'long and not hour' --collect-only -q) || [ $? = 5 ]
        mapfile -t tests < <(grep '::' <<<"$found")
        [ "${#tests[@]}" -gt 0 ] || continue
        (set -x && "$python" -m pytest "${tests[commit / ${#files[@]} % ${#tests[@]}]}" "$@")
        exit
    done
    echo "test_long: no test has a turn" >&2
    exit 1
    ;;
*)
    echo "usage: ci/test_long.sh all|turn [pytest arguments]" >&2
    exit 2
    ;;
esac
