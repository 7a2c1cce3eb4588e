#!/usr/bin/env bash
# Feeds mutated input to the parsers of what clients send: ci/fuzz.sh TARGET SECONDS. TARGET is one of
# those below, `all`, or `turn`: one that changes with each commit, and its seed with it. An input that
# fails is written to a file that the message names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

targets=(tar pax zip packed msgpack json tokens sigv4 aws_chunked batch_frames forms xml heads)
commit=$((16#$(git rev-parse --short=7 HEAD)))
export FOREBAY_FUZZ_SECONDS=$2
export FOREBAY_FUZZ_SEED=${FOREBAY_FUZZ_SEED:-$commit}
case $1 in
all) chosen=("${targets[@]}") ;;
turn) chosen=("${targets[commit % ${#targets[@]}]}") ;;
*) chosen=("$1") ;;
esac
for target in "${chosen[@]}"; do
    if [ "$target" = heads ]; then
        where=(-p forebay-node --lib fast_http::head::tests::fuzz_heads)
    else
        where=(-p forebay-tests --test fuzz "fuzz_$target")
    fi
    printf 'fuzz %s: %s s, seed %s\n' "$target" "$2" "$FOREBAY_FUZZ_SEED"
    # shellcheck disable=SC2086
    cargo test --release ${CARGO_FLAGS:-} "${where[@]}" -- --exact --nocapture
done
