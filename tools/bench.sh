#!/bin/sh
# SPDX-License-Identifier: MIT
# Run every script of bench/, in order of name. Each prints what machine it ran on, how many rounds, and its tables. One
# that cannot measure here says why (exit 77); one that fails does not keep the others from running.
#
# usage: tools/bench.sh [OPTION]...      the options of all of them: --rounds N, -t N, --json
set -eu

cd "$(dirname "$0")/.."
BT_BIN=$(pwd)/build/release/burthen
BT_SOURCE=$(pwd)
BT_LLAMA_BIN=$(pwd)/build/llama.cpp/build/bin
PYTHONPATH=$(pwd)/tests/support
export BT_BIN BT_SOURCE BT_LLAMA_BIN PYTHONPATH
count=0
failed=
for script in bench/*.py; do # what they share lies in bench/support
    [ -f "$script" ] || continue
    printf '\n== %s\n' "$script"
    status=0
    python3 "$script" "$@" || status=$?
    [ "$status" = 0 ] || [ "$status" = 77 ] || failed="$failed $script"
    count=$((count + 1))
done
[ "$count" -gt 0 ] || {
    echo "bench: bench/ holds no script" >&2
    exit 1
}
[ -z "$failed" ] || {
    echo "bench: failed:$failed" >&2
    exit 1
}
