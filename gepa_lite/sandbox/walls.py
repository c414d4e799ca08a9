"""The walls around code that a model wrote: bubblewrap with a system-call filter, on Linux."""

from __future__ import annotations

import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SCRATCH_BYTES = 16 * 2**20
"""What the code may write in its working folder, and to one file."""

_FLAGS = ("-S", "-s", "-P", "-B")  # no site-packages, nothing from the working folder, no byte code written
_HARNESS = Path(__file__).with_name("harness.py")
_INSIDE = "/harness.py"
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": "utf-8",
}
"""All that the code finds in its environment: no keys, and one order of sets in every run."""

# audit architecture; system calls that start processes, open sockets, or reach for the kernel: refused
_X86_64 = (0xC000003E, 56, 435, (57, 58, 41, 53, 101, 165, 166, 272, 308, 321, 248, 249, 250, 298, 323, 425, 426, 310, 311, 319, 29))
_AARCH64 = (0xC00000B7, 220, 435, (198, 199, 117, 40, 39, 97, 268, 280, 217, 218, 219, 241, 282, 425, 426, 270, 271, 279, 194))
_ARCHITECTURES = {"x86_64": _X86_64, "aarch64": _AARCH64}
_CLONE_THREAD = 0x00010000
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def filter_program(machine: str) -> bytes:
    """The system-call filter for a machine (``x86_64`` or ``aarch64``), as the kernel takes it; b"" for another.

    Threads may be started and processes not. ``clone3`` hides its flags in memory, so it does not exist: the C library falls back to ``clone``.
    """
    if machine not in _ARCHITECTURES:
        return b""
    architecture, clone, clone3, refused = _ARCHITECTURES[machine]
    load, equal, at_least, and_, give = 0x20, 0x15, 0x35, 0x54, 0x06
    code: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (give, 0, 0, _KILL),
        (load, 0, 0, 0),
        (at_least, 0, 1, 0x40000000),  # the x32 numbering would pass by the list
        (give, 0, 0, _KILL),
    ]
    for number in refused:
        code += [(equal, 0, 1, number), (give, 0, 0, _EPERM)]
    code += [(equal, 0, 1, clone3), (give, 0, 0, _ENOSYS)]
    code += [
        (equal, 0, 4, clone),
        (load, 0, 0, 16),
        (and_, 0, 0, _CLONE_THREAD),
        (equal, 0, 1, 0),
        (give, 0, 0, _EPERM),
        (give, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def interpreter() -> Path:
    """The Python outside any virtual environment, which sees no installed packages."""
    return Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()


@cache
def walled_command() -> tuple[str, ...] | None:
    """The command that runs the harness behind walls, or None where this machine has none. Tried once, with the filter.

    It wants the filter on descriptor ``{filter}``: the text stands in it for ``with_filter`` to fill in.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None or not filter_program(platform.machine()):
        return None
    python = interpreter()
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--seccomp", "{filter}", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", "/usr", "/usr"]
    for link in map(Path, ("/lib", "/lib64", "/lib32", "/bin", "/sbin")):
        if link.is_symlink():
            command += ["--symlink", str(link.readlink()), str(link)]
        elif link.is_dir():
            command += ["--ro-bind", str(link), str(link)]
    base = Path(sys.base_prefix).resolve()
    if not base.is_relative_to("/usr"):
        command += ["--ro-bind", str(base), str(base)]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind", str(_HARNESS), _INSIDE]
    command += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    command += ["--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/", "--"]
    walled = (*command, str(python), *_FLAGS, _INSIDE)
    probe = b'{"code": "", "steps": [], "output_chars": 1, "memory_bytes": 268435456, "file_bytes": 1024}'
    try:
        done = run_filtered(walled, input=probe, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return walled if done.returncode == 0 and done.stdout else None


def open_command() -> tuple[str, ...]:
    """The command that runs the harness without walls: time, memory and the audit hook alone hold the code."""
    return (str(interpreter()), *_FLAGS, str(_HARNESS))


def run_filtered(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """``subprocess.run`` of a walled command, with the filter handed in on a descriptor of its own."""
    with tempfile.TemporaryFile() as program:
        program.write(filter_program(platform.machine()))
        program.seek(0)
        number = program.fileno()
        filled = [str(number) if part == "{filter}" else part for part in command]
        return subprocess.run(filled, pass_fds=(number,), check=False, **options)
