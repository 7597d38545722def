# SPDX-License-Identifier: MIT
"""A program in the background of a test: what it has said, whether it lives, how it ends. Its output goes to a file, so that no
pipe can fill and stop it; a thread of its owner may look at it until it is stopped."""

import os
import signal
import subprocess

STOP_S = 60


class Background:
    """Its owner sets process, _log (a temporary file), _over (an event) and _looker (a thread that ends with it)."""

    _status = _text = None

    def is_alive(self):
        return self.process.poll() is None

    def log(self):
        if self._text is not None:
            return self._text
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def _wait_for_end(self):
        return self.process.wait(STOP_S)

    def stop(self, number=signal.SIGTERM):
        """(exit status, or minus the signal's number; log). Where it has ended by itself: how it did."""
        if self._text is not None:
            return self._status, self._text
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self._status = self._wait_for_end()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self._status = self.process.wait()
        self._over.set()
        self._looker.join()
        self._text = self.log()
        self._log.close()
        if self.process.stdout:
            self.process.stdout.close()
        return self._status, self._text
