#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every rule of docs/design.md names its tests in docs/rules.md, and every test that is named there, or in
docs/user-cases.md, exists. See support/named_tests.py for how."""

import re

import harness
import named_tests

RULE = re.compile(r"(?:^|(?<=\. ))([CPMS]\d{1,2})\. ", re.M)
N_CASES = 61
checks = harness.Checks()


def rows(page):
    """The cells of each row of its tables, heads left out."""
    for line in (harness.SOURCE / "docs" / page).read_text().splitlines():
        if line.startswith("| ") and not line.startswith(("| rule ", "| cases ", "| case ")):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def names_of(cell):
    return [name for name in re.findall(r"`([^`]+)`", cell) if re.fullmatch(r"[a-z]+\.[a-z0-9_]+|[a-z]+/test_\w+\.(c|py)::\w+", name)]


wanted = set(RULE.findall((harness.SOURCE / "docs/design.md").read_text()))
checks.check({"C7", "P10", "M9", "S6"} <= wanted and len(wanted) >= 32, f"rules of design.md: {sorted(wanted)}")
found = {}
for first, _, last in (row for row in rows("rules.md") if len(row) == 3):
    for name in names_of(last):
        checks.check(named_tests.exists(name), f"rules.md, {first}: there is no test {name}")
    checks.check(names_of(last), f"rules.md: {first} has no test")
    found.setdefault(first, []).extend(names_of(last))
for rule in sorted(wanted):
    checks.check(found.get(rule), f"{rule} of design.md is not in rules.md")
for rule in found:
    checks.check(rule in wanted or not re.fullmatch(r"[CPMS]\d{1,2}", rule), f"rules.md has {rule}, design.md has not")

numbers = []
for row in rows("user-cases.md"):
    if not row[0].isdigit():
        continue
    numbers.append(int(row[0]))
    answer = row[-1]
    for name in names_of(answer):
        checks.check(named_tests.exists(name), f"user-cases.md, {row[0]}: there is no test {name}")
    checks.check(names_of(answer) or answer.startswith("not answered"), f"user-cases.md: {row[0]} has neither a test nor a reason")
checks.check(numbers == list(range(1, N_CASES + 1)), f"user-cases.md has {numbers}")

# the test itself
checks.check(not named_tests.exists("unit.nothing") and not named_tests.exists("unit/test_plan.c::nothing") and named_tests.exists("cli.rules"), "anything is a test")
checks.end()
