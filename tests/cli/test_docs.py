#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/options.md and the manual's pages say of each option what the program says.

`burthen help --json` is the option table. From it come docs/options.md, and of each page man/burthen-COMMAND.1.scd what
stands under SYNOPSIS and OPTIONS; the rest of a page is written by hand. UPDATE=1 writes them anew. Here it is also looked
at whether each command has a page, each page is rendered without a warning, its options are those of --help, and the
program takes each of them.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import schema
from harness import SOURCE, Checks, burthen, require

MAN = SOURCE / "man"
OPTIONS_MD = SOURCE / "docs" / "options.md"
NO_PAGE = {"help", "version"}  # of burthen(1)
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]
OF_ALL = {"BURTHEN_CONFIG", "BURTHEN_STATE_DIR"}  # variables that are no option's, of every command
INTERFACES = SOURCE / "docs" / "interfaces.md"
VARIABLES = re.compile(r"(?<=<!-- variables: from src/cli/variables.c -->\n).*?(?=<!-- end -->\n)", flags=re.S)
TITLE = re.compile(r'^burthen(-[a-z]+)?\([15]\) "" "Burthen"$')

HEAD = """# Options

What each command takes, from `src/cli/options.c`: `UPDATE=1` before `tests/cli/test_docs.py` writes this file anew. `burthen
help COMMAND` says the same. Flag > environment > settings file > default: an option with a variable of its own may also stand
in `~/.config/burthen/config.yaml`, under its long name ([interfaces.md](interfaces.md)). A *SIZE* is `512M`, `1.5G`, `256MiB`,
`300MB` or a number of bytes.
"""


def cell(text):
    return (text or "").replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def spellings(option):
    longs = ["--" + name for name in (option["name"], option["alias"]) if name]
    return ["-" + short for short in option["shorts"]] + longs


def made_table(table):
    text = HEAD
    for command in table["commands"]:
        text += f"\n## {command['name']}\n\n`{command['usage']}`: {command['summary']}.\n\n"
        text += "| option | argument | default | environment | meaning |\n|---|---|---|---|---|\n"
        for option in command["options"]:
            names = ", ".join(f"`{name}`" for name in spellings(option))
            argument = f"`{cell(option['argument'])}`" if option["argument"] else ""
            variable = f"`{option['environment']}`" if option["environment"] else ""
            text += f"| {names} | {argument} | {cell(option['default'])} | {variable} | {cell(option['help'])} |\n"
    return text


# ---- the manual ------------------------------------------------------------------------------------------------------

def scd(text):
    """As scdoc wants what is to be taken as it is."""
    return re.sub(r"([\\_*#~<>])", r"\\\1", text)


def bold(text):
    return "*" + scd(text) + "*"


def made_synopsis(command):
    rest = command["usage"].removeprefix("burthen ").removeprefix(command["name"]).strip()
    return f"{bold('burthen ' + command['name'])} {scd(rest)}".strip() + "\n"


def made_options(command):
    text = ""
    for option in command["options"]:
        names = ", ".join(bold(name) for name in spellings(option))
        argument = f" _{scd(option['argument'])}_" if option["argument"] else ""
        about = option["help"].rstrip(".")
        default = f" Default: {option['default']}." if option["default"] else ""
        text += f"{names}{argument}\n\t{scd(about + '.' + default)}\n\n"
    return text


def parts_of(page):
    """Title, then (heading, text) of each section."""
    head, *parts = re.split(r"^# (.+)$", page, flags=re.M)
    return head, list(zip(parts[::2], parts[1::2]))


def made_page(page, command):
    head, parts = parts_of(page)
    text = head
    for heading, body in parts:
        if heading == "SYNOPSIS":
            body = "\n\n" + made_synopsis(command) + "\n"
        if heading == "OPTIONS":
            body = "\n\n" + made_options(command)
        text += f"# {heading}{body}"
    return text


def hold(checks, path, made):
    is_there = path.exists() and path.read_text() == made
    if not is_there and os.environ.get("UPDATE"):
        path.write_text(made)
        print(f"written: {path.relative_to(SOURCE)}")
        is_there = True
    checks.check(is_there, f"{path.relative_to(SOURCE)} is not what the option table says: UPDATE=1 writes it anew")


