#!/bin/sh
# SPDX-License-Identifier: MIT
# Run every libFuzzer program of a fuzz build for a while, each on a corpus that grows under the build folder and
# starts from tests/data/fuzz/NAME where that exists. A crash ends the run and names its input.
#
# usage: tools/fuzz.sh BUILD_DIR SECONDS_EACH
set -eu

cd "$(dirname "$0")/.."
build_dir=$1
seconds=$2
count=0
for program in "$build_dir"/tests/fuzz_*; do
    if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi
    name=${program##*/fuzz_}
    corpus=$build_dir/corpus/$name
    mkdir -p "$corpus"
    set -- "$corpus"
    if [ -d "tests/data/fuzz/$name" ]; then set -- "$@" "tests/data/fuzz/$name"; fi
    printf '\n== fuzz: %s, %s s\n' "$name" "$seconds"
    "$program" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 \
        -artifact_prefix="$build_dir/crash-$name-" "$@"
    count=$((count + 1))
done
[ "$count" -gt 0 ] || {
    echo "fuzz: $build_dir holds no fuzz program" >&2
    exit 1
}
echo "fuzz: $count programs, no crash"
