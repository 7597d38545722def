#!/bin/sh
# SPDX-License-Identifier: MIT
# Remove what the last `make install` of this tree put under DESTDIR and PREFIX, and nothing else.
#
# usage: tools/uninstall.sh MANIFEST DESTDIR PREFIX
set -eu

manifest=$1
destdir=$2
prefix=${3%/}
[ -f "$manifest" ] || {
    echo "uninstall: nothing was installed from this tree ($manifest is missing)" >&2
    exit 1
}
# CMake writes one path a line, without DESTDIR, and no newline after the last.
while IFS= read -r file || [ -n "$file" ]; do
    case $file in
    "$prefix"/*) ;;
    *)
        echo "uninstall: the last install went elsewhere ($file): name its PREFIX" >&2
        exit 1
        ;;
    esac
done <"$manifest"
while IFS= read -r file || [ -n "$file" ]; do rm -f "$destdir$file"; done <"$manifest"
# Folders of our own; shared ones such as bin stay.
for folder in lib/burthen share/burthen include/burthen share/doc/burthen; do
    if [ -d "$destdir$prefix/$folder" ]; then rmdir "$destdir$prefix/$folder" 2>/dev/null || true; fi
done