def check_pages(checks, table):
    pages = {path.name.removesuffix(".scd") for path in MAN.glob("*.scd")}
    names = {command["name"] for command in table["commands"]} - NO_PAGE
    wanted = {f"burthen-{name}.1" for name in names} | {"burthen.1", "burthen-config.5"}
    checks.check(pages == wanted, f"pages and commands: {sorted(pages ^ wanted)}")
    for command in table["commands"]:
        path = MAN / f"burthen-{command['name']}.1.scd"
        if not path.exists():
            continue
        page = path.read_text()
        hold(checks, path, made_page(page, command))
        head, parts = parts_of(page)
        checks.check(TITLE.match(head.splitlines()[0]), f"{path.name}: its first line")
        headings = [heading for heading, _ in parts]
        checks.check([h for h in headings if h in SECTIONS] == SECTIONS, f"{path.name}: sections {headings}")
        variables = {option["environment"] for option in command["options"]} | OF_ALL
        named = set(re.findall(r"BURTHEN_[A-Z_]+", page.replace("\\", "")))
        checks.check(named <= variables, f"{path.name}: no variables of {command['name']}: {named - variables}")
        checks.check(command["summary"] in page, f"{path.name}: NAME is not the summary of --help")
    overview = (MAN / "burthen.1.scd").read_text()
    for name in sorted(names):
        checks.check(f"*burthen-{name}*(1)" in overview, f"burthen.1 does not name burthen-{name}(1)")


def check_variables(checks, table):
    """Those of the table are those that the source has, in docs/interfaces.md and in burthen(1)."""
    own = {one["name"] for one in table["variables"]}
    twins = {option["environment"] for command in table["commands"] for option in command["options"]} - {None}
    in_source = set()
    for path in sorted((SOURCE / "src").rglob("*.c")):
        in_source |= set(re.findall(r'"(BURTHEN_[A-Z_]+)[="]', path.read_text()))
    checks.check(own == in_source - twins, f"variables of the source and of src/cli/variables.c: {own ^ (in_source - twins)}")
    rows = "".join(f"| `{one['name']}` | {one['set_by']} | {cell(one['meaning'])} |\n" for one in table["variables"])
    page = INTERFACES.read_text()
    checks.check(VARIABLES.search(page), "docs/interfaces.md has no table of variables")
    hold(checks, INTERFACES, VARIABLES.sub(lambda _: "| variable | set by | meaning |\n|---|---|---|\n" + rows, page))
    manual = dict(parts_of((MAN / "burthen.1.scd").read_text())[1])["ENVIRONMENT"]
    named = set(re.findall(r"BURTHEN_[A-Z_]+\b", manual.replace("\\", ""))) - twins - {"BURTHEN_"}
    wanted = {one["name"] for one in table["variables"] if one["set_by"] != "tests"}
    checks.check(named == wanted, f"burthen.1, ENVIRONMENT: {named ^ wanted}")


def render(path, folder):
    """scdoc's roff; a finding of scdoc, of groff or of mandoc is an error."""
    made = subprocess.run(["scdoc"], stdin=path.open("rb"), capture_output=True, check=False)
    roff = folder / path.name.removesuffix(".scd")
    roff.write_bytes(made.stdout)
    findings = made.stderr.decode()
    if made.returncode == 0 and shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", roff], capture_output=True, check=False)
        findings += done.stderr.decode()
    if made.returncode == 0 and shutil.which("mandoc"):
        done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", roff], capture_output=True, check=False)
        # scdoc begins paragraphs that turn out to be empty.
        findings += "".join(line + "\n" for line in done.stdout.decode().splitlines()
                            if "skipping paragraph macro" not in line)
    return made.returncode, findings, roff


def plain(roff):
    if shutil.which("mandoc"):
        command = ["mandoc", "-Tutf8", "-Owidth=200", roff]
    else:
        command = ["groff", "-man", "-Tutf8", "-P-cbou", "-rLL=200n", roff]
    text = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    return re.sub(r".\x08", "", text)


