# SPDX-License-Identifier: MIT
"""Run a command in a memory cgroup of its own, and say what it used.

This is the outside view that the contract is held to (docs/design.md C1): what the kernel counted, not what the
program says of itself. The command joins the group before it is executed, so that its first page is counted. The
group is made under the caller's own (v2 where memory is delegated to us, v1 otherwise), given a limit or none, and
removed afterwards. Where no group can be made, `Unavailable` says why; `require()` ends a test as skipped (77) then.

What is measured, and what it means:

  vm_hwm_bytes       VmHWM of the command's own process, read every SAMPLE_S until it ends. It only grows, so what is
                     missed is the growth since the last look. None if the command ended before the first look.
  max_rss_bytes      ru_maxrss from wait4: exact, but the largest of the process, of the children that it waited for,
                     and of the copy of this interpreter that became the process. `max_rss_floor_bytes` bounds the
                     last; a reading at or under it says only "not more than this". The kernel batches its counters, so
                     this and vm_hwm_bytes may differ by some hundred KiB either way.
  cgroup_peak_bytes  the group's own peak: memory, page cache and kernel memory, children included. None where the
                     kernel keeps no peak (v2 before 5.19).
  oom_kills          processes of the group, or of one made in it, that the kernel killed for memory.
  limit_hits         times the group was at its limit and the kernel had to take pages back first. 0 means that the
                     limit changed nothing: the run would have had the same peak without one.
  swap_peak_bytes    largest swap use of the group at any look.

Page cache is charged to the group that touched a page first. A file that somebody read before costs a group nothing,
which makes any reader look better than it is: call drop_cache on the model before each run that compares.

As a program: cgroup_box.py [--limit SIZE] [--no-swap] [--drop FILE]... -- COMMAND ARGS...   prints the result as JSON.
"""

import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SAMPLE_S = 0.002
# A stopped group is empty when the kernel has torn its last process down, which takes some milliseconds.
REMOVE_TRIES = 200
REMOVE_WAIT_S = 0.02
SKIP = 77
NAME = "burthen-test-"  # then the caller's process id
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Unavailable(Exception):
    """No memory cgroup can be made here; the text says why."""


@dataclasses.dataclass
class Result:
    status: int  # exit status, or minus the signal's number
    timed_out: bool
    wall_s: float
    vm_hwm_bytes: int | None
    max_rss_bytes: int
    max_rss_floor_bytes: int
    cgroup_peak_bytes: int | None
    oom_kills: int
    limit_hits: int
    swap_peak_bytes: int
    major_faults: int
    stdout: bytes
    stderr: bytes


def parse_size(text):
    """512M, 1G, 4096: binary units, as the program's own options."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    return int(text[: len(text) - len(unit)]) * UNITS[unit]


def _read(path):
    try:
        return path.read_text()
    except OSError:
        return None


def _field(text, name):
    """The number after `name` at the start of a line, or 0."""
    for line in (text or "").splitlines():
        words = line.split()
        if words and words[0].rstrip(":") == name:
            return int(words[1])
    return 0


def status_bytes(pid, *names):
    """Sizes of /proc/PID/status by name (VmHWM, VmRSS), or None where the process is no more."""
    text = _read(pathlib.Path(f"/proc/{pid}/status"))
    if text is None or "VmHWM" not in text:  # gone, or a zombie
        return None
    return [_field(text, name) * 1024 for name in names]


def _mounts():
    """Mount point of the v1 memory controller and of the v2 hierarchy, each or None."""
    v1 = v2 = None
    for line in (_read(pathlib.Path("/proc/self/mounts")) or "").splitlines():
        _, where, kind, options = line.split()[:4]
        where = where.encode().decode("unicode_escape")
        if kind == "cgroup" and "memory" in options.split(","):
            v1 = pathlib.Path(where)
        elif kind == "cgroup2":
            v2 = pathlib.Path(where)
    return v1, v2


def _own_groups():
    """Path of our own group in the v1 memory hierarchy and in v2, as /proc says it."""
    v1 = v2 = "/"
    for line in (_read(pathlib.Path("/proc/self/cgroup")) or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            v1 = path
        elif number == "0":
            v2 = path
    return v1, v2


def _upwards(mount, group):
    """Our own group's folder, then its ancestors up to the mount point; those that exist."""
    folder = mount / group.lstrip("/")
    while True:
        if folder.is_dir():
            yield folder
        if folder == mount or mount not in folder.parents:
            break
        folder = folder.parent
    if group != "/" and not (mount / group.lstrip("/")).is_dir():
        yield mount


