# SPDX-License-Identifier: MIT
"""Cards for tests of the router: a library with NVML's calls (nvml/fake_nvml.c) that shows what stands in a file, and
servers that hold no model. Importing this ends a test as skipped where the library cannot be used."""

import contextlib
import json
import os
import pathlib
import sys

import harness
import router

NVML = pathlib.Path(os.environ.get("BT_FAKE_NVML", ""))
harness.require()
if not NVML.is_file():
    harness.skip("the stand-in for NVML was not built")
if b"__asan_init" in NVML.read_bytes():
    harness.skip("the stand-in for NVML was built with a sanitizer, which must be loaded first")
STUB = harness.SOURCE / "tests/support/stub_server.py"
GIB = 1 << 30


class Cards:
    """cards.shows((total, free, {pid: MiB}, "line of the file"...), ...): MiB of each, at once."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "cards"
        (folder / "libnvidia-ml.so.1").symlink_to(NVML)
        self.env = {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_FILE": str(self.file), "BURTHEN_STATE_DIR": str(folder / "state")}

    def shows(self, *cards, first=""):
        lines = [first] if first else []
        for total, free, users, *more in cards:
            lines += [f"{total} {free}", *(f"user {pid} {mib}" for pid, mib in users.items()), *more]
        aside = self.file.with_suffix(".new")
        aside.write_text("\n".join(lines) + "\n")
        aside.replace(self.file)

    @contextlib.contextmanager
    def serve(self, models, devices="{CUDA0: {budget: 22G, target: 21G}}", more=""):
        rows = "\n".join(f"  {name}: {{cmd: '{sys.executable} {STUB} --port ${{PORT}} {words}'{rest}}}"
                         for name, (words, rest) in models.items())
        config = f"start_port: 0\nhold: 0\npatience: 5s\ndevices: {devices}\n{more}\nmodels:\n{rows}\n"
        with router.Router(config, env=self.env) as serve:
            if not serve.works:
                raise AssertionError(f"it does not start: {serve.log()[-800:]}")
            serve.wait_for(lambda: len(serve.ask("/api/memory")["pools"]) > 1)  # its first look
            yield serve


def takes(words="", **pools):
    """A model that says what it takes: CUDA0="10G"."""
    memory = ", ".join(f"{name}: {size}" for name, size in pools.items())
    return (words, f", memory: {{{memory}}}" if pools else "")


def pool(serve, name):
    return next((one for one in serve.ask("/api/memory")["pools"] if one["name"] == name), {})


def of(serve, model):
    return next((one for one in serve.ask("/api/memory")["models"] if one["model"] == model), {})


def refusal(serve, model):
    status, data = serve.request("/v1/chat/completions", {"model": model, "messages": []})
    return status, json.loads(data).get("error", {})