def check_rendered(checks, table):
    if not shutil.which("scdoc"):
        print("scdoc is not there: the pages are not rendered")
        return
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(MAN.glob("*.scd")):
            code, findings, roff = render(path, pathlib.Path(folder))
            checks.check(code == 0 and not findings, f"{path.name}: {findings}")
            command = next((c for c in table["commands"] if f"burthen-{c['name']}.1.scd" == path.name), None)
            if code != 0 or not command:
                continue
            shown = re.search(r"^OPTIONS\n(.*?)^[A-Z]", plain(roff), flags=re.M | re.S)[1]
            rows = re.findall(r"^ {4,8}(-\S.*)$", shown, flags=re.M)
            in_page = {name for row in rows for name in re.findall(r"(?:^|, )(--?[a-z0-9-]+)", row)}
            checks.check(in_page == in_help(command["name"]), f"{path.name} and --help: {in_page ^ in_help(command['name'])}")


# ---- --help ----------------------------------------------------------------------------------------------------------

def in_help(name):
    rows = re.findall(r"^  (-\S.*)$", burthen(name, "--help").stdout.decode(), flags=re.M)
    return {word for row in rows for word in re.findall(r"(?:^|, )(--?[a-z0-9-]+)", row)}


def sample(option):
    """A value that the option takes."""
    if option["choices"]:
        return option["choices"][0]
    by_argument = {"HOST": "box.lan", "HOST:PORT": "127.0.0.1:1", "N0,N1,...": "1,1", "SIZE": "1G"}
    by_kind = {"size": "1G", "whole": "1", "real": "0.5", "text": "x"}
    return by_argument.get(option["argument"]) or by_kind[option["kind"]]


def check_help(checks, table):
    for command in table["commands"]:
        name = command["name"]
        shown = burthen(name, "--help")
        asked = burthen("help", name)
        text = shown.stdout.decode()
        checks.check(shown.returncode == 0 and not shown.stderr, f"{name} --help: {shown.stderr}")
        checks.check(asked.stdout == shown.stdout and asked.returncode == 0, f"help {name} is not {name} --help")
        wide = [line for line in text.splitlines() if len(line) > 100]
        checks.check(not wide, f"{name} --help is wider than 100 columns: {wide}")
        starts = {len(m[0]) for m in re.finditer(r"^  -.*?  +(?=\S)", text, flags=re.M)}
        checks.check(len(starts) <= 1, f"{name} --help is not aligned: {starts}")
        checks.check({s for o in command["options"] for s in spellings(o)} == in_help(name), f"{name}: --help, --json")
        words = []
        for option in command["options"]:
            for spelling in spellings(option):
                words += [spelling] if option["kind"] == "flag" else [spelling, sample(option)]
        taken = burthen(name, *words, "--help")
        checks.check(taken.returncode == 0 and taken.stdout == shown.stdout, f"{name} takes not all: {taken.stderr}")
        one = burthen("help", "--json", name)
        checks.check(json.loads(one.stdout)["commands"] == [command], f"help --json {name}")


    overview = burthen("help").stdout.decode()
    checks.check(burthen("--help").stdout.decode() == overview, "--help is help")
    checks.check(max(map(len, overview.splitlines())) <= 100, "help is wider than 100 columns")
    shown = re.findall(r"^  ([a-z]+) .*?(?:  +)(\S.*)$", overview, flags=re.M)
    checks.check(shown == [(c["name"], c["summary"]) for c in table["commands"]], f"help: {shown}")


def check_choices(checks, table):
    """Every word that is offered for an option is one that it takes."""
    seen = set()
    for command in table["commands"]:
        for option in command["options"]:
            for choice in option["choices"]:
                if (option["name"], choice) in seen:
                    continue
                seen.add((option["name"], choice))
                beside = ["--draft", "x.gguf"] if choice == "draft" else []
                taken = burthen(command["name"], f"--{option['name']}={choice}", *beside, "--help")
                checks.check(taken.returncode == 0, f"{command['name']} --{option['name']} {choice}: {taken.stderr}")
    checks.check(len(seen) > 40, f"{len(seen)} words are offered")


def main():
    require()
    checks = Checks()
    answer = burthen("help", "--json")
    table = json.loads(answer.stdout)
    errors = schema.check("help", table)
    checks.check(not errors, f"help --json: {errors}")
    hold(checks, OPTIONS_MD, made_table(table))
    check_pages(checks, table)
    check_variables(checks, table)
    check_help(checks, table)
    check_choices(checks, table)
    check_rendered(checks, table)
    checks.end()


if __name__ == "__main__":
    main()
