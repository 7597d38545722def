#!/bin/sh
# Build llama.cpp once: the libraries that burthen links, and the tools that tests and benches compare with.
#
# usage: build-llama.sh SOURCE_DIR BUILD_DIR libs|server|all     libs is a third of the work, and all that burthen needs
#
# OpenMP is off: with it off, ggml computes on a thread pool that burthen owns, and the reader is not starved
# by spinning workers (docs/design.md M1). The web interface is not built: it would be downloaded. Of the
# examples llama-embedding is. The libraries find
# each other beside themselves (run path $ORIGIN), so that `make install` can copy them.
set -eu

source_dir=$1
build_dir=$2
case ${3:-all} in
libs) targets="llama ggml" ;;
server) targets="llama ggml llama-server" ;; # what a package holds
all)
    targets="llama ggml llama-server llama-cli llama-completion llama-embedding llama-perplexity llama-bench
             llama-fit-params llama-quantize llama-gguf-split"
    ;;
*)
    echo "usage: build-llama.sh SOURCE_DIR BUILD_DIR libs|server|all" >&2
    exit 2
    ;;
esac

launcher=
if command -v ccache >/dev/null 2>&1; then
    # Paths are made relative to the checkout, so that a second clone finds the first one's results.
    CCACHE_BASEDIR=$(pwd)
    CCACHE_NOHASHDIR=1
    export CCACHE_BASEDIR CCACHE_NOHASHDIR
    launcher="-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache"
fi
generator=
if command -v ninja >/dev/null 2>&1; then generator="-G Ninja"; fi

# shellcheck disable=SC2016,SC2086 # $ORIGIN is for the loader; launcher, generator and LLAMA_CMAKE_ARGS are lists
cmake -S "$source_dir" -B "$build_dir" $generator $launcher \
    -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON '-DCMAKE_INSTALL_RPATH=$ORIGIN' \
    -DGGML_CCACHE=OFF \
    -DGGML_NATIVE="${GGML_NATIVE:-ON}" \
    -DGGML_OPENMP=OFF \
    -DGGML_RPC=ON \
    -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=ON \
    -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_TOOLS=ON \
    -DLLAMA_BUILD_SERVER=ON \
    -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_OPENSSL=OFF \
    ${LLAMA_CMAKE_ARGS:-}
# shellcheck disable=SC2086 # a list
cmake --build "$build_dir" --parallel "${JOBS:-$(nproc)}" --target $targets
