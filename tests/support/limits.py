# SPDX-License-Identifier: MIT
"""Start a program under a limit that a container, a service manager or an administrator sets.

Each function gives a callable for subprocess's preexec_fn; several are joined with `both`. What a limit takes away stays
taken from the program and its children, never from the test.
"""

import ctypes
import errno
import os
import platform
import resource
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
BPF_LOAD_WORD, BPF_JUMP_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06
IO_URING_SETUP = 425  # one number on every architecture (they were given after the tables were joined)


def soft(what, value):
    """A soft limit and the hard one with it."""
    def limit():
        resource.setrlimit(what, (value, value))
    return limit


def both(*limits):
    def limit():
        for each in limits:
            each()
    return limit


def refuse_io_uring(number=errno.EPERM):
    """A seccomp filter, as container runtimes set it: io_uring_setup fails with an errno, all else is allowed."""
    def instruction(code, true, false, value):
        return struct.pack("HBBI", code, true, false, value)

    program = b"".join((
        instruction(BPF_LOAD_WORD, 0, 0, 0),  # seccomp_data.nr
        instruction(BPF_JUMP_EQUAL, 0, 1, IO_URING_SETUP),
        instruction(BPF_RETURN, 0, 0, SECCOMP_RET_ERRNO | number),
        instruction(BPF_RETURN, 0, 0, SECCOMP_RET_ALLOW)))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HP", len(program) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)

    def limit():
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or \
                libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no seccomp filter can be set")
    limit.keeps = buffer  # the header points at it
    return limit


def close(number):
    """Without a standard descriptor."""
    def limit():
        os.close(number)
    return limit


def can_filter():
    return platform.system() == "Linux"