def _nested(folder):
    """A group and those that its processes made in it (exec makes one), the deepest first."""
    try:
        inner = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        inner = []  # gone
    return [found for path in inner for found in _nested(path)] + [folder]


def _sweep(parent):
    """Remove the empty groups of callers that were killed before they could."""
    for folder in parent.glob(NAME + "*"):
        owner = folder.name[len(NAME) :].split("-")[0]
        if not pathlib.Path(f"/proc/{owner}").exists():
            for group in _nested(folder):
                try:
                    group.rmdir()
                except OSError:
                    pass  # not empty, or gone


class Box:
    """One memory cgroup, as a context manager."""

    def __init__(self, limit_bytes=None, allow_swap=True, only_version=None):
        self.only_version = only_version  # 1 or 2; None: what there is
        self.limit_bytes = limit_bytes
        self.allow_swap = allow_swap
        self.version = None
        self.folder = None

    def __enter__(self):
        self.version, self.folder = self._make()
        try:
            self._limit()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        self._remove()

    def _make(self):
        v1, v2 = _mounts()
        own_v1, own_v2 = _own_groups()
        reasons = []
        name = f"{NAME}{os.getpid()}-{time.monotonic_ns()}"
        if v1 is not None and self.only_version != 2:
            for parent in _upwards(v1, own_v1):
                _sweep(parent)
                try:
                    (parent / name).mkdir()
                    return 1, parent / name
                except OSError as error:
                    reasons.append(f"{parent}: {error.strerror}")
        if v2 is not None and self.only_version != 1:
            for parent in _upwards(v2, own_v2):
                _sweep(parent)
                try:
                    folder = parent / name
                    folder.mkdir()
                except OSError as error:
                    reasons.append(f"{parent}: {error.strerror}")
                    continue
                if not (folder / "memory.max").exists():
                    # Handing the controller down works only in a group without processes of its own.
                    try:
                        (parent / "cgroup.subtree_control").write_text("+memory")
                    except OSError:
                        pass
                if (folder / "memory.max").exists():
                    return 2, folder
                folder.rmdir()
                reasons.append(f"{parent}: memory is not delegated")
        raise Unavailable("no memory cgroup can be made: " + ("; ".join(reasons) or "none is mounted"))

    def _limit(self):
        if self.version == 1:
            if self.limit_bytes is not None:
                (self.folder / "memory.limit_in_bytes").write_text(str(self.limit_bytes))
                # memsw counts memory and swap together; the file is absent where swap is not accounted.
                memsw = self.folder / "memory.memsw.limit_in_bytes"
                if not self.allow_swap and memsw.exists():
                    memsw.write_text(str(self.limit_bytes))
        else:
            if self.limit_bytes is not None:
                (self.folder / "memory.max").write_text(str(self.limit_bytes))
            if not self.allow_swap and (self.folder / "memory.swap.max").exists():
                (self.folder / "memory.swap.max").write_text("0")

    def _remove(self):
        for _ in range(REMOVE_TRIES):
            if all([self._remove_one(group) for group in _nested(self.folder)]):
                return
            time.sleep(REMOVE_WAIT_S)
        print(f"cgroup_box: {self.folder} could not be removed", file=sys.stderr)

    def _remove_one(self, group):
        """Stop what runs in a group, and remove it; whether it is gone."""
        for pid in (_read(group / "cgroup.procs") or "").split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        try:
            if self.version == 1:
                # Give the group's page cache back, or it stays charged to the parent.
                (group / "memory.force_empty").write_text("0")
        except OSError:
            pass
        try:
            group.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True

    def join(self):
        """Move the calling process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self):
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        text = _read(self.folder / name)
        return int(text) if text else None

    def usage_bytes(self):
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int(_read(self.folder / name) or 0)

    def oom_kills(self):
        if self.version == 1:  # each group of the hierarchy counts for itself
            return sum(_field(_read(group / "memory.oom_control"), "oom_kill") for group in _nested(self.folder))
        return _field(_read(self.folder / "memory.events"), "oom_kill")

    def limit_hits(self):
        if self.version == 1:
            return sum(int(_read(group / "memory.failcnt") or 0) for group in _nested(self.folder))
        return _field(_read(self.folder / "memory.events"), "max")

    def swap_bytes(self):
        if self.version == 1:
            return _field(_read(self.folder / "memory.stat"), "swap")
        return int(_read(self.folder / "memory.swap.current") or 0)

    def run(self, argv, env=None, cwd=None, stdin=b"", timeout_s=None):
        """Run argv in the group and wait for it. Output goes to files, so that no pipe can fill and stop it."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as into:
            into.write(stdin)
            into.seek(0)
            floor = status_bytes("self", "VmHWM")[0]
            started = time.monotonic()
            process = subprocess.Popen([str(word) for word in argv], env=env, cwd=cwd, stdin=into, stdout=out,
                                       stderr=err, preexec_fn=self.join)
            status, usage, hwm, swap, timed_out = self._watch(process, started, timeout_s)
            wall_s = time.monotonic() - started
            out.seek(0)
            err.seek(0)
            return Result(status=status, timed_out=timed_out, wall_s=wall_s, vm_hwm_bytes=hwm,
                          max_rss_bytes=usage.ru_maxrss * 1024, max_rss_floor_bytes=floor,
                          cgroup_peak_bytes=self.peak_bytes(), oom_kills=self.oom_kills(),
                          limit_hits=self.limit_hits(), swap_peak_bytes=swap, major_faults=usage.ru_majflt,
                          stdout=out.read(), stderr=err.read())

    def _watch(self, process, started, timeout_s):
        """Sample until the process ends. Popen returns after exec, so every reading is the command's own."""
        hwm, swap, timed_out = None, 0, False
        try:
            while True:
                reading = status_bytes(process.pid, "VmHWM")
                if reading:
                    hwm = max(hwm or 0, reading[0])
                swap = max(swap, self.swap_bytes())
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    return process.returncode, usage, hwm, swap, timed_out
                if timeout_s is not None and not timed_out and time.monotonic() - started > timeout_s:
                    timed_out = True
                    process.kill()
                time.sleep(SAMPLE_S)
        except BaseException:
            if process.returncode is None:
                process.kill()
                process.wait()
            raise


