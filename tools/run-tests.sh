#!/bin/sh
# SPDX-License-Identifier: MIT
# run-tests.sh BUILD: every test of `make check` in a release build. Tests of whole programs (integration, browser) run
# beside each other on a machine that does other things too: one or two of those that fail are run once more, alone, and
# named. What fails alone is broken; what does not is a mistake in the test or a race, to be found, but not in what was
# just changed. All other labels get no second try, and nor do three.
set -eu

BUILD=$1
JOBS=${JOBS:-$(nproc)}
FAILED="$BUILD/Testing/Temporary/LastTestsFailed.log" # a line a test: NUMBER:NAME
MOST=2

rm -f "$FAILED"
ctest --test-dir "$BUILD" -L check --parallel "$JOBS" --output-on-failure --no-tests=error && exit 0
[ -s "$FAILED" ] || exit 1
[ "$(wc -l <"$FAILED")" -le $MOST ] || exit 1
! grep -Eqv '^[0-9]+:(integration|browser)\.' "$FAILED" || exit 1

printf '\n== once more, alone, since it failed beside others:\n'
cut -d: -f2 "$FAILED"
ctest --test-dir "$BUILD" --rerun-failed --parallel 1 --output-on-failure --no-tests=error
