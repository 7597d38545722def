#!/bin/sh
# SPDX-License-Identifier: MIT
# The Debian package, in fresh roots of Debian: installed, used by a normal user, removed (tests/fresh/package*.sh).
#
# usage: tools/try-package.sh [DEB [SUITE]...]     as root; build/package's own; bookworm and trixie
set -eu

cd "$(dirname "$0")/.."
sh tools/setup.sh demo
sh tools/build.sh release burthen
# shellcheck source=tools/pins.sh
. tools/pins.sh
deb=${1:-$(ls build/package/burthen_*.deb)}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- bookworm trixie
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The text that the build of the tree writes is what the package must write.
build/release/burthen run "build/models/$SMOLLM2_MODEL" -p "Once upon a time" -n 24 --greedy --ram-budget 96M -c 512 \
    --quiet >"$scratch/expected"
# A library under a name that ggml's search takes for a backend, and that leaves a trace when it is loaded.
printf '%s\n' '#include <fcntl.h>' '#include <unistd.h>' \
    '__attribute__((constructor)) static void leave_a_trace(void) { (void)close(open("/tmp/loaded", O_CREAT, 0600)); }' \
    >"$scratch/trace.c"
cc -shared -fPIC -o "$scratch/libggml-cpu-trace.so" "$scratch/trace.c"
for suite; do
    sh tools/fresh-root.sh "$suite" tests/fresh/package.sh tests/fresh/package_user.sh "$deb" \
        "build/models/$SMOLLM2_MODEL" "$scratch/expected" "$scratch/libggml-cpu-trace.so"
done