def run(argv, limit_bytes=None, allow_swap=True, **options):
    """Run argv in a fresh group and return its Result; the group is gone afterwards."""
    with Box(limit_bytes, allow_swap) as box:
        return box.run(argv, **options)


def resident_bytes(path):
    """Bytes of a file that the page cache holds, by mincore. Exact for files we own or may write."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    page = os.sysconf("SC_PAGE_SIZE")
    prot_read, map_shared = 1, 1
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return 0
        address = libc.mmap(None, size, prot_read, map_shared, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap", str(path))
        try:
            pages = (size + page - 1) // page
            held = ctypes.create_string_buffer(pages)
            if libc.mincore(address, size, held) != 0:
                raise OSError(ctypes.get_errno(), "mincore", str(path))
            return sum(byte & 1 for byte in held.raw[:pages]) * page
        finally:
            libc.munmap(address, size)
    finally:
        os.close(fd)


def drop_cache(path, tries=5):
    """Evict a file from the page cache and return how many bytes stayed (0 unless somebody maps or reads it)."""
    left = 0
    for _ in range(tries):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)  # dirty pages are not dropped
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        left = resident_bytes(path)
        if left == 0:
            break
        time.sleep(REMOVE_WAIT_S)  # pages that just came in sit on a per-core list, which drains by itself
    return left


def require():
    """End the calling test as skipped, with the reason, where no group can be made."""
    try:
        with Box():
            pass
    except Unavailable as reason:
        print(f"skipped: {reason}")
        raise SystemExit(SKIP)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=parse_size)
    parser.add_argument("--no-swap", action="store_true")
    parser.add_argument("--drop", action="append", default=[], metavar="FILE")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    for path in arguments.drop:
        left = drop_cache(path)
        if left:
            print(f"cgroup_box: {left} bytes of {path} stay in the page cache", file=sys.stderr)
    try:
        result = run(arguments.command, arguments.limit, not arguments.no_swap, timeout_s=arguments.timeout)
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        raise SystemExit(SKIP)
    sys.stdout.buffer.write(result.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(result.stderr)
    sys.stderr.flush()
    shown = {key: value for key, value in dataclasses.asdict(result).items() if key not in ("stdout", "stderr")}
    print(json.dumps(shown), file=sys.stderr)
    raise SystemExit(result.status if result.status >= 0 else 128 - result.status)


if __name__ == "__main__":
    main()
