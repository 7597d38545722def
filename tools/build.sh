#!/bin/sh
# SPDX-License-Identifier: MIT
# Configure a preset and build it, or the named targets of it.
#
# usage: tools/build.sh PRESET [TARGET]...
set -eu

cd "$(dirname "$0")/.."
preset=$1
shift

# Both are CMake's own variables, read only where a tree is configured for the first time.
if command -v ninja >/dev/null 2>&1; then
    CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
    export CMAKE_GENERATOR
fi
if command -v ccache >/dev/null 2>&1; then
    CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER:-ccache}
    CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER:-ccache}
    export CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
fi

# The tests need cmocka, which a user who only wants the program does not have.
testing=OFF
if [ "$preset" != package ] && pkg-config --exists cmocka 2>/dev/null; then testing=ON; fi

cmake --preset "$preset" --log-level=WARNING -DBUILD_TESTING="$testing" >/dev/null
if [ $# -gt 0 ]; then set -- --target "$@"; fi
cmake --build "build/$preset" --parallel "${JOBS:-$(nproc)}" "$@"
