# SPDX-License-Identifier: MIT
"""`make install` and `make uninstall`, as tools/install.sh and tools/uninstall.sh do them: into a prefix and into a DESTDIR. What
was installed works without the build that it came from, also when it is moved; programs can be built against it; and nothing is
left of it, nor taken of what was there before."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import harness

checks = harness.Checks()
RECORDS = ("install_manifest.txt", "install_folders.txt")  # of the last `make install` of a user: put back in the end
PROGRAM = harness.SOURCE / "tests/support/install/plan.c"
BUILD = pathlib.Path(harness.BIN).resolve().parent


def call(*words, check=True, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors="replace", timeout=300, **options)
    if check:
        checks.check(done.returncode == 0, f"{words[0]} {words[-1]} ended with {done.returncode}: {done.stderr[-600:]}")
    return done


def script(name, destdir, prefix, **options):
    return call("sh", harness.SOURCE / "tools" / name, BUILD, destdir, prefix, **options)


def below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def environment(prefix):
    """Nothing by which the build could be found."""
    return harness.environment() | {"PATH": f"{prefix}/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": ""}


def check_libraries(prefix):
    """Each program and library finds what it needs in the prefix or the system."""
    for path in [prefix / "bin/burthen", *(prefix / "lib/burthen").iterdir()]:
        if path.is_symlink():
            continue
        said = call("ldd", path).stdout
        checks.check("not found" not in said, f"{path.name} finds all that it needs: {said}")
        checks.check(str(harness.SOURCE) not in said, f"{path.name} needs nothing of the build: {said}")


def check_program(prefix):
    env = environment(prefix)
    version = call("burthen", "--version", env=env, cwd="/").stdout
    checks.check(version == call(harness.BIN, "--version").stdout, f"the version: {version}")
    words = ["run", harness.SMOLLM2, "-p", "Once upon a time", "-n", "16", "--greedy", "--ram-budget", "96M", "-c", "512"]
    if not harness.SMOLLM2.exists():
        return
    plan = json.loads(call("burthen", "plan", harness.SMOLLM2, "--ram-budget", "96M", "--json", env=env, cwd="/").stdout)
    checks.check(plan["verdict"] == "streams", f"it plans: {plan['verdict']}")
    text = call("burthen", *words, env=env, cwd="/").stdout
    checks.check(text and text == call(harness.BIN, *words, env=harness.environment()).stdout, f"the same text: {text!r}")
    config = prefix / "serve.yaml"
    config.write_text(f"models:\n  smol:\n    model: {harness.SMOLLM2}\n")
    said = call("burthen", "serve", config, "--check-config", env=env, cwd="/").stdout
    checks.check("smol" in said and "error" not in said, f"its router reads a configuration: {said}")
    config.unlink()


def check_own_server(prefix):
    """`exec` finds the llama-server that came along, which is in no folder of PATH; one in PATH comes first."""
    server = prefix / "lib/burthen/llama-server"
    if not server.exists():
        return
    env = environment(prefix)
    for words in (["llama-server"], ["nice", "llama-server"]):
        done = call("burthen", "exec", "--", *words, "--version", env=env, cwd="/")
        checks.check("version" in done.stderr and f"the one in {prefix}/lib/burthen is taken" in done.stderr,
                     f"{words}: {done.stderr}")
    with tempfile.TemporaryDirectory() as other:
        stub = pathlib.Path(other) / "llama-server"
        stub.write_text("#!/bin/sh\necho mine\n")
        stub.chmod(0o755)
        done = call("burthen", "exec", "--", "llama-server", env=env | {"PATH": f"{other}:{env['PATH']}"}, cwd="/")
        checks.check(done.stdout == "mine\n" and "taken" not in done.stderr, f"the user's own: {done.stdout}{done.stderr}")
        done = call("burthen", "exec", "--", "llama-cli", env=env, cwd="/", check=False)
        checks.check(done.returncode == 127, f"what is nowhere is not found: {done.returncode}")


def check_library(prefix, folder):
    """A program of somebody else's, in C and with the words of pkg-config alone."""
    env = os.environ | {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
    if not shutil.which("pkg-config") or not shutil.which("cc"):
        return
    checks.check(call("pkg-config", "--modversion", "burthen", env=env).stdout.strip() == "0.1.0", "pkg-config knows the version")
    for more in (["--static"], []):
        words = call("pkg-config", "--cflags", "--libs", *more, "burthen", env=env).stdout.split()
        checks.check(str(harness.SOURCE) not in " ".join(words), f"it names nothing of the build: {words}")
        program = folder / "plan"
        call("cc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-o", program, PROGRAM, *words)
        if not program.exists() or not harness.SMOLLM2.exists():
            return
        for mib, verdict in ((400, "fits"), (96, "streams"), (10, "refused")):
            said = call(program, harness.SMOLLM2, mib << 20).stdout.split()
            plan = json.loads(harness.burthen("plan", harness.SMOLLM2, "-c", 512, "--ram-budget", f"{mib}M", "--json").stdout)
            same = ["0.1.0", "llama", verdict, plan["ctx"]["effective"], plan["pools"][0]["planned_bytes"],
                    plan["units"]["pinned"], plan["units"]["streamed"]]
            checks.check(said == list(map(str, same)) and plan["verdict"] == verdict, f"{mib} MiB: {said}, `plan` says {same}")
        failed = call(program, PROGRAM, "1", check=False)
        checks.check(failed.returncode == 1 and "magic" in failed.stderr, f"what is no model is said to be none: {failed.stderr}")
        program.unlink()


def check_unit(text, prefix, scratch):
    checks.check(f'exec "{prefix}/bin/burthen" serve' in text and "@" not in text, f"the unit starts what was installed: {text}")
    analyze = shutil.which("systemd-analyze")
    unit = scratch / "burthen.service"
    unit.write_text(text)
    if analyze:
        done = call(analyze, "verify", "--user", "--man=no", unit, check=False, env=os.environ | {"XDG_RUNTIME_DIR": str(scratch)})
        said = "\n".join(line for line in done.stderr.splitlines() if "burthen" in line)
        checks.check(not said, f"systemd finds nothing wrong with it: {said}")


def check_prefix(folder):
    prefix = folder / "a prefix" / "burthen"
    script("install.sh", "", prefix)
    first = below(prefix)
    check_libraries(prefix)
    check_program(prefix)
    check_own_server(prefix)
    check_unit((prefix / "lib/systemd/user/burthen.service").read_text(), prefix, folder)
    moved = folder / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    checks.check(call(moved / "bin/burthen", "devices", "--json", env=environment(moved), cwd="/").returncode == 0, "moved, it works")
    check_library(moved, folder)
    script("install.sh", "", prefix)  # over itself, as an update does
    checks.check(below(prefix) == first, "a second time: the same files")
    wrong = script("uninstall.sh", "", folder / "elsewhere", check=False)
    checks.check(wrong.returncode == 1 and str(prefix) in wrong.stderr and below(prefix) == first, "another prefix removes nothing")
    script("uninstall.sh", "", str(prefix) + "/")
    checks.check(not (folder / "a prefix").exists(), f"nothing is left: {below(folder / 'a prefix')}")
    again = script("uninstall.sh", "", prefix, check=False)
    checks.check(again.returncode == 1 and "nothing was installed" in again.stderr, "and then there is nothing to remove")


def check_relative(folder):
    """A DESTDIR from the current folder on, as packagers write it, with a last slash when it is removed."""
    made = script("install.sh", "pkg", "/usr", cwd=folder)
    checks.check(made.returncode == 0 and (folder / "pkg/usr/bin/burthen").exists(), f"a relative DESTDIR: {made.stderr}")
    gone = script("uninstall.sh", "pkg/", "/usr", cwd=folder)
    checks.check(gone.returncode == 0 and not (folder / "pkg").exists(), f"and out of it: {gone.stderr}")


def check_destdir(folder):
    """As a packager does it; and of what was there before nothing goes."""
    root = folder / "root"
    mine = ("usr/bin/other", "usr/lib/burthen/mine", "usr/share/doc/other/README")
    for name in mine:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "usr/lib/systemd").mkdir()
    before = below(root)
    script("install.sh", root, "/usr")
    made = below(root) - before
    checks.check("usr/bin/burthen" in made and "usr/lib/burthen/burthen-serve" in made, f"it is there: {made}")
    checks.check(all(name.startswith("usr/") for name in made), f"and nowhere else: {made}")
    check_unit((root / "usr/lib/systemd/user/burthen.service").read_text(), "/usr", folder)
    pc = (root / "usr/lib/pkgconfig/burthen.pc").read_text()
    checks.check(str(root) not in pc and str(harness.SOURCE) not in pc, f"burthen.pc: {pc}")
    (root / "usr/lib/systemd/user/mine.service").write_text("")
    script("uninstall.sh", root, "/usr")
    left = below(root) - before
    checks.check(left == {"usr/lib/systemd/user", "usr/lib/systemd/user/mine.service"}, f"what others put there since stays: {left}")
    checks.check(before <= below(root), "and what was there before")


def main():
    harness.require()
    cache = BUILD / "CMakeCache.txt"
    if not shutil.which("cmake") or not cache.exists():
        harness.skip("there is no cmake, or nothing that it could install")
    if "BT_SANITIZE:STRING=\n" not in cache.read_text():
        harness.skip("programs of others do not link a library with sanitizers")
    kept = {name: (BUILD / name).read_bytes() for name in RECORDS if (BUILD / name).exists()}
    for name in RECORDS:
        (BUILD / name).unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            check_prefix(pathlib.Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            check_destdir(pathlib.Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            check_relative(pathlib.Path(folder))
    finally:
        for name in RECORDS:
            (BUILD / name).unlink(missing_ok=True)
            if name in kept:
                (BUILD / name).write_bytes(kept[name])
    checks.end()


main()
