#!/bin/sh
# SPDX-License-Identifier: MIT
# The README's first command in fresh Debian roots, by a new user, with the tree as it is committed.
#
# usage: tools/try-readme.sh [SUITE]...     as root; bookworm and trixie
set -eu

cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- bookworm trixie
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
git archive -o "$scratch/tree.tar" HEAD
for suite; do
    sh tools/fresh-root.sh "$suite" tests/fresh/readme.sh "$scratch/tree.tar"
done
