#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hold docs/errors.md to the source: every code that bt_fail, bt_fail_sys, a refusal or an answer of the router gives
stands there, and no other."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The code is the first string of the call: status, error and errno before it are names and numbers.
CALL = re.compile(r'\bbt_fail(?:_sys)?\s*\([^;"]*?"([a-z0-9_.]+)"')
# Of an answer: all words before its sentence, since it may be one of two.
ANSWER = re.compile(r'\b(?:bt_reply_error|bt_reply_refuse|reply_error|bt_call_answer_error|bt_model_refuse)\s*\(([^;]*);')
ENDS = re.compile(r'\bfailure_names\[\] = \{([^;]*);')
REFUSAL = re.compile(r'\b(?:refusal|ret)(?:\.|->)code,\s*sizeof[^,]*,\s*"%s",([^;]*);|\brefusal(?:\.|->)code,[^;]*?"([a-z_]+)"\s*\)')


def codes_of_source():
    found = {}
    for path in sorted((ROOT / "src").glob("*/*.[ch]")):
        text = path.read_text()
        where = path.relative_to(ROOT)
        for match in CALL.finditer(text):
            found.setdefault(match[1], where)
        for match in [*ANSWER.finditer(text), *ENDS.finditer(text)]:
            for code in re.findall(r'"([^"]*)"', match[1].replace("NULL,", "")):
                if not re.fullmatch(r"[a-z_]+", code):
                    break
                found.setdefault(code, where)
        for match in REFUSAL.finditer(text):
            for code in re.findall(r'"([a-z_]+)"', match[1] or "") or [match[2]]:
                if code:
                    found.setdefault(code, where)
    return found


def codes_of_document():
    found = set()
    for line in (ROOT / "docs" / "errors.md").read_text().splitlines():
        if line.startswith("| `") and "E_" not in line.split("|")[1]:
            found.update(re.findall(r"`([a-z0-9_.]+)`", line.split("|")[1]))
    return found


def main():
    source, document = codes_of_source(), codes_of_document()
    for code in sorted(source.keys() - document):
        print(f"check-errors: {code} ({source[code]}) is not in docs/errors.md")
    for code in sorted(document - source.keys()):
        print(f"check-errors: docs/errors.md has {code}, which nothing gives")
    sys.exit(source.keys() != document)


if __name__ == "__main__":
    main()
