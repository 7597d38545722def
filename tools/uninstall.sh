#!/bin/sh
# SPDX-License-Identifier: MIT
# Remove what the last `make install` of this tree put under DESTDIR and PREFIX, and nothing else: its files, and those
# folders that it made and that nobody has put anything into since.
#
# usage: tools/uninstall.sh BUILD DESTDIR PREFIX
set -eu

manifest=$1/install_manifest.txt # of CMake: a path a line, without DESTDIR, and no newline after the last
folders=$1/install_folders.txt   # of tools/install.sh: where it was, then each folder that was not there before
destdir=${2:+$(realpath -ms "$2")} # absolute: folders are gone up to the root
destdir=${destdir%/}
prefix=$(realpath -ms "/$3")
if [ ! -f "$manifest" ] || [ ! -f "$folders" ]; then
    echo "uninstall: nothing was installed from this tree ($manifest, $folders)" >&2
    exit 1
fi
if [ "$(head -n 1 "$folders")" != "$destdir$prefix" ]; then
    echo "uninstall: the last install went to $(head -n 1 "$folders"): name its DESTDIR and PREFIX" >&2
    exit 1
fi
while IFS= read -r file || [ -n "$file" ]; do rm -f "$destdir$file"; done <"$manifest"
# The deepest first. Who has put something there since keeps the folder.
tail -n +2 "$folders" | sort -r | while IFS= read -r folder; do
    if [ -d "$folder" ]; then rmdir "$folder" 2>/dev/null || true; fi
done
rm -f "$manifest" "$folders"
