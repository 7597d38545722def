#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nothing is run because of where a program was started: a folder is full of libraries that the loader, ggml or we could
take for others, and none of them is opened, by any command, in the build and installed. Each leaves a mark when it is
loaded; that they would, is tried first."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import harness

harness.require(harness.SMOLLM2)
checks = harness.Checks()
COMPILER = shutil.which("cc") or shutil.which("gcc")
if not COMPILER:
    harness.skip("there is no C compiler")

SOURCE = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) {
    const char *mark = getenv("FOREIGN_MARK");
    if (mark) close(open(mark, O_WRONLY | O_CREAT, 0600));
}
void *ggml_backend_init(void) { return 0; }
int ggml_backend_score(void) { return 1000; }
"""
# What llama.cpp and its backends are called, with and without version; what we look for by name; what else is linked.
OURS = ["libggml.so", "libggml.so.0", "libggml-base.so", "libggml-base.so.0", "libggml-cpu.so", "libggml-cpu.so.0", "libggml-rpc.so",
        "libggml-rpc.so.0", "libllama.so", "libllama.so.0"]
BACKENDS = [f"libggml-{name}.so" for name in ("cpu-x64", "cpu-haswell", "cpu-alderlake", "cuda", "vulkan", "hip", "metal", "blas", "opencl",
                                             "sycl", "cann", "kompute", "burthen")] + ["libburthen-grammar.so"]
OTHERS = ["libjansson.so.4", "liburing.so.2", "libedit.so.2", "libmicrohttpd.so.12", "libcurl-gnutls.so.4", "libyaml-0.so.2",
          "libnvidia-ml.so.1", "libnvidia-ml.so", "libcuda.so.1", "libm.so.6"]
PROGRAMS = ["burthen-serve", "burthen-template", "llama-server"]


class Folder:
    def __init__(self, root):
        self.path = root / "evil"
        self.mark = root / "loaded"
        self.path.mkdir()
        library = self.path / OURS[0]
        (root / "evil.c").write_text(SOURCE)
        subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, root / "evil.c"], check=True)
        for name in OURS[1:] + BACKENDS + OTHERS:
            shutil.copy(library, self.path / name)
        for name in PROGRAMS:  # not found beside us, one of these would be taken
            (self.path / name).write_text(f"#!/bin/sh\n: > '{self.mark}'\nexit 1\n")
            (self.path / name).chmod(0o755)
        (self.path / "default.metallib").write_text("x")
        for sub in ("lib", "bin", "backends"):
            (self.path / sub).symlink_to(".")

    def environment(self, **more):
        return harness.environment() | {"FOREIGN_MARK": str(self.mark)} | more

    def opened(self):
        there = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return there


def names_only(folder):
    """The folder without what an entry of LD_LIBRARY_PATH may rightly stand for: libraries that are not ours."""
    for name in OTHERS:
        (folder.path / name).unlink()


def run(folder, program, *args, **env):
    done = subprocess.run([program, *map(str, args)], cwd=folder.path, env=folder.environment(**env), capture_output=True, timeout=300, check=False,
                          stdin=subprocess.DEVNULL)
    return done


def commands(folder, program, **env):
    """Each command that loads something, here; exit codes say that it came as far as it should."""
    model = harness.SMOLLM2
    for args, code in ((("version",), 0), (("devices",), 0), (("plan", model), 0), (("plan", model, "--exact", "-c", "256"), 0),
                       (("run", model, "-p", "Hello", "-n", "2", "-c", "256", "--ram-budget", "150M"), 0),
                       (("plan", model, "--chat", "-c", "256", "--exact"), 0),
                       (("exec", "--dry-run", "--ram-budget", "400M", "--", harness.LLAMA_BIN / "llama-server", "-m", model, "-c", "256"), 0),
                       (("exec", "--no-wait", "--", harness.LLAMA_BIN / "llama-server", "--version"), 0),
                       (("exec", "--", "/bin/true"), 0)):
        done = run(folder, program, *args, **env)
        checks.check(done.returncode == code, f"{args} {env}: {done.returncode}: {done.stderr[-600:]}")
        checks.check(not folder.opened(), f"{args} {env}: something of the working directory was loaded")
    for args, word in ((("worker", "--memory", "64M", "--listen", "127.0.0.1:0"), None),
                       (("serve", model, "--listen", "127.0.0.1:0", "--ram-budget", "500M"), b"http")):
        with subprocess.Popen([program, *map(str, args)], cwd=folder.path, env=folder.environment(**env), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
            if word:
                address = process.stdout.readline().decode().strip()
                checks.check(word in address.encode(), f"{args} listens")
                body = json.dumps({"prompt": "Hello", "n_predict": 1}).encode()
                asked = urllib.request.Request(f"{address}/completion", body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(asked, timeout=120) as answer:
                    checks.check(answer.status == 200, f"{args}: its server answers")
            else:
                time.sleep(1)
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        checks.check(not folder.opened(), f"{args} {env}: something of the working directory was loaded")


def run_paths(*files):
    """Absolute folders, or below the file's own; none that everybody may write to."""
    for file in files:
        said = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
        paths = [line.partition("[")[2].rpartition("]")[0] for line in said.splitlines() if "(RPATH)" in line or "(RUNPATH)" in line]
        for entry in [entry for path in paths for entry in path.split(":")]:
            place = entry.replace("$ORIGIN", str(pathlib.Path(file).resolve().parent))
            checks.check(os.path.isabs(place), f"{file}: run path {paths}")
            checks.check(not (os.path.isdir(place) and os.stat(place).st_mode & 0o002), f"{file}: {entry} can be written by everybody")


def install(root):
    build = pathlib.Path(harness.BIN).resolve().parent
    if not shutil.which("cmake") or not (build / "cmake_install.cmake").exists():
        return None
    manifest = build / "install_manifest.txt"  # of the last `make install`
    before = manifest.read_bytes() if manifest.exists() else None
    done = subprocess.run(["cmake", "--install", str(build), "--prefix", str(root / "opt/b")], capture_output=True, timeout=300, check=False)
    if before is not None:
        manifest.write_bytes(before)
    else:
        manifest.unlink(missing_ok=True)
    checks.check(done.returncode == 0, f"installed: {done.stderr[-500:]}")
    return root / "opt/b"


def check_backend_path(folder):
    """GGML_BACKEND_PATH is what the user names: absolute, or not at all."""
    done = run(folder, harness.BIN, "devices", GGML_BACKEND_PATH="libggml-cuda.so")
    checks.check(done.returncode != 0 or b"absolute" in done.stderr, f"{done.returncode}: {done.stderr}")
    checks.check(not folder.opened(), "a relative GGML_BACKEND_PATH is not loaded")
    run(folder, harness.BIN, "devices", GGML_BACKEND_PATH=str(folder.path / "libggml-cuda.so"))
    checks.check(folder.opened(), "an absolute one is what was asked for, and the libraries of this test leave their mark")


def main():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        folder = Folder(root)
        check_backend_path(folder)
        build = pathlib.Path(harness.BIN).resolve().parent
        files = [harness.BIN, build / "burthen-serve", build / "burthen-template", build / "libggml-burthen.so", build / "libburthen-grammar.so"]
        installed = install(root)
        if installed:
            files += [installed / "bin/burthen", *sorted((installed / "lib/burthen").glob("burthen-*")), *sorted((installed / "lib/burthen").glob("*.so"))]
        run_paths(*files)
        commands(folder, harness.BIN)
        if installed:
            commands(folder, installed / "bin/burthen")
        names_only(folder)
        commands(folder, harness.BIN, LD_LIBRARY_PATH=":")
    checks.end()


main()
