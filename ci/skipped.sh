#!/usr/bin/env bash
# ci/skipped.sh FILE…: prints how many tests were skipped, and the reason of each. The files have lines
# `skipped: TEST: REASON`, written by tests that had the file's path in FOREBAY_SKIPPED.
set -euo pipefail

lines=$(sort -u -- "$@")
# A test that lacks several things has a line for each of them.
count=$(awk -F': ' '!seen[$2]++ && NF { count++ } END { print count + 0 }' <<<"$lines")
case $count in
0) echo 'no test skipped' ;;
1) printf '1 test skipped:\n%s\n' "$lines" ;;
*) printf '%s tests skipped:\n%s\n' "$count" "$lines" ;;
esac
