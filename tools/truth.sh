#!/bin/sh
# SPDX-License-Identifier: MIT
# The budget is kept: 200 random toys, 200 requests to each llama-server under one, then the whole matrix of models,
# budgets, contexts and KV types, an hour and more.
# Stopped and started again, it goes on where it was (build/truth); the closing table comes last.
#
# usage: tools/truth.sh [MODEL]... [CONTEXT]...   only these rows of the matrix: smollm2 gemma3 random-mix random-128k
#                                                 random-1.1b; 512 4096
set -eu

cd "$(dirname "$0")/.."
BT_BIN=$(pwd)/build/release/burthen
BT_SOURCE=$(pwd)
BT_LLAMA_BIN=$(pwd)/build/llama.cpp/build/bin
PYTHONPATH=$(pwd)/tests/support
BT_TRUTH_FULL=1
export BT_BIN BT_SOURCE BT_LLAMA_BIN PYTHONPATH BT_TRUTH_FULL

failed=0
printf '\n== tests/truth/test_toys.py\n'
python3 tests/truth/test_toys.py || failed=1 # 77, skipped, is no proof either
if [ $# -eq 0 ]; then
    printf '\n== tests/integration/test_drop_in.py\n'
    python3 tests/integration/test_drop_in.py || failed=1
    printf '\n== tests/integration/test_drop_in_programs.py\n'
    python3 tests/integration/test_drop_in_programs.py || failed=1
fi
printf '\n== tests/truth/test_contract.py\n'
python3 tests/truth/test_contract.py "$@" || failed=1
exit "$failed"
