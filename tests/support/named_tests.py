# SPDX-License-Identifier: MIT
"""Tests that a page names.

exists("unit.gguf")                       is there such a test of ctest: tests/unit/test_gguf.c or .py, tests/fuzz/fuzz_NAME.c
exists("unit/test_gguf.c::user_case_57")  is there such a function of that file below tests; in a C file it must also be
                                          run, that is, stand there a second time"""

import re

import harness

TESTS = harness.SOURCE / "tests"


def exists(name):
    if "::" not in name:
        label, stem = name.split(".", 1)
        files = [f"test_{stem}.c", f"test_{stem}.py"] + ([f"fuzz_{stem}.c"] if label == "fuzz" else [])
        return any((TESTS / label / file).exists() for file in files)
    file, function = name.split("::")
    path = TESTS / file
    if not path.exists():
        return False
    text = path.read_text()
    definition = rf"^def {function}\(" if path.suffix == ".py" else rf"\bvoid {function}\(void \*\*"
    return re.search(definition, text, re.M) is not None and len(re.findall(rf"\b{function}\b", text)) > 1
