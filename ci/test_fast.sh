#!/usr/bin/env bash
# Tests what a small change is most likely to break, within minutes: the unit tests of the crates that
# changed, one black-box cluster, and the core of the Python client. Changed are files that differ from
# the last commit, or without any, those of the last commit. `make test` runs everything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=$(git diff --name-only HEAD; git ls-files --others --exclude-standard)
[ -n "$files" ] || files=$(git diff --name-only HEAD~1)

crates=()
for crate in core client node gateway store clouds target cli; do
    if grep -q "^\(crates/\)\?$crate/.*\.\(rs\|toml\)$" <<<"$files"; then
        crates+=("$crate")
    fi
done
printf 'changed crates: %s\n' "${crates[*]:-none}"

timings=
step() {
    local begin=$SECONDS
    (set -x; "$@")
    timings+=$(printf '%5d s  %s' $((SECONDS - begin)) "$*")$'\n'
}

cargo=(cargo test --release ${CARGO_FLAGS:-})
for crate in "${crates[@]}"; do
    # The program has no library.
    if [ "$crate" = cli ]; then
        step "${cargo[@]}" -p forebay-cli --bins
    else
        step "${cargo[@]}" -p "forebay-$crate" --lib
    fi
done
# With the features of the whole workspace, for which `make test` compiled everything already.
step "${cargo[@]}" --workspace --exclude forebay-sdk --test black_box get_put::
step ci/install_python.sh
step build/venv/bin/python -m pytest -q sdk/tests/test_objects.py sdk/tests/test_batch.py
if grep -q '^pytorch/' <<<"$files"; then
    step build/venv/bin/python -m pytest -q pytorch/tests/test_map_dataset.py \
        pytorch/tests/test_iter_dataset.py pytorch/tests/test_resume.py
fi
printf '\n%s%5d s  in all\n' "$timings" "$SECONDS"
