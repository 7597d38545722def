#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables of the documents that say what the code says.

  docs/budget.md          lines of a plan (BT_LINE_MAP), of a device (src/report/offload.c), of a command (BT_GUARD_LINE_MAP)
  docs/architecture.md    layers and what each sees (bt_layer() of CMakeLists.txt and cmake/), and what is included
  docs/design.md          files that section 4 names
  docs/from-llama-swap.md keys (src/router/config_keys.c)
  docs/decisions          the index (its README.md) against the records, with the title of each"""

import re

import harness

ROOT = harness.SOURCE
checks = harness.Checks()


def text(name):
    return (ROOT / name).read_text()


def table(page, mark):
    """Rows between `<!-- MARK: ... -->` and `<!-- end -->`, as lists of cells."""
    found = re.search(rf"<!-- {re.escape(mark)}:.*?-->\n(.*?)<!-- end -->", text(page), re.S)
    if not checks.check(found, f"{page} has no table '{mark}'"):
        return []
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in found[1].splitlines()[2:]]


def same(page, mark, wanted):
    rows = table(page, mark)
    names = [row[0].strip("`") for row in rows]
    checks.check(names == wanted, f"{page}, {mark}: {names}, not {wanted}")
    for row in rows:
        checks.check(all(row[:2]) and row[-1], f"{page}, {mark}: a cell of {row[0]} is empty")


# ---- lines of ledgers: from the one list that the program has ----


def lines_of(header, name):
    body = re.search(rf"#define {name}\(X\)(.*?[^\\])\n", text(header), re.S)[1]
    return re.findall(r'X\(\w+, "([^"]+)"\)', body)


of_plan = lines_of("include/burthen.h", "BT_LINE_MAP")
of_command = lines_of("src/guard/price.h", "BT_GUARD_LINE_MAP")
of_device = re.findall(r'put_line\(out, lines, device, "(\w+)"', text("src/report/offload.c"))
checks.check(len(of_plan) > 20 and len(of_command) > 15 and len(of_device) == 4, "lines of the code are not found")
same("docs/budget.md", "lines of a plan", of_plan)
same("docs/budget.md", "lines of a device", of_device)
same("docs/budget.md", "lines of a command", of_command)

# ---- decisions ----

records = {path.name: path.read_text() for path in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))}
index = re.findall(r"^\| \[(\d+)\]\((\S+)\) \| (.*) \|$", text("docs/decisions/README.md"), re.M)
checks.check([file for _, file, _ in index] == list(records) and records, f"docs/decisions/README.md lists {index}")
for number, file, title in index:
    checks.check(records.get(file, "").startswith(f"# {number}: {title}\n"), f"{file} is not headed {number}: {title}")

# ---- layers ----

cmake = "\n".join(text(name) for name in ("CMakeLists.txt", "cmake/serve.cmake", "cmake/plugin.cmake"))
variables = dict(re.findall(r"set\((BT_\w+_LAYERS) ([\w ]+)\)", cmake))
layers = {}
for name, rest in re.findall(r"^ *bt_layer\((\w+) +SEES ?([^)]*)\)", cmake, re.M):
    sees = re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], rest.split("LIBS")[0])
    layers[name] = sees.split()
shown = {row[0].strip("`"): row[2].split() for row in table("docs/architecture.md", "layers")}
checks.check(len(layers) >= 13 and "plan" in layers["device"], f"layers of CMake: {layers}")
checks.check({k: sorted(v) for k, v in shown.items()} == {k: sorted(v) for k, v in layers.items()},
             f"architecture.md has {shown}, CMake has {layers}")
for folder in sorted(path for path in (ROOT / "src").iterdir() if path.is_dir()):
    name = folder.name
    if name == "serve":  # a program of its own, not a layer
        continue
    checks.check(name in layers, f"src/{name} is no layer")
    for source in [*folder.glob("*.c"), *folder.glob("*.h")]:
        for seen in set(re.findall(r'^#include "(\w+)/', source.read_text(), re.M)) - {name, "jinja"}:
            checks.check(seen in layers.get(name, []), f"src/{name}/{source.name} includes {seen}, which it may not see")
        foreign = re.findall(r'^#include "((?:ggml|llama)[\w-]*\.h)"', source.read_text(), re.M)
        checks.check(not foreign or name in ("device", "engine", "plugin"), f"src/{name}/{source.name} includes {foreign}")

# ---- files that design.md names ----

section = re.search(r"## 4\. Folders.*?```\n(.*?)```", text("docs/design.md"), re.S)[1]
folder = None
for line in section.splitlines():
    head = re.match(r"src/(\w+)/", line)
    folder = head[1] if head else folder if line.startswith(" ") else None
    if not folder:
        continue
    for stem in re.findall(r"\b([a-z_]+)\*?\.c\b", line):
        star = f"{stem}*.c" in line
        there = list((ROOT / "src" / folder).glob(f"{stem}{'*' if star else ''}.c"))
        checks.check(there, f"design.md, section 4: src/{folder}/{stem}.c is not there")

# ---- llama-swap's keys ----

keys = text("src/router/config_keys.c")
known = set(re.findall(r'(?:ROW|NOTED|REFUSED)\(\w+, (?:"(\w+)"|NULL)(?:, (?:"(\w+)"|NULL))?', keys))
known = {name for pair in known for name in pair if name}
page = text("docs/from-llama-swap.md")
first_cells = "\n".join(line.split("|")[1] for line in page[page.index("## What you had"):].splitlines() if line.startswith("| `"))
for name in re.findall(r"`([a-zA-Z_.]+)(?:: [^`]*)?`", first_cells):
    checks.check(name.split(".")[-1] in known or name == "llamaswap_", f"from-llama-swap.md: {name} is no key of config_keys.c")

checks.end()
