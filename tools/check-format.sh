#!/bin/sh
# SPDX-License-Identifier: MIT
# Is every C file of ours as clang-format 19 would write it? With --fix: make it so.
#
# usage: tools/check-format.sh [--fix]
set -eu

cd "$(dirname "$0")/.."
command -v clang-format-19 >/dev/null 2>&1 || {
    echo "check-format: clang-format-19 is missing (make check installs it)" >&2
    exit 1
}
if [ "${1:-}" = --fix ]; then how=-i; else how="--dry-run --Werror"; fi
set -- src include tests
if [ -d bench ]; then set -- "$@" bench; fi
# shellcheck disable=SC2086 # how is a list
find "$@" \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 -r clang-format-19 $how
