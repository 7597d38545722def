# SPDX-License-Identifier: MIT
"""`make install`: what was installed serves from where it was put, without the build that it came from; the manual and the
shells' scripts are where they are looked for."""

import pathlib
import shutil
import subprocess
import tempfile

import harness
import router
import stubs

checks = harness.Checks()
PREFIX = "opt/b"  # none that anything could guess


def install(root):
    """The installed program, or None where there is no build to install (a coverage build has none)."""
    build = pathlib.Path(harness.BIN).resolve().parent
    if not shutil.which("cmake") or not (build / "cmake_install.cmake").exists():
        return None
    manifest = build / "install_manifest.txt"  # of the last `make install`, which uninstall reads
    before = manifest.read_bytes() if manifest.exists() else None
    done = subprocess.run(["cmake", "--install", str(build), "--prefix", str(root / PREFIX)], capture_output=True, timeout=300)
    if before is not None:
        manifest.write_bytes(before)
    else:
        manifest.unlink(missing_ok=True)
    checks.check(done.returncode == 0, f"installed: {done.stderr[-500:]}")
    return root / PREFIX / "bin/burthen"


def check_share(share):
    for shell, path in [("bash", "bash-completion/completions/burthen"), ("zsh", "zsh/site-functions/_burthen"),
                        ("fish", "fish/vendor_completions.d/burthen.fish")]:
        there = (share / path).read_bytes() if (share / path).exists() else b""
        checks.check(there == harness.burthen("completion", shell).stdout, f"{path} is not what the program prints")
    if not shutil.which("scdoc"):
        print("scdoc is not there: no pages are looked for")
        return
    wanted = {path.name.removesuffix(".scd") for path in (harness.SOURCE / "man").glob("*.scd")}
    pages = {path.name for path in share.glob("man/man?/*") if path.parent.name == "man" + path.suffix[1:]}
    checks.check(pages == wanted, f"pages: {pages ^ wanted}")


def main():
    harness.require()
    with tempfile.TemporaryDirectory() as folder:
        program = install(pathlib.Path(folder))
        if not program:
            harness.skip("there is no cmake, or nothing that it could install")
        harness.BIN = str(program)
        check_share(program.parents[1] / "share")
        with stubs.start(stubs.config({"a": stubs.model(host="20M")})) as serve:
            checks.check(serve.chat("a", "Hello", 1)["choices"], "a model of the installed program answers")
            pid = serve.ask("/running")["running"][0]["pid"]
            checks.check(pid in router.descendants(serve.pid), f"{pid} is its child")
    checks.end()


main()
