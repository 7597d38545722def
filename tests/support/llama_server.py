# SPDX-License-Identifier: MIT
"""A llama-server for tests: started behind any command, asked, watched from outside, stopped.

    with llama_server.Server("-m", model, "-c", 512, prefix=(BIN, "exec", "--ram-budget", "96M", "--")) as server:
        if server.works:                       it said that it is ready; else it ended, or never did
            server.complete(PROMPT)["content"]
        status, log = server.stop()            SIGTERM; log is all that it printed, both streams

What is measured is the process that was started, by its pid, whatever program has taken that pid since: of VmHWM, which
starts anew with each program, the largest at any look. A thread looks, every SAMPLE_S, so that a server that was killed
has been seen too. The server may run in a memory cgroup (`box`, which the caller makes) and under any limit of
limits.py. Its output goes to a file, so that no pipe can fill and stop it."""

import concurrent.futures
import contextlib
import http.client
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

import background
import cgroup_box
import client
import harness
import limits
import watch
from ports import free_port

PROGRAM = harness.LLAMA_BIN / "llama-server"
START_S = 120
SAMPLE_S = 0.01
HANDLER_S = 10  # after a signal; cleaning up begins within milliseconds
CLEANS_UP = "cleaning up before exit"
SECOND_SIGNAL = "Received second interrupt"
LOOK_S = 0.05  # between two questions whether it is ready


class Server(background.Background, client.Client):
    def __init__(self, *args, prefix=(), program=PROGRAM, env=None, box=None, limit=None, start_s=START_S):
        """args: of the server, without host and port; program: words that start it; limit: of limits.py."""
        self.port = free_port()
        words = (program,) if isinstance(program, (str, os.PathLike)) else tuple(program)
        self.command = [str(word) for word in (*prefix, *words, *args, "--host", "127.0.0.1", "--port", self.port)]
        self.peak_bytes = self.peak_rss_bytes = 0
        self._log = tempfile.TemporaryFile()
        before = [call for call in (box and box.join, limit) if call]
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT,
                                        env=harness.environment() if env is None else env,
                                        preexec_fn=limits.both(*before) if before else None)
        self.pid = self.process.pid
        self._over = threading.Event()
        self._looker = threading.Thread(target=self._look, daemon=True)
        self._looker.start()
        try:
            self.works = self._wait(start_s)
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _look(self):
        while not self._over.is_set():
            self._measure()
            self._over.wait(SAMPLE_S)

    def _measure(self):
        reading = cgroup_box.status_bytes(self.pid, "VmHWM", "VmRSS")
        if reading:
            self.peak_bytes = max(self.peak_bytes, reading[0])
            self.peak_rss_bytes = max(self.peak_rss_bytes, reading[1])

    def _wait(self, start_s):
        end = time.monotonic() + start_s
        while time.monotonic() < end and self.process.poll() is None:
            if self.is_healthy():
                return True
            time.sleep(LOOK_S)
        return False

    def check_works(self, checks, what):
        """Whether it works, as a check; where it does not, how it ended is said."""
        if self.works:
            return checks.check(True, what)
        status, text = self.stop()
        return checks.check(False, f"{what}: it does not start: {status}: {text[-1500:]}")

    def is_healthy(self):
        try:
            return self.request("/health", timeout_s=5)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    @contextlib.contextmanager
    def answering(self, checks, what):
        """Questions that must be answered: one that is not is a failed check, and the end of the block."""
        try:
            yield
        except (client.Refused, OSError, http.client.HTTPException) as why:
            state = "it lives" if self.is_alive() else f"it has ended with {self.process.returncode}"
            checks.check(False, f"{what}: {why!r}; {state}: {self.log()[-1500:]}")

    # ---- questions ----

    def complete(self, prompt, n=16, **more):
        """Greedy, each prompt for itself."""
        body = {"prompt": prompt, "n_predict": n, "temperature": 0, "cache_prompt": False, "ignore_eos": True} | more
        return self.ask("/completion", body)

    def at_once(self, questions):
        """The results of calls without arguments, each made by a client of its own, all at the same time."""
        with concurrent.futures.ThreadPoolExecutor(len(questions)) as clients:
            return [future.result() for future in [clients.submit(question) for question in questions]]

    # ---- from outside ----

    def program(self):
        """The file that the process runs."""
        return pathlib.Path(os.readlink(f"/proc/{self.pid}/exe"))

    def mapped(self):
        """The files that it has mapped."""
        return {pathlib.Path(path) for path in watch.mapped(self.pid) if path.startswith("/")}

    def hwm_bytes(self):
        """The largest VmHWM of its life until now."""
        self._measure()
        return self.peak_bytes

    def stop(self, number=signal.SIGTERM):
        if self._text is None:
            self._measure()
        return super().stop(number)

    def _wait_for_end(self):
        """Any llama-server hangs now and then when it is told to end: its handler takes the lock of its queue, and the
        signal may meet the thread that holds it. Then it has not begun to clean up, and a second signal ends it at once: as
        if the first had. What hangs later is no such case."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(HANDLER_S)
        if CLEANS_UP in self.log():
            return super()._wait_for_end()
        self.process.send_signal(signal.SIGTERM)
        status = super()._wait_for_end()
        return 0 if status == 1 and SECOND_SIGNAL in self.log() else status
