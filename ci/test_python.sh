#!/usr/bin/env bash
# Runs all tests in Python, in two lanes side by side, since each leaves a core idle for half of its
# time: it waits for the processes that it starts. Prints each part's output when the part has ended, and
# at the end which tests were skipped, and why. Arguments go to pytest; with any, the parts run one after
# the other and print at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Parts: a name, the scripts in ci/ that print folders for PYTHONPATH, and what pytest gets.
lanes=(
    "pytorch::pytorch/tests
     loader spans:opentelemetry:pytorch/tests/test_loader_spans.py
     frameworks:lightning accelerate transformers tables:tests/python/test_frameworks.py
     frameworks on a GPU:lightning accelerate transformers tables:pytorch/tests/test_gpu_frameworks.py
     tables:tables transformers:tests/python/test_tables.py"
    "python::tests/python
     sdk::sdk/tests
     aistore 2:aistore_2:tests/python/test_aistore_2.py
     console:browser:tests/python/test_console.py
     history of the console:browser:tests/python/test_console_history.py
     console with users:browser:tests/python/test_console_users.py
     lhotse:lhotse:tests/python/test_lhotse.py
     lightning:lightning:tests/python/test_lightning.py
     sdk spans:opentelemetry:sdk/tests/test_spans.py
     traces:opentelemetry:tests/python/test_traces.py
     safetensors:lightning:pytorch/tests/test_safetensors.py
     seeds:lightning torchvision:tests/seeds"
)

# run_part SCRIPTS TESTS ARGS…
run_part() {
    local scripts=$1 tests=$2 path= script folder rc=0
    shift 2
    for script in $scripts; do
        # Without a package its tests would skip.
        folder=$("ci/$script.sh") || return 1
        path+=${path:+:}$folder
    done
    PYTHONPATH=$path build/venv/bin/python -m pytest "$tests" \
        -o cache_dir="build/pytest-cache/${tests//\//-}" "$@" || rc=$?
    # Arguments may choose none of a part's tests.
    [ $rc = 0 ] || { [ $rc = 5 ] && [ $# -gt 0 ]; }
}

# run_lane LANE ARGS…: fails after the first part that fails.
run_lane() {
    local lane=$1 name scripts tests begin log state
    shift
    while IFS=: read -r name scripts tests; do
        name=${name#"${name%%[! ]*}"}
        if [ $# -gt 0 ]; then
            printf '\n--- %s\n' "$name"
            run_part "$scripts" "$tests" "$@" || return 1
            continue
        fi
        begin=$SECONDS state=
        log=$(mktemp)
        run_part "$scripts" "$tests" >"$log" 2>&1 || state='FAILED after '
        printf '\n--- %s: %s%d s\n%s\n' "$name" "$state" $((SECONDS - begin)) "$(cat "$log")"
        rm -f "$log"
        [ -z "$state" ] || return 1
    done <<<"$lane"
}

mkdir -p build
export FOREBAY_SKIPPED=$PWD/build/skipped-python.txt
: >"$FOREBAY_SKIPPED"
trap 'ci/skipped.sh "$FOREBAY_SKIPPED"' EXIT

if [ $# -gt 0 ]; then
    for lane in "${lanes[@]}"; do
        run_lane "$lane" "$@"
    done
    exit
fi
pids=()
for lane in "${lanes[@]}"; do
    run_lane "$lane" &
    pids+=($!)
done
rc=0
for pid in "${pids[@]}"; do
    wait "$pid" || rc=1
done
exit $rc
