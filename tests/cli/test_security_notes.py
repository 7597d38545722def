# SPDX-License-Identifier: MIT
"""SECURITY.md names a test for each claim: each of them is there."""

import re

import harness
import named_tests

checks = harness.Checks()
text = (harness.SOURCE / "SECURITY.md").read_text()
named = sorted(set(re.findall(r"`((?:unit|property|fault|fuzz|cli|integration|browser|truth)\.[a-z_0-9]+)`", text)))
checks.check(len(named) > 20, f"{named}")
for name in named:
    checks.check(named_tests.exists(name), f"{name} is no test")
for case in re.findall(r"\(([a-z-]+)\)", text):
    if "-" in case:
        checks.check((harness.SOURCE / "tests/cli/cases" / case).is_dir(), f"{case} is no case")
checks.end()
