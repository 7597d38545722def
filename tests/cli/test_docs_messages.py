#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What docs/troubleshooting.md quotes is what the program can print.

A line `> ...` of the page holds messages in backticks; an ellipsis stands for what differs. Each is looked for in the text
literals of src: adjacent literals are one, a format (%s, %" PRIu32 ") is an ellipsis too. Of every message all pieces between
ellipses must stand in one literal, in order."""

import re

import harness

PAGE = harness.SOURCE / "docs/troubleshooting.md"
FORMAT = re.compile(r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j)?[a-zA-Z]")
JOINT = re.compile(r'(?<!\\)"\s*(?:PRI[a-zA-Z0-9]+\s*)?"')
checks = harness.Checks()


def literals(path):
    """All text literals of a C file, as a person would read them."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
    text = re.sub(r'%([-0-9.]*)"\s*PRI([a-zA-Z0-9]+)', r'%\1u"', text)
    text = JOINT.sub("", re.sub(r"\\\n", "", text))
    for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
        yield FORMAT.sub("\x00", literal.replace('\\"', '"').replace("\\n", "\n"))


def stands_in(message, literal):
    at = 0
    for piece in filter(None, (piece.strip() for piece in message.split("…"))):
        at = literal.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def quoted(page):
    for line in page.read_text().splitlines():
        if line.startswith("> "):
            yield from re.findall(r"`([^`]+)`", line)


known = [literal for path in sorted(harness.SOURCE.glob("src/*/*.c")) for literal in literals(path)]
messages = list(quoted(PAGE))
checks.check(len(messages) > 30, f"only {len(messages)} messages are quoted")
for message in messages:
    pieces = [piece for piece in message.split("…") if len(piece.strip()) >= 8]
    checks.check(pieces or len(message) < 12, f"{message!r} says too little to be looked for")
    checks.check(any(stands_in(message, literal) for literal in known), f"nothing prints {message!r}")

# the test itself: a message that nobody prints is found
checks.check(not any(stands_in("the moon is …, not cheese", literal) for literal in known), "everything is found")
checks.check(not stands_in("b … a", "a\x00b"), "order does not count")
checks.end()
