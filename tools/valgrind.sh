#!/bin/sh
# SPDX-License-Identifier: MIT
# Memcheck on the unit and property tests of the parts that are pure or near it, in the build of preset `dev`: values that
# nobody set, which the sanitizers of `make check` do not see. Any error, and any block that nothing points at, fails.
#
# usage: tools/valgrind.sh [REGEX]     the programs whose names match: test_unit_gguf, or test_fuzz_, which takes hours
#
# Left out: threads and rings of requests (store; the other sanitizers have those), mappings (memcheck refuses other sizes
# than a kernel does, and does not know mlock2), tests of time and of many processes at once, and the router's but those
# that compute only: the others wait for servers by the clock.
set -eu

cd "$(dirname "$0")/.."
only=${1:-^test_(unit|property)_}
programs=build/dev/tests
reports=build/dev/valgrind
# Memcheck is 20 to 50 times slower: a test of `make check` may take 300 s at most, and of these none takes 30. Tests over
# random inputs try one of twenty (tests/support/rounds.h).
limit_s=1200
BT_ONE_OF=20
export BT_ONE_OF
left_out='^test_(unit_(account|bench|disk|drop_in_bench|experts|mappings|old_kernel|os|placing|pool|reader|reader_queue|reservations|ring|store_file)|property_(ring|sharing))$'
router='^test_(unit|property|fuzz)_router_'
router_pure='^test_unit_router_(activity|call_body|ceiling|config|config_keys|events|filter|flow|json_tree|log_ring|macros|metrics|need|policy|usage|words|yaml)$|^test_fuzz_router_config$|^test_property_router_'

command -v valgrind >/dev/null 2>&1 || {
    echo "valgrind: it is missing (make valgrind installs it)" >&2
    exit 1
}
rm -rf "$reports"
mkdir -p "$reports"

# Of one program: its name and verdict in a line; what valgrind and the test said stays in a file, printed on failure.
# shellcheck disable=SC2016 # the program of xargs expands it
one='
    name=$1
    report=$2/$name
    begin=$(date +%s)
    rc=0
    timeout "$3" valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect --track-origins=yes --num-callers=30 "$4/$name" >"$report" 2>&1 || rc=$?
    case $rc in
    0 | 77) verdict=clean ;;
    124) verdict="over $3 s" ;;
    *) verdict="FAILED ($rc)" ;;
    esac
    printf "%-40s %4d s  %s\n" "$name" "$(($(date +%s) - begin))" "$verdict"
    [ "$verdict" = clean ] || { cat "$report"; exit 1; }
'
chosen=$(find "$programs" -maxdepth 1 -type f -perm -u+x -name 'test_*' -printf '%f\n' | sort |
    grep -E '^test_(unit|property|fuzz)_' | grep -Ev "$left_out" |
    { while read -r name; do
        if ! printf '%s' "$name" | grep -Eq "$router" || printf '%s' "$name" | grep -Eq "$router_pure"; then
            echo "$name"
        fi
    done; } | grep -E "$only" || true)
[ -n "$chosen" ] || {
    echo "valgrind: no program of that name in $programs" >&2
    exit 1
}
if ! printf '%s\n' "$chosen" | xargs -P "${JOBS:-$(nproc)}" -I NAME sh -c "$one" valgrind NAME "$reports" "$limit_s" "$programs"; then
    echo "valgrind: errors above; each program's report is in $reports" >&2
    exit 1
fi
echo "valgrind: $(printf '%s\n' "$chosen" | wc -l) programs, no error"
