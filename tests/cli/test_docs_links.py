#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every relative link of every page leads somewhere, every anchor is a heading, and every page can be reached.

Pages are the *.md files that git has, or would take. A heading's anchor is GitHub's: lower case, punctuation gone, blanks to
dashes, -1 behind a second one of that name. Reached is what README.md links, and what such pages link."""

import re
import subprocess
import unicodedata

import harness

ROOT = harness.SOURCE
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\)[^()\s]*)?)\)")
checks = harness.Checks()


def files():
    """All that git has or would take; where there is no git, all but what is built."""
    try:
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True, check=True,
                               text=True).stdout.splitlines()
        return {ROOT / name for name in names if (ROOT / name).exists()}
    except (OSError, subprocess.CalledProcessError):
        return {path for path in ROOT.rglob("*") if path.is_file() and "build" not in path.relative_to(ROOT).parts}


def prose(text):
    """Without code: blocks between fences, and what stands in backticks."""
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchors(text):
    found = set()
    for line in re.sub(r"^```.*?^```", "", text, flags=re.S | re.M).splitlines():
        match = re.match(r"#{1,6} +(.*?) *#*$", line)
        if not match:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
        kept = "".join(c for c in title.lower() if c in " -_" or unicodedata.category(c)[0] in "LN")
        slug = kept.replace(" ", "-")
        n = 0
        while (slug if n == 0 else f"{slug}-{n}") in found:
            n += 1
        found.add(slug if n == 0 else f"{slug}-{n}")
    return found


def links(page):
    for target in LINK.findall(prose(page.read_text())):
        if not re.match(r"[a-z]+:", target):
            yield target


everything = files()
pages = {path for path in everything if path.suffix == ".md"}
folders = {parent for path in everything for parent in path.parents}
checks.check(len(pages) > 30, f"only {len(pages)} pages were found")
to = {}
for page in sorted(pages):
    name = page.relative_to(ROOT)
    for target in links(page):
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        if not checks.check(aim in everything or aim in folders, f"{name}: {target} is not there"):
            continue
        to.setdefault(page, set()).add(aim)
        if anchor and aim.suffix == ".md":
            checks.check(anchor in anchors(aim.read_text()), f"{name}: {target}: no such heading")

reached, rest = set(), [ROOT / "README.md"]
while rest:
    page = rest.pop()
    if page not in reached:
        reached.add(page)
        rest += [aim for aim in to.get(page, ()) if aim.suffix == ".md" and aim in pages]
for page in sorted(pages - reached):
    checks.check(False, f"{page.relative_to(ROOT)}: nothing leads there from README.md")
index = ROOT / "docs/README.md"
for path in sorted(path for path in everything if path.parent == ROOT / "docs" and path.suffix == ".md" and path != index):
    checks.check(path in to.get(index, ()), f"docs/README.md does not list {path.name}")
for path in sorted(path for path in everything if path.parent == ROOT / "docs/images"):
    checks.check(any(path in aims for aims in to.values()), f"{path.relative_to(ROOT)} is shown nowhere")

# the test itself
checks.check(anchors("# A `b`, c-d!\n## A b c-d\n") == {"a-b-c-d", "a-b-c-d-1"}, f"anchors: {anchors('# A `b`, c-d!')}")
checks.check(LINK.findall("[a [b]](c.md#d) and [e](f_(g).md)") == ["c.md#d", "f_(g).md"], "links")
checks.end()
