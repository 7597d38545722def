#!/bin/sh
# SPDX-License-Identifier: MIT
# Line coverage of the build of preset `coverage`: run the tests that need neither a model nor a quiet machine, then print
# a table of the folders of src/, and below it the files that are under the wish. Fails where one of the folders that the
# promise rests on (they are pure, or near it) has less than 95 % of its lines covered.
#
# usage: tools/coverage.sh [CTEST_OPTION]...     other tests: -L 'unit|property|fault|fuzz|integration' takes an hour, and
#                                                measures device, engine and the program's own files too
#
# What a child process runs is not counted where it leaves by _exit or is killed: figures there are too low.
set -eu

cd "$(dirname "$0")/.."
# The tests of integration that bear the label fault run models.
[ $# -gt 0 ] || set -- -L 'unit|property|fault|fuzz' -E '^integration\.'
wish=95
held="base probe model plan memory"
build=build/coverage
table=$build/coverage.csv

command -v gcovr >/dev/null 2>&1 || {
    echo "coverage: gcovr is missing (make coverage installs it)" >&2
    exit 1
}
# Counts of earlier runs would be added to this one's.
find "$build" -name '*.gcda' -delete
failed=0
ctest --test-dir "$build" "$@" --parallel "${JOBS:-$(nproc)}" --output-on-failure --no-tests=error || failed=1
gcovr --root . --filter src/ --object-directory "$build" -j "${JOBS:-$(nproc)}" --csv --output "$table"

# The columns are found by their names: releases of gcovr differ in what else they print.
awk -F , -v wish="$wish" -v held="$held" -v failed="$failed" '
    NR == 1 {
        for (i = 1; i <= NF; i++) column[$i] = i
        next
    }
    {
        file = $column["filename"]
        # a header of a folder is found through the links that cmake/layers.cmake makes, and by tests under its own name
        sub(/^build\/[a-z]+\/layers\/[a-z]+\//, "src/", file)
        if (!(file in lines)) files[++n_files] = file
        if ($column["line_total"] > lines[file]) lines[file] = $column["line_total"]
        if ($column["line_covered"] > covered[file]) covered[file] = $column["line_covered"]
    }
    END {
        if (failed) print "\ncoverage: a test failed, see above: the figures are too low"
        for (i = 1; i <= n_files; i++) {
            file = files[i]
            split(file, part, "/")
            folder = part[2]
            if (!(folder in total)) order[++n_folders] = folder
            total[folder] += lines[file]
            done[folder] += covered[file]
        }
        for (i = 1; i <= n_files; i++) {
            file = files[i]
            split(file, part, "/")
            if (2 * done[part[2]] < total[part[2]] || 100 * covered[file] >= wish * lines[file]) continue
            under[++n_under] = sprintf("  %5.1f %%  %5d of %5d  %s", 100 * covered[file] / lines[file],
                                       lines[file] - covered[file], lines[file], file)
        }
        split(held, name, " ")
        for (i in name) is_held[name[i]] = 1
        printf "\n%-10s %7s %9s %8s\n", "folder", "lines", "covered", "share"
        for (i = 1; i <= n_folders; i++) {
            folder = order[i]
            share = total[folder] ? 100 * done[folder] / total[folder] : 100
            note = ""
            if (folder in is_held) {
                n_held++
                note = share < wish ? "  under " wish " %" : "  (wish: " wish " %)"
                if (share < wish) failed = 1
            }
            printf "%-10s %7d %9d %6.1f %%%s\n", folder, total[folder], done[folder], share, note
        }
        if (n_under) printf "\nFiles under %d %% (lines not covered, of all):\n", wish
        for (i = 1; i <= n_under; i++) print under[i]
        if (n_held != split(held, name, " ")) {
            print "coverage: a folder of the wish was not measured"
            failed = 1
        }
        exit failed
    }' "$table"
