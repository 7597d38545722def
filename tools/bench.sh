#!/bin/sh
# SPDX-License-Identifier: MIT
# Run every script of bench/, in order of name. Each prints its own table and says how many rounds it ran.
set -eu

cd "$(dirname "$0")/.."
BT_BIN=$(pwd)/build/release/burthen
BT_SOURCE=$(pwd)
BT_LLAMA_BIN=$(pwd)/build/llama.cpp/build/bin
PYTHONPATH=$(pwd)/tests/support
export BT_BIN BT_SOURCE BT_LLAMA_BIN PYTHONPATH
count=0
for script in bench/*.py; do
    [ -f "$script" ] || continue
    printf '\n== %s\n' "$script"
    python3 "$script"
    count=$((count + 1))
done
[ "$count" -gt 0 ] || {
    echo "bench: bench/ holds no script" >&2
    exit 1
}
