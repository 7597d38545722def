#!/bin/sh
# SPDX-License-Identifier: MIT
# Install a build, and write down for tools/uninstall.sh what that made: CMake the files, this script the folders.
#
# usage: tools/install.sh BUILD DESTDIR PREFIX
set -eu

build=$1
destdir=${2:+$(realpath -ms "$2")} # absolute: folders are gone up to the root
destdir=${destdir%/}
prefix=$(realpath -ms "/$3") # without a last slash, without ".."
case $3 in
/*) ;;
*)
    echo "install: PREFIX must be an absolute path, not $3" >&2
    exit 1
    ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# parents: of each path of the input, every folder above it, once.
parents() {
    while IFS= read -r path || [ -n "$path" ]; do
        while [ "$path" != "${path%/*}" ] && path=${path%/*} && [ -n "$path" ]; do printf '%s\n' "$path"; done
    done | sort -u
}

# There before: what is below the prefix as deep as anything of ours goes, and what the prefix is below.
{
    find "$destdir$prefix" -maxdepth 5 -type d 2>/dev/null || true
    printf '%s\n' "$destdir$prefix/x" | parents | while IFS= read -r folder; do
        if [ -d "$folder" ]; then printf '%s\n' "$folder"; fi
    done
} | sort -u >"$scratch/before"

DESTDIR="$destdir" cmake --install "$build" --prefix "$prefix"

# The second install into the same place makes no folder: what the first one made stays written down.
folders=$build/install_folders.txt
: >"$scratch/known"
if [ -f "$folders" ] && [ "$(head -n 1 "$folders")" = "$destdir$prefix" ]; then
    tail -n +2 "$folders" >"$scratch/known"
fi
while IFS= read -r file || [ -n "$file" ]; do printf '%s\n' "$destdir$file"; done <"$build/install_manifest.txt" |
    parents | comm -13 "$scratch/before" - | sort -u - "$scratch/known" >"$scratch/made"
{
    printf '%s\n' "$destdir$prefix"
    cat "$scratch/made"
} >"$folders"
