#!/bin/sh
# SPDX-License-Identifier: MIT
# Run the libFuzzer programs of a fuzz build, each for a while, several at a time, each on a corpus that grows under the
# build folder and starts from tests/data/fuzz/NAME. A table ends it: executions, edges and inputs of each, and what it
# died of. 1 when one died.
#
# usage: tools/fuzz.sh BUILD_DIR SECONDS_EACH [NAME]...
#        tools/fuzz.sh --merge BUILD_DIR [NAME]...
#
# --merge puts into tests/data/fuzz/NAME, as found-HASH, some of what was found: inputs that reach together what all of
# them reach, at most 32, as long as the folder stays under 48 KiB. Look at what is added before it is committed. JOBS=N: programs at a time.
set -eu

cd "$(dirname "$0")/.."
usage() {
    sed -n '/^# usage/,/^#        .*--merge/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

# How large the corpus of one target may get, how many samples of it are found ones, and how long one sample is
# (tests/support/fuzz.h).
folder_max=49152
found_max=32
sample_max=16384

# names NAME...: those asked for, or all that are built.
names() {
    if [ $# -gt 0 ]; then
        printf '%s\n' "$@"
        return
    fi
    for program in "$build_dir"/tests/fuzz_*; do
        if [ -f "$program" ] && [ -x "$program" ]; then echo "${program##*/fuzz_}"; fi
    done
}

known() {
    [ -x "$build_dir/tests/fuzz_$1" ] || {
        echo "fuzz: $build_dir holds no program fuzz_$1" >&2
        exit 1
    }
}

# Freed memory that AddressSanitizer keeps from being used again: its 256 MiB are mostly new pages, which take longer
# than a reader does. A wait of 10 s is a template's bound (engine/template.h), longer where the machine is busy.
export ASAN_OPTIONS="${ASAN_OPTIONS:-quarantine_size_mb=16}"

# run_one NAME: in the background of run_all. Nothing is said but into its log.
run_one() {
    name=$1
    corpus=$build_dir/corpus/$name
    mkdir -p "$corpus" "$build_dir/died"
    "$build_dir/tests/test_fuzz_$name" --dictionary >"$build_dir/corpus/$name.dict"
    set -- -max_total_time="$seconds" -max_len=$sample_max -rss_limit_mb=2048 -timeout=60 -print_final_stats=1 \
        -artifact_prefix="$build_dir/died/$name-" "$corpus"
    if [ -s "$build_dir/corpus/$name.dict" ]; then set -- -dict="$build_dir/corpus/$name.dict" "$@"; fi
    if [ -d "tests/data/fuzz/$name" ]; then set -- "$@" "tests/data/fuzz/$name"; fi
    status=0
    "$build_dir/tests/fuzz_$name" "$@" >"$build_dir/corpus/$name.log" 2>&1 || status=$?
    echo "$status" >"$build_dir/corpus/$name.status"
}

# A line of the table; false: the program died.
row() {
    log=$build_dir/corpus/$1.log
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    last=$(grep -a 'cov: ' "$log" | tail -n 1)
    edges=$(echo "$last" | sed -n 's/.* cov: \([0-9]*\).*/\1/p')
    inputs=$(echo "$last" | sed -n 's/.* corp: \([0-9]*\).*/\1/p')
    status=$(cat "$build_dir/corpus/$1.status")
    if [ "$status" = 0 ]; then end=ok; else
        end=$(grep -a -o "$build_dir/died/[^ ]*" "$log" | tail -n 1)
        end=${end:-"died ($status): $log"}
    fi
    printf '%-16s %12s %8s %8s  %s\n' "$1" "${runs:--}" "${edges:--}" "${inputs:--}" "$end"
    [ "$status" = 0 ]
}

run_all() {
    jobs=${JOBS:-$(nproc)}
    list=$(names "$@")
    running=0
    # shellcheck disable=SC2086 # a list of names
    for name in $list; do
        known "$name"
        rm -f "$build_dir/corpus/$name.status"
        run_one "$name" &
        running=$((running + 1))
        if [ "$running" -ge "$jobs" ]; then
            wait
            running=0
        fi
    done
    wait
    printf '\n%-16s %12s %8s %8s  %s\n' target executions edges inputs end
    count=0
    died=0
    for name in $list; do
        row "$name" || died=$((died + 1))
        count=$((count + 1))
    done
    [ "$count" -gt 0 ] || {
        echo "fuzz: $build_dir holds no fuzz program" >&2
        exit 1
    }
    echo "fuzz: $count programs, $seconds s each, $died died"
    [ "$died" = 0 ]
}

# merge_one NAME: libFuzzer finds a small set of inputs that reaches all that is reached; they are taken while there is
# room.
merge_one() {
    name=$1
    into=tests/data/fuzz/$name
    aside=$build_dir/corpus/$name.merged
    rm -rf "$aside"
    mkdir -p "$aside" "$into"
    cp "$into"/* "$aside"/ 2>/dev/null || true
    "$build_dir/tests/fuzz_$name" -set_cover_merge=1 -max_len=$sample_max -rss_limit_mb=2048 "$aside" "$build_dir/corpus/$name" \
        >"$build_dir/corpus/$name.merge.log" 2>&1
    added=0
    # Of more than there is room for every so-manieth, by size: short ones alone are all refused early.
    step=$(($(find "$aside" -type f | wc -l) / found_max + 1))
    find "$aside" -type f -printf '%s %f\n' | sort -n | awk -v step="$step" 'NR % step == 0' >"$aside.list"
    while read -r size found; do
        if [ -e "$into/$found" ] || [ -e "$into/found-$(echo "$found" | cut -c 1-12)" ]; then continue; fi
        [ "$(find "$into" -name 'found-*' | wc -l)" -lt $found_max ] || break
        held=$(cat "$into"/* | wc -c)
        [ $((held + size)) -le $folder_max ] || break
        cp "$aside/$found" "$into/found-$(echo "$found" | cut -c 1-12)"
        added=$((added + 1))
    done <"$aside.list"
    rm -rf "$aside" "$aside.list"
    echo "fuzz: $name: $added samples added, $(cat "$into"/* | wc -c) bytes"
}

case ${1:-} in
--merge)
    [ $# -ge 2 ] || usage
    build_dir=$2
    shift 2
    for name in $(names "$@"); do
        known "$name"
        merge_one "$name"
    done
    ;;
-* | '') usage ;;
*)
    [ $# -ge 2 ] || usage
    build_dir=$1
    seconds=$2
    shift 2
    run_all "$@"
    ;;
esac
