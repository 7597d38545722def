# SPDX-License-Identifier: MIT
"""A conversation on a terminal: line editing, Ctrl-C in an answer, at the prompt and twice, a paste of several lines, the
end of input; what was stopped stays in the history, and the next answer is that of a conversation with it."""

import os
import pathlib
import pty
import re
import select
import signal
import sys
import termios
import time

import harness

harness.require(harness.SMOLLM2, pathlib.Path(harness.BIN).parent / "burthen-template")
checks = harness.Checks()
WAIT_S = 60
LOCAL_FLAGS = 3  # where tcgetattr has them
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


class Terminal:
    def __init__(self, *args, env=None):
        command = [harness.BIN, "run", harness.SMOLLM2, "--greedy", "-t", 1, "-c", 512, "--ram-budget", "200M", *args]
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(harness.BIN, list(map(str, command)), {**harness.environment(), "TERM": "xterm", "NO_COLOR": "1", **(env or {})})

    def read(self, wait_s=0.1):
        ready, _, _ = select.select([self.fd], [], [], wait_s)
        try:
            data = os.read(self.fd, 65536) if ready else b""
        except OSError:  # the other end is closed
            return False
        self.seen += data
        return bool(data) or not ready

    def expect(self, wanted, since=0):
        """Wait until wanted is seen behind since; the place behind it, or None."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            at = self.seen.find(wanted, since)
            if at >= 0:
                return at + len(wanted)
            if not self.read():
                break
        print(f"waited for {wanted!r}; seen since: {self.seen[since:][-600:]!r}", file=sys.stderr)
        return None

    def type(self, data):
        """At the prompt: libedit shows it just before it takes the terminal over, and an end of input typed in between is
        lost to the terminal's own line discipline. So when the terminal edits no lines any more."""
        end = time.monotonic() + 10
        while termios.tcgetattr(self.fd)[LOCAL_FLAGS] & termios.ICANON and time.monotonic() < end:
            time.sleep(0.02)
        self.press(data)

    def press(self, data):
        os.write(self.fd, data)

    def end(self):
        limit = time.monotonic() + WAIT_S
        while time.monotonic() < limit and self.read():
            pass
        for _ in range(WAIT_S * 10):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return "still running"


def stopped_answer():
    t = Terminal("-v", "-n", "200", "--ignore-eos")
    at = t.expect(b"Ctrl-D leaves")
    at = at and t.expect(b"> ", at)
    if not checks.check(at, "a terminal and no prompt is a conversation"):
        t.type(b"\x04")
        return t.end()
    # Line editing: the wrong word is taken back with Ctrl-W.
    t.type(b"Tell me a story wrong\x17about a king\n")
    before = at = t.expect(b"about a king\r\n", at)
    limit = time.monotonic() + WAIT_S
    while len(t.seen) < before + 30 and time.monotonic() < limit:
        t.read()
    t.press(b"\x03")
    at = t.expect(b"of them reused; answer of ", before)
    checks.check(at, "Ctrl-C ends the answer")
    t.expect(b"> ", at)
    n_answer = int(re.match(rb"\d+", t.seen[at:]).group())
    checks.check(0 < n_answer < 200, f"a partial answer of {n_answer} tokens")
    t.type(b"one line\nand another\n")
    again = t.expect(b"of them reused", at)
    n_reused = int(re.search(rb"(\d+) tokens, (\d+) of them reused", t.seen[at:]).group(2))
    checks.check(again and n_reused > n_answer, f"the partial answer stays: {n_reused} tokens are reused")
    checks.check(t.seen.count(b"of them reused") == 2, "two pasted lines are one message")
    at = t.expect(b"> ", again)
    t.type(b"half a line\x03")
    at = t.expect(b"again leaves", at)
    checks.check(at, "Ctrl-C at the prompt clears the line")
    t.expect(b"> ", at)
    t.type(b"\x03")
    code = t.end()
    checks.check(code == 130, f"Ctrl-C twice at the prompt: exit {code}")


def after_a_stop():
    """The answer after a stopped one is that of a fresh conversation which holds the same history."""
    session = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"burthen-stop-{os.getpid()}.session"
    t = Terminal("-v", "-n", "120", "--ignore-eos")
    at = t.expect(b"> ", t.expect(b"Ctrl-D leaves") or 0)
    t.type(b"Tell me a story about a king\n")
    before = t.expect(b"about a king\r\n", at or 0)
    limit = time.monotonic() + WAIT_S
    while len(t.seen) < before + 60 and time.monotonic() < limit:
        t.read()
    t.press(b"\x03")
    at = t.expect(b"of them reused; answer of ", before)
    checks.check(at and int(re.match(rb"\d+", t.seen[at:]).group()) < 120, "the first answer was stopped")
    at = t.expect(b"> ", at or before)
    t.type(f"/save {session}\n".encode())
    at = t.expect(b"saved to", at or before)
    at = t.expect(b"> ", at or before)
    t.type(b"And now a poem.\n")
    at2 = t.expect(b"of them reused", at or before)
    answer = CONTROL.sub(b"", t.seen[at or before : at2]).replace(b"\r", b"")
    t.expect(b"> ", at2 or before)  # typed earlier, the terminal would take it for the end of a line that nobody reads
    t.type(b"\x04")
    checks.check(t.end() == 0, "Ctrl-D leaves with 0")
    # Fresh: the messages of the session, none of its state.
    result = harness.burthen("run", harness.SMOLLM2, "--chat", "--greedy", "-t", 1, "-c", 512, "--ram-budget", "200M", "-n", 120,
                             "--ignore-eos", "-q", "--session", session, stdin=b"And now a poem.\n")
    text = result.stdout.strip(b"\n")
    checks.check(len(text) > 20 and text in answer, f"after a stop: {answer!r} holds not {text!r}")
    session.unlink(missing_ok=True)


def colours():
    """Bold ends with the prompt: what is typed and answered is not, nor what the shell says next."""
    bold = b"\x1b[1m>\x1b[0m "
    for name, env, prompt in (("colour", {"NO_COLOR": ""}, bold), ("NO_COLOR", {}, b"> "), ("TERM=dumb", {"NO_COLOR": "", "TERM": "dumb"}, b"> ")):
        t = Terminal("-n", "4", "-q", env=env)
        at = t.expect(prompt)
        t.type(b"hi\n")
        t.expect(prompt, at or 0)
        t.type(b"\x04")
        code = t.end()
        colours = b"\x1b[1m" in t.seen or b"\x1b[0m" in t.seen
        checks.check(code == 0 and at and colours == (prompt == bold), f"{name}: exit {code}, {t.seen[-200:]!r}")


def letters():
    """What is typed is what is said, in every locale."""
    message = "Grüße 你好 😀"
    for locale in ("C", "C.UTF-8", ""):
        session = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"burthen-letters-{os.getpid()}.session"
        t = Terminal("-n", "2", "-q", "--session", session, env={"LC_ALL": locale})
        at = t.expect(b"> ")
        t.type(f"{message}\n".encode())
        t.expect(b"> ", at or 0)
        t.type(b"\x04")
        code = t.end()
        kept = session.read_bytes() if session.exists() else b""
        checks.check(code == 0 and message.encode() in kept, f"LC_ALL={locale}: exit {code}, {t.seen[-200:]!r}")
        session.unlink(missing_ok=True)


letters()
stopped_answer()
after_a_stop()
colours()
checks.end()
