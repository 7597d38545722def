#!/bin/sh
# SPDX-License-Identifier: MIT
# Build the Debian package: build/package/burthen_VERSION_ARCH.deb (docs/packaging.md).
set -eu

cd "$(dirname "$0")/.."
if [ -n "${LLAMA_CPP_DIR:-}" ]; then
    echo "package: built from the pinned llama.cpp alone; LLAMA_CPP_DIR is set" >&2
    exit 1
fi
sh tools/setup.sh package
# Nothing of the builder's folders in what is built, as in llama.cpp (tools/setup.sh).
CFLAGS="-ffile-prefix-map=$PWD/= ${CFLAGS:-}"
CXXFLAGS="-ffile-prefix-map=$PWD/= ${CXXFLAGS:-}"
export CFLAGS CXXFLAGS
sh tools/build.sh package
umask 022
rm -f build/package/burthen_*.deb
(cd build/package && cpack -G DEB >cpack.log 2>&1) || {
    cat build/package/cpack.log >&2
    exit 1
}
ls -l build/package/burthen_*.deb
