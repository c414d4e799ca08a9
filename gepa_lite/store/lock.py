"""One writer per run: ``run.lock`` in the run's folder, freed by the system when the process ends, however it ends."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from gepa_lite.errors import RunLockedError, StoreError

_LOCK = "run.lock"
_HOLDER = "run.holder"

# Locks and shared memory, which SQLite's log needs, are unreliable or absent on these.
_KERNEL_TYPES = ("9p", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "vboxsf")
_SMB_TYPES = ("smb2", "smb3", "smbfs")
_FUSE_TYPES = ("fuse.ceph", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs")
_NETWORK_TYPES = frozenset(_KERNEL_TYPES + _SMB_TYPES + _FUSE_TYPES)
_MOUNTS = Path("/proc/self/mounts")


class RunLock:
    """The held lock of a run's folder."""

    def __init__(self, lock: FileLock, holder: Path) -> None:
        self._lock = lock
        self._holder = holder

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Take the lock, at once or not at all.

        Raises:
            RunLockedError: another store, of this process or another, holds it; names the holder where it is known.
            StoreError: the file system has no locks.
        """
        lock, holder = FileLock(folder / _LOCK, thread_local=False), folder / _HOLDER
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunLockedError(
                f"The run in {folder} is being written by {_read_holder(holder)}. Wait for it, stop it, or give this run another name."
            ) from None
        except (OSError, NotImplementedError) as error:
            raise StoreError(f"Can't lock {folder / _LOCK}: {error}. Put the run on a local disk that you may write to.") from error
        _write_holder(holder)
        return cls(lock, holder)

    def release(self) -> None:
        """Let go. A second call does nothing."""
        if self._lock.is_locked:
            with suppress(OSError):
                self._holder.unlink(missing_ok=True)
            self._lock.release()


def _write_holder(holder: Path) -> None:
    """Note who holds the lock, for a message only, so it may fail. It is beside the lock's file, which each try to take it may empty."""
    note = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    fresh = holder.with_name(f"{holder.name}.{os.getpid()}")
    with suppress(OSError):
        fresh.write_text(json.dumps(note), encoding="utf-8")
        fresh.replace(holder)


def _read_holder(holder: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(holder.read_text(encoding="utf-8"))
        who = "this process" if note["pid"] == os.getpid() and note["host"] == socket.gethostname() else f"process {note['pid']}"
        return f"{who} on host {note['host']}, since {note['since']}"
    return "another process"


def refuse_network(folder: Path, mounts: Path = _MOUNTS) -> None:
    """Refuse a folder on a network file system, where the system says which those are (Linux).

    Args:
        folder: it need not exist yet.
        mounts: the system's table of mounts.

    Raises:
        StoreError: naming the folder and the file system.
    """
    kind = _file_system(folder, mounts)
    if kind in _NETWORK_TYPES:
        raise StoreError(
            f"{folder} is on a network file system ({kind}), where locks and SQLite's log are not safe. Keep runs on a local disk: "
            f"set GEPA_LITE_RUNS, or copy the folder there to read it."
        )


def _file_system(folder: Path, mounts: Path) -> str | None:
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    real, found, kind = folder.resolve(), Path("/"), None
    for line in table.splitlines():
        _, point, name, *_ = line.split(" ", 3)
        # blanks and backslashes in a mount point are written as octal escapes
        place = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point))
        # of two mounts on one point the later one is seen, so equal depth replaces
        if real.is_relative_to(place) and len(place.parts) >= len(found.parts):
            found, kind = place, name
    return kind
