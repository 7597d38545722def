#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Completion, asked of the shells themselves: bash with and without a terminal, zsh in a terminal, fish by its own question.

Each gets the script that `burthen completion SHELL` prints, in a folder with models, and no file of its own settings. A
shell that is not there is left out, and said.
"""

import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import tempfile
import time

from harness import BIN, Checks, burthen, require

WAIT_S = 60  # for a shell to say what it is asked
QUIET_S = 0.4  # after which nothing more is expected


def words(*typed):
    """What the scripts are told."""
    lines = burthen("completion", "words", "--", *typed).stdout.decode().splitlines()
    return [line.split("\t")[0] for line in lines]


def check_words(checks):
    table = json.loads(burthen("help", "--json").stdout)["commands"]
    names = [command["name"] for command in table]
    checks.check(words("") == names, "the commands")
    checks.check(words("pl") == ["plan"], "a command's beginning")
    for command in table:
        options = {"--" + option["name"] for option in command["options"]}
        checks.check(set(words(command["name"], "-")) == options, f"options of {command['name']}")
        for option in command["options"]:
            if option["kind"] == "choice":
                name = "--" + option["name"]
                checks.check(words(command["name"], name, "") == option["choices"], f"values of {name}")
                checks.check(words(command["name"], name + "=") == [f"{name}={choice}" for choice in option["choices"]],
                             f"values of {name}=")
    cases = [(("plan", ""), [":file gguf"]), (("serve", ""), [":file gguf yaml yml"]), (("run", "-f", ""), [":file "]),
             (("run", "--draft=m"), [":file gguf"]), (("serve", "--models-dir", ""), [":folder"]),
             (("exec", "--hold", "1G", "--", "llama-server", "-m"), [":command 4"]), (("exec", "-"), words("exec", "--")),
             (("exec", "--hold", "--", "--", "x"), [":command 4"]), (("serve", "a.gguf", "--", "-c"), [":file "]),
             (("plan", "--", "-x"), [":file gguf"]), (("completion", ""), ["bash", "zsh", "fish"]), (("help", "pla"), ["plan"]),
             (("plan", "-ct"), ["-ctk", "-ctv"]), (("plan", "-c", ""), []), (("nonsense", ""), []), (("--h",), ["--help"]),
             (("cache", "pri"), ["prices"]), (("plan", "--flash_attn", "o"), ["on", "off"])]
    for typed, expected in cases:
        checks.check(words(*typed) == expected, f"{typed}: {words(*typed)}, not {expected}")
    wrong = burthen("completion", "tcsh")
    checks.check(wrong.returncode == 2 and not wrong.stdout, "a shell that there is none for")


# What is typed, and what a shell may offer: the words without what stands before them.
ASKED = [
    ("burthen pla", {"plan"}),
    ("burthen plan --flash", {"--flash-attn"}),
    ("burthen plan --policy ", {"ctx", "speed"}),
    ("burthen plan --policy=", {"ctx", "speed"}),
    ("burthen run a.gguf -ctk q5", {"q5_0", "q5_1"}),
    ("burthen inspect m/", {"m/a.gguf", "m/c d.gguf", "m/below"}),
    ("burthen inspect ~/m/", {"~/m/a.gguf", "~/m/c d.gguf", "~/m/below"}),
    ("burthen serve m/", {"m/a.gguf", "m/c d.gguf", "m/b.yaml", "m/below"}),
    ("burthen serve --models-dir m/", {"m/below"}),
    ("burthen run --draft=m/a", {"m/a.gguf"}),
    ("burthen help ser", {"serve"}),
    ("./burthen pla", {"plan"}),  # of PATH: what lies in the current folder is not run
]

ASK_BASH = r"""
source ./burthen.bash
_other() { COMPREPLY=("other:$COMP_CWORD:$2:$3"); }
complete -F _other other-server
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE} COMP_WORDS=() rest=$COMP_LINE COMPREPLY=()
    while [[ $rest ]]; do  # cut as bash cuts: blanks, and '=' as a word
        [[ $rest =~ ^\ *(=|[^ =]*)(.*)$ ]]
        COMP_WORDS+=("${BASH_REMATCH[1]}") rest=${BASH_REMATCH[2]}
        [[ $rest == ' ' ]] && { COMP_WORDS+=(''); rest=; }
    done
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _burthen burthen "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    (IFS='|'; printf '%s\n' "${COMPREPLY[*]}")
done
"""


def ask_bash(lines, folder, environment):
    done = subprocess.run(["bash", "--norc", "-c", ASK_BASH], input="\n".join(lines) + "\n", cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=120, check=False)
    if done.stderr:
        raise AssertionError(f"bash: {done.stderr}")
    return [set(filter(None, line.split("|"))) for line in done.stdout.splitlines()]


def check_bash(checks, folder, environment):
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-s", "bash", folder / "burthen.bash"], capture_output=True, text=True, check=False)
        checks.check(done.returncode == 0, done.stdout)
    for (line, expected), offered in zip(ASKED, ask_bash([line for line, _ in ASKED], folder, environment)):
        checks.check(offered == expected, f"bash: {line}: {offered}, not {expected}")
    asked = ["burthen exec -- other-server -c 5", "burthen exec --dry-run -- other-server -m ", "burthen exec -- bas"]
    first, second, third = ask_bash(asked, folder, environment)
    checks.check(first == {"other:2:5:-c"}, f"bash: the other program's own: {first}")
    checks.check(second == {"other:2::-m"}, f"bash: its own, on a new word: {second}")
    checks.check("bash" in third, f"bash: the name of a program: {third}")


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, command, folder, environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        self.n_asked = 0
        self.read("ready-0")

    def more(self, quiet_s):
        """What has come; empty after so long without anything."""
        if not select.select([self.fd], [], [], quiet_s)[0]:
            return ""
        try:
            return os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            return ""

    def read(self, until):
        text, end = "", time.monotonic() + WAIT_S
        while until not in text and time.monotonic() < end:
            text += self.more(QUIET_S)
        if until not in text:
            raise AssertionError(f"a shell did not say {until}: {text!r}")
        return text

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def ask(self, line, wanted, wait_s=WAIT_S):
        """What is shown for a line and a tab, and another where the first did not show what is wanted."""
        self.type(line + "\t")
        text, tabs, end = "", 1, time.monotonic() + wait_s
        while not all(word in text for word in wanted) and time.monotonic() < end:
            more = self.more(QUIET_S)
            text += more
            if not more and tabs == 1:
                self.type("\t")
                tabs = 2
        # The line is emptied, and what came late is waited for: it is no answer to the next question.
        self.n_asked += 1
        self.type(f"\x15echo asked-$(({self.n_asked}))-times\n")
        return text + self.read(f"asked-{self.n_asked}-times")

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def in_terminal(checks, name, command, set_up, folder, environment):
    terminal = Terminal(command, folder, environment)
    try:
        terminal.type(set_up)
        terminal.read("ready-1")
        for line, wanted in [("burthen pla", ["plan "]), ("./burthen pla", ["plan "]), ("burthen plan --fla", ["--flash-attn "]),
                             ("burthen plan --policy ", ["ctx", "speed"]), ("burthen plan --policy=s", ["speed"]),
                             ("burthen inspect m/a", ["m/a.gguf"]), ("burthen serve m/b.", ["m/b.yaml"]),
                             ("burthen exec -- sleep m/b.", ["m/b.yaml"])]:
            text = terminal.ask(line, wanted)
            checks.check(all(word in text for word in wanted), f"{name}: {line}: {text!r}")
        if name == "bash":  # zsh offers any file where none of the wanted kind is there
            text = terminal.ask("burthen inspect m/b.", ["yaml"], wait_s=2)
            checks.check("yaml" not in text, f"{name}: a file that is no model: {text!r}")
    finally:
        terminal.close()


def check_fish(checks, folder, environment):
    script = "source burthen.fish\nfunction x; end\ncomplete -c x -f -a 'its-own'\n"
    lines = [line for line, _ in ASKED] + ["burthen exec --dry-run -- x "]
    for line in lines:
        script += f"complete -C '{line}'\necho '==='\n"
    done = subprocess.run(["fish", "--no-config", "-c", script], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=120, check=False)
    checks.check(not done.stderr, f"fish: {done.stderr}")
    answers = done.stdout.split("===\n")
    for (line, expected), answer in zip(ASKED, answers):
        offered = {row.split("\t")[0] for row in answer.splitlines()}
        offered = {(word.partition("=")[2] if word.startswith("--") and "=" in word else word).rstrip("/")
                   for word in offered}
        checks.check(offered == expected, f"fish: {line}: {offered}, not {expected}")
    checks.check(answers[len(ASKED)].startswith("its-own"), f"fish: the other program's own: {answers[len(ASKED)]}")


def make_folder(folder):
    (folder / "m" / "below").mkdir(parents=True)
    for name in ("a.gguf", "c d.gguf", "b.yaml", "note.txt"):
        (folder / "m" / name).touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "burthen").symlink_to(BIN)
    for shell in ("bash", "zsh", "fish"):
        (folder / f"burthen.{shell}").write_bytes(burthen("completion", shell).stdout)
    (folder / "burthen").write_text("#!/bin/sh\ntouch was-run\n")
    (folder / "burthen").chmod(0o755)
    (folder / "functions").mkdir()
    (folder / "functions" / "_burthen").write_bytes(burthen("completion", "zsh").stdout)


def main():
    require()
    checks = Checks()
    check_words(checks)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_folder(folder)
        environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": name, "TERM": "dumb", "LC_ALL": "C.UTF-8",
                       "PS1": "$ "}
        bash, zsh = ["bash", "--norc", "--noprofile", "-i"], ["zsh", "-f", "-i"]
        terminals = {
            "bash": [(bash, "bind 'set bell-style none'; source ./burthen.bash; ")],
            "zsh": [(zsh, "autoload -Uz compinit; compinit -u -D; source ./burthen.zsh; "),
                    (zsh, "fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; ")],  # as it is installed
            "fish": [],
        }
        for shell in ("bash", "zsh", "fish"):
            if not shutil.which(shell):
                print(f"{shell} is not there: left out")
                continue
            if shell == "bash":
                check_bash(checks, folder, environment)
            if shell == "fish":
                check_fish(checks, folder, environment)
            for command, set_up in terminals[shell]:
                started = dict(environment, PS1="ready-0$ ")
                in_terminal(checks, shell, command, set_up + "PS1='$ '; echo ready-$((0 + 1))\n", folder, started)
        checks.check(not (folder / "was-run").exists(), "a key has run a program of the current folder")
    checks.end()


if __name__ == "__main__":
    main()
