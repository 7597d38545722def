#!/bin/sh
# SPDX-License-Identifier: MIT
# Run the tests of the coverage build and print line coverage of each file of src/.
set -eu

cd "$(dirname "$0")/.."
command -v gcovr >/dev/null 2>&1 || {
    echo "coverage: gcovr is missing: sudo apt-get install gcovr" >&2
    exit 1
}
# Counts of earlier runs would be added to this one's.
find build/coverage -name '*.gcda' -delete
ctest --test-dir build/coverage -L 'unit|property|fault|fuzz|integration' --parallel "${JOBS:-$(nproc)}" \
    --output-on-failure --no-tests=error
gcovr --root . --filter src/ --object-directory build/coverage --print-summary
