# SPDX-License-Identifier: MIT
"""Lines of the log, as tests look at them.

objects(checks, text, what)       each line as an object that docs/schema/log.schema.json allows
check_clean(checks, text, what)   nothing in it drives a terminal, ends a line or shows text in another order"""

import json

import schema


def objects(checks, text, what):
    found = []
    for line in text.removesuffix("\n").split("\n") if text else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            checks.check(False, f"{what}: no JSON: {line!r}")
            continue
        wrong = schema.check("log", found[-1])
        checks.check(not wrong, f"{what}: {wrong}: {line}")
    return found


def check_clean(checks, text, what):
    bad = [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c in "\u2028\u202e"]
    checks.check(not bad, f"{what}: {bad[:5]}")
