#!/bin/sh
# SPDX-License-Identifier: MIT
# clang-tidy 19 on our own translation units, one process a core. The list of checks is .clang-tidy.
#
# usage: tools/lint.sh BUILD_DIR [FILE_REGEX]
set -eu

cd "$(dirname "$0")/.."
build_dir=$1
# The compilation database names files absolutely, and also holds the tests, which are not held to these checks.
files=${2:-"^$(pwd)/src/"}
log=$build_dir/lint.log

# gcc has warning flags that clang does not know; they are no finding. A finding in a header comes once for each file
# that includes it: each is shown once, and the log has the code around it.
if ! run-clang-tidy-19 -quiet -j "${JOBS:-$(nproc)}" -p "$build_dir" \
    -extra-arg=-Wno-unknown-warning-option "$files" >"$log" 2>&1; then
    findings=$(grep -E ': (error|warning): ' "$log" | sort -u)
    if [ -n "$findings" ]; then printf '%s\n' "$findings" >&2; else tail -n 20 "$log" >&2; fi
    echo "lint: findings above; all of the output is in $log" >&2
    exit 1
fi
echo "lint: clean"
