# SPDX-License-Identifier: MIT
"""The measuring instrument measured: cgroup_box on programs whose use of memory is known."""

import os
import pathlib
import sys
import tempfile
import unittest

import cgroup_box

MIB = 1 << 20
# Touches each page of that many MiB. The interpreter itself is under 32 MiB.
TOUCH = "import sys; n = int(sys.argv[1]) << 20; b = bytearray(n); b[::4096] = b'x' * len(b[::4096]); print(len(b))"
READ = "import sys; f = open(sys.argv[1], 'rb')\nwhile f.read(1 << 20): pass"


def touch(mib, **options):
    return cgroup_box.run([sys.executable, "-c", TOUCH, mib], **options)


class Boxes(unittest.TestCase):
    def test_what_is_touched_is_counted(self):
        small, large = touch(1), touch(65)
        self.assertEqual((small.status, large.status), (0, 0))
        self.assertEqual(large.stdout.decode().strip(), str(65 * MIB))
        self.assertEqual(large.oom_kills, 0)
        for field in ("vm_hwm_bytes", "max_rss_bytes", "cgroup_peak_bytes"):
            before, after = getattr(small, field), getattr(large, field)
            if field == "cgroup_peak_bytes" and after is None:
                continue  # a kernel without memory.peak
            # 64 MiB and the page-sized fill's own 16 KiB; 2 MiB for huge pages and counters that lag.
            self.assertAlmostEqual(after - before, 64 * MIB, delta=2 * MIB, msg=field)

    def test_a_limit_kills_and_is_counted(self):
        result = touch(96, limit_bytes=48 * MIB, allow_swap=False)
        self.assertEqual(result.status, -9)
        self.assertEqual(result.oom_kills, 1)
        if result.cgroup_peak_bytes is not None:
            self.assertLessEqual(result.cgroup_peak_bytes, 48 * MIB)

    def test_an_ample_limit_changes_nothing(self):
        result = touch(16, limit_bytes=256 * MIB)
        self.assertEqual((result.status, result.oom_kills, result.swap_peak_bytes), (0, 0, 0))

    def test_status_output_and_time(self):
        result = cgroup_box.run(["/bin/sh", "-c", "cat; echo e >&2; exit 7"], stdin=b"in")
        self.assertEqual((result.status, result.stdout, result.stderr), (7, b"in", b"e\n"))
        result = cgroup_box.run(["/bin/sleep", "60"], timeout_s=0.3)
        self.assertTrue(result.timed_out)
        self.assertEqual(result.status, -9)

    def test_the_group_is_removed_with_what_still_runs_in_it(self):
        with cgroup_box.Box() as box:
            folder = box.folder
            result = box.run(["/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 & exit 0"])
            self.assertEqual(result.status, 0)
            self.assertTrue(folder.is_dir())
        self.assertFalse(folder.exists())

    def test_groups_that_a_command_makes_are_counted_and_removed(self):
        enter = 'mkdir "$0/inner" && echo $$ > "$0/inner/cgroup.procs" && '
        with cgroup_box.Box() as box:
            folder = box.folder
            result = box.run(["/bin/sh", "-c", enter + "(sleep 60 >/dev/null 2>&1 & exit 0)", folder])
            self.assertEqual(result.status, 0, result.stderr)
            self.assertTrue((folder / "inner").is_dir())
        self.assertFalse(folder.exists())
        with cgroup_box.Box(limit_bytes=256 * MIB, allow_swap=False) as box:
            if box.version == 1:  # in v2 the kernel sums up, and hands the limit down only where it is told to
                limit = 'echo 16777216 > "$0/inner/memory.limit_in_bytes" && '
                result = box.run(["/bin/sh", "-c", enter + limit + f'exec {sys.executable} -c '
                                  '"bytearray(b\'x\') * (64 << 20)"', box.folder])
                self.assertEqual((result.status, result.oom_kills), (-9, 1))
                self.assertGreater(result.limit_hits, 0)

    def test_drop_cache_leaves_nothing_and_the_reader_pays(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BT_TEST_OUT")) as folder:
            path = pathlib.Path(folder) / "file"
            path.write_bytes(os.urandom(MIB) * 64)
            if cgroup_box.drop_cache(path) != 0:
                self.skipTest("this file system keeps its pages (tmpfs)")
            self.assertEqual(cgroup_box.resident_bytes(path), 0)
            with cgroup_box.Box() as box:
                cold = box.run([sys.executable, "-c", READ, path])
                self.assertEqual(cgroup_box.resident_bytes(path), 64 * MIB)
            cgroup_box.drop_cache(path)
            path.read_bytes()  # now the pages are charged to this test, and the next reader has them for nothing
            warm = cgroup_box.run([sys.executable, "-c", READ, path])
            self.assertEqual((cold.status, warm.status), (0, 0))
            if cold.cgroup_peak_bytes is not None:
                self.assertGreater(cold.cgroup_peak_bytes - warm.cgroup_peak_bytes, 56 * MIB)


if __name__ == "__main__":
    cgroup_box.require()
    unittest.main(verbosity=2)
