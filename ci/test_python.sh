#!/usr/bin/env bash
# Runs all tests in Python, two parts at a time, since each leaves a core idle for half of its time: it
# waits for the processes that it starts. Prints each part's output when the part has ended, and at the
# end which tests were skipped, and why. Arguments go to pytest; with any, the parts run one after the
# other and print at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Parts: a name, the scripts in ci/ that print folders for PYTHONPATH, and the tests, as patterns of the shell.
# Long ones come first, so that the last two end at about the same time.
parts=(
    "pytorch::pytorch/tests"
    "python, a to d::tests/python/test_[a-d]*.py"
    "python, the rest::tests/python/test_[!a-d]*.py"
    "sdk::sdk/tests"
    "seeds:lightning torchvision:tests/seeds"
    "frameworks:lightning accelerate transformers tables:tests/python/test_frameworks.py"
    "tables:tables transformers:tests/python/test_tables.py"
    "console:browser:tests/python/test_console.py"
    "history of the console:browser:tests/python/test_console_history.py"
    "console with users:browser:tests/python/test_console_users.py"
    "lightning:lightning:tests/python/test_lightning.py"
    "safetensors:lightning:pytorch/tests/test_safetensors.py"
    "loader spans:opentelemetry:pytorch/tests/test_loader_spans.py"
    "sdk spans:opentelemetry:sdk/tests/test_spans.py"
    "traces:opentelemetry:tests/python/test_traces.py"
    "aistore 2:aistore_2:tests/python/test_aistore_2.py"
    "lhotse:lhotse:tests/python/test_lhotse.py"
    "frameworks on a GPU:lightning accelerate transformers tables:pytorch/tests/test_gpu_frameworks.py"
)

# run_part PART ARGS…
run_part() {
    local name scripts tests path= script folder rc=0
    IFS=: read -r name scripts tests <<<"$1"
    shift
    for script in $scripts; do
        # Without a package its tests would skip.
        folder=$("ci/$script.sh") || return 1
        path+=${path:+:}$folder
    done
    # shellcheck disable=SC2086
    PYTHONPATH=$path build/venv/bin/python -m pytest $tests \
        -o cache_dir="build/pytest-cache/${name// /-}" "$@" || rc=$?
    # Arguments may choose none of a part's tests.
    [ $rc = 0 ] || { [ $rc = 5 ] && [ $# -gt 0 ]; }
}

# run_logged PART: exits with 255, after which xargs starts no other part, if the part fails.
run_logged() {
    local begin=$SECONDS state= log
    log=$(mktemp)
    run_part "$1" >"$log" 2>&1 || state='FAILED after '
    printf '\n--- %s: %s%d s\n%s\n' "${1%%:*}" "$state" $((SECONDS - begin)) "$(cat "$log")"
    rm -f "$log"
    [ -z "$state" ] || exit 255
}

mkdir -p build
export FOREBAY_SKIPPED=$PWD/build/skipped-python.txt
: >"$FOREBAY_SKIPPED"
trap 'ci/skipped.sh "$FOREBAY_SKIPPED"' EXIT

if [ $# -gt 0 ]; then
    for part in "${parts[@]}"; do
        printf '\n--- %s\n' "${part%%:*}"
        run_part "$part" "$@"
    done
    exit
fi
export -f run_part run_logged
printf '%s\n' "${parts[@]}" | xargs -d '\n' -n 1 -P 2 bash -c 'run_logged "$1"' _
