# SPDX-License-Identifier: MIT
"""A service manager is told when the router listens, and when it ends; no server of a model speaks in its name."""

import pathlib
import socket
import tempfile

import harness
import stubs

checks = harness.Checks()


def lines_of(manager):
    manager.settimeout(60)
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().split("\n"))


def main():
    harness.require()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = str(pathlib.Path(folder) / "notify")
        manager.bind(name)
        with stubs.start(stubs.config({"a": stubs.model(host="20M")}), env={"NOTIFY_SOCKET": name}) as serve:
            ready = lines_of(manager)
            checks.check(ready.get("READY") == "1", f"it is ready: {ready}")
            checks.check(f"http://127.0.0.1:{serve.port}, 1 model" in ready.get("STATUS", ""), f"and says where: {ready}")
            serve.chat("a", "Hello", 1)
            # A copy of the router (its reaper) shows the block it began with; what was started from it must not.
            pid = serve.children()["a"]
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            held = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            checks.check(b"stub_server" in words and b"PATH=" in held, f"the server's own block: {words}")
            checks.check(b"NOTIFY_SOCKET=" not in held, f"{words} does not know of the manager")
            serve.stop()
        checks.check(lines_of(manager).get("STOPPING") == "1", "it says that it ends")
        manager.setblocking(False)
        try:
            checks.check(False, f"nothing else is said: {manager.recv(4096)}")
        except BlockingIOError:
            pass
    checks.end()


main()
