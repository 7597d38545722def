#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Command lines of burthen in README, docs and the manual's pages are ones that the program takes.

Looked at are lines of code blocks and words between backticks that begin with `burthen COMMAND`, behind a prompt, a pipe,
variables or nothing. The command must be there, and each option up to `--` one of its own, with a value where it wants
one. Values are not looked at: MODEL and SIZE stand for some.
"""

import json
import re
import shlex

from harness import SOURCE, Checks, burthen, require

FEWEST = 120  # that are found today, or the rules below have missed them
END = re.compile(r"\s(?:\|\||&&|[|>;&#]|2>).*$")  # another command, a file, a remark
START = re.compile(r"(?:^|[|;&(]\s*|\s)((?:[A-Z_]+=\S*\s+)*)(?:\S*/)?burthen (?=[a-z-])")


def code_of(text, is_page):
    """(line number, code) of blocks and of words between backticks."""
    in_block, kept, kept_at = False, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
            continue
        if in_block or (is_page and line.startswith("\t")) or line.startswith("    "):
            kept_at = kept_at if kept else number
            if line.endswith("\\"):
                kept += line[:-1] + " "
                continue
            yield kept_at, kept + line.removesuffix("++"), True
            kept = ""
        else:
            for code in re.findall(r"`([^`]+)`", line):
                yield number, code, False


def words_of(code, is_line):
    """The words behind `burthen`, or None where the code is no command line of it."""
    code = code.strip().removeprefix("$ ").strip()
    found = START.search(code) if is_line else re.match(r"burthen (?=[a-z-])", code)
    if not found or (is_line and found.start() > 0 and code[found.start()] not in "|;&(" and not code.startswith("sudo ")):
        return None
    rest = END.sub("", code[found.end():])
    if is_line:
        rest = re.split(r"\s{2,}", rest)[0]  # what is said of it stands behind a gap
    rest = re.sub(r"\[(?=-)|(?<=\w)\]", " ", rest)  # [--option]
    try:
        return shlex.split(rest.replace("\\~", "~"))
    except ValueError:
        return rest.split()


def wrong(words, commands, is_line=True):
    """What is wrong with a command line, or nothing. In a sentence an option is named without its value."""
    name, *rest = words
    if name in ("--help", "-h", "--version"):
        return ""
    if not re.fullmatch(r"[a-z]+", name):
        return ""
    if name not in commands:
        return f"there is no command {name}"
    takes = commands[name]
    i = 0
    while i < len(rest) and rest[i] != "--":
        option, is_attached, _ = rest[i].partition("=")
        option = option.rstrip(",.:")
        if re.match(r"--?[a-z]", option):
            if option not in takes:
                return f"{option} is not an option of {name}"
            i += takes[option] and not is_attached
        i += 1
    return f"{rest[-1]} wants a value" if is_line and i > len(rest) else ""


def main():
    require()
    checks = Checks()
    commands = {}
    for command in json.loads(burthen("help", "--json").stdout)["commands"]:
        takes = commands[command["name"]] = {}
        for option in command["options"]:
            for name in ["-" + short for short in option["shorts"]] + ["--" + option["name"], "--" + (option["alias"] or "help")]:
                takes[name] = option["kind"] != "flag"
        takes["--help"] = False
    files = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted(SOURCE.glob("docs/**/*.md")),
             *sorted(SOURCE.glob("man/*.scd"))]
    found = 0
    for path in files:
        for number, code, is_line in code_of(path.read_text(), path.suffix == ".scd"):
            words = words_of(code, is_line)
            if not words:
                continue
            found += 1
            what = wrong(words, commands, is_line)
            checks.check(not what, f"{path.relative_to(SOURCE)}:{number}: {what}: {code.strip()}")
    checks.check(found >= FEWEST, f"{found} command lines were found, of {FEWEST} or more")
    # What it is there to find.
    for code, is_line in (("$ burthen pln MODEL", True), ("burthen plan MODEL --ram-bugdet 1G", False),
                          ("x | burthen run MODEL --listen a:1 -q", True), ("burthen run MODEL -n", True),
                          ("burthen plan MODEL [--greedy]    what it is", True)):
        checks.check(wrong(words_of(code, is_line), commands), f"this passes: {code}")
    checks.end()


if __name__ == "__main__":
    main()
