#!/bin/sh
# SPDX-License-Identifier: MIT
# What `make check` and CI run: set-up, the static checks, then the tests, cheap before dear. The first stage that
# fails ends the run, so that its own lines are the last; on success those are ctest's.
set -eu

cd "$(dirname "$0")/.."
stage() { printf '\n== %s\n' "$*"; }

stage "set-up"
sh tools/setup.sh check

stage "format and scripts"
sh tools/check-format.sh
python3 tools/check-errors.py
if command -v shellcheck >/dev/null 2>&1; then shellcheck --severity=warning tools/*.sh; fi

stage "build: release"
sh tools/build.sh release

stage "lint"
sh tools/lint.sh build/release

stage "build: asan (address and undefined-behaviour sanitizers, fault injection)"
sh tools/build.sh asan

stage "tests under sanitizers"
ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build/asan -L 'unit|property|fault|fuzz' --parallel "${JOBS:-$(nproc)}" \
    --output-on-failure --no-tests=error

stage "tests of the release build"
sh tools/run-tests.sh build/release
