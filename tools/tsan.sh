#!/bin/sh
# SPDX-License-Identifier: MIT
# Tests under the thread sanitizer, in the build of preset `tsan`: what threads share (the account, pools, the reader and
# its twin, rings and slots of experts that read ahead, the heap's counters, the device under one engine), and the router
# as a whole, with stub servers: its one thread, the copies of it, and what libmicrohttpd and libcurl start.
#
# usage: tools/tsan.sh [REGEX]     of ctest names, in place of the list below
#
# Each process writes what it finds to build/tsan/races; a file there fails the run, whatever the test made of its exit
# status. llama.cpp is not instrumented: tests/support/tsan.supp says what is not asked for, and why.
set -eu

cd "$(dirname "$0")/.."
build=build/tsan
races=$(pwd)/$build/races
units='unit\.(account|disk|experts|heap|ledger|log|log_[a-z]+|memo|pool|reader|reader_queue|ring|router_[a-z_]+|store_file)'
properties='property\.(ring|router_[a-z_]+|sharing)'
device='integration\.(allocator|buffers|conversation|plugin|readings|replace|reserve|rpc|sequences|worker_device)'
router='integration\.serve_(admission|attacks|cancel|comments|failures|logs|models|pages|reload|storm|turns)'
tests=${1:-"^($units|$properties|$device|$router)\$"}

# The sanitizer wants its shadow at fixed addresses. Where a kernel spreads mappings over more than 28 bits, the runtimes
# of gcc 12 to 14 find them taken ("unexpected memory mapping"): then without address space randomisation, where the
# container allows it.
run="setarch -R"
if ! $run true 2>/dev/null; then
    run=
    bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)
    [ "$bits" -le 28 ] || {
        echo "tsan: address space randomisation cannot be switched off here: sysctl vm.mmap_rnd_bits=28 (it is $bits)" >&2
        exit 1
    }
fi

# A storm (tests/integration/test_serve_storm.py) wants a number of answers in its seconds: three times as many here.
BT_STUB_STORM_S=${BT_STUB_STORM_S:-36}
export BT_STUB_STORM_S
rm -rf "$races"
mkdir -p "$races"
failed=0
# One at a time: ggml's threads and the router's patience both suffer from a full machine, and each test is slower here.
# shellcheck disable=SC2086 # run is a list
TSAN_OPTIONS="log_path=$races/race suppressions=$(pwd)/tests/support/tsan.supp second_deadlock_stack=1 history_size=4" \
    $run ctest --test-dir "$build" -R "$tests" --output-on-failure --no-tests=error || failed=1
if [ -n "$(ls "$races")" ]; then
    cat "$races"/* >&2
    echo "tsan: $(ls "$races" | wc -l) processes had something to report, above and in $races" >&2
    exit 1
fi
[ "$failed" = 0 ] || exit 1
echo "tsan: no race"
