"""Which of the server's slots takes which request, so that a prefix shared by many requests is worked through once.

llama.cpp keeps one context per slot and reuses what a slot already holds, but slots do not share: sixteen requests with one new instruction on eight
slots would have it worked through eight times. Here the first request with a new prefix works it through and saves the slot's state as a snapshot; the
others wait for that and start from the snapshot, which costs milliseconds. On a CPU waiting loses nothing: the cores are busy either way.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Slot:
    number: int
    busy: bool = False
    prefix: str | None = None
    text: str = ""
    used: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """One slot, held for one request.

    Attributes:
        slot: its number at the server.
        prefix: the request's shared prefix, or None.
        restore: the snapshot to load into the slot first, or None.
        save: the snapshot that this request has to make of its prefix, then report with ``SlotPool.ready``; or None.
    """

    slot: int
    prefix: str | None = None
    restore: str | None = None
    save: str | None = None


class SlotPool:
    """Hands out the slots of one server. Safe to use from many threads."""

    def __init__(self, slots: int, snapshot_bytes: int) -> None:
        """A pool of ``slots`` slots that keeps at most ``snapshot_bytes`` of snapshots."""
        self._slots = [_Slot(number) for number in range(slots)]
        self._limit = snapshot_bytes
        self._snapshots: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._led: set[str] = set()
        self._leases = 0
        self._changed = threading.Condition()

    def acquire(self, prefix: str | None, text: str) -> Lease:
        """Wait for a slot.

        Args:
            prefix: what the request shares with others, or None if nothing worth a snapshot.
            text: the whole prompt, to find the slot that holds most of it.
        """
        with self._changed:
            while True:
                free = [slot for slot in self._slots if not slot.busy]
                if free and prefix not in self._led:
                    return self._lease(free, prefix, text)
                self._changed.wait()

    def ready(self, lease: Lease, size: int | None) -> list[str]:
        """The prefix of a lease with ``save`` is worked through: those who waited for it go on.

        Args:
            lease: the lease.
            size: bytes of its snapshot, or None if it could not be saved.

        Returns:
            Older snapshots to delete, so that the rest keeps to the limit.
        """
        dropped: list[str] = []
        with self._changed:
            if lease.prefix is not None and lease.save is not None:
                self._led.discard(lease.prefix)
                if size is not None:
                    self._snapshots[lease.prefix] = (lease.save, size)
            while sum(held for _, held in self._snapshots.values()) > self._limit:
                _, (name, _) = self._snapshots.popitem(last=False)
                dropped.append(name)
            self._changed.notify_all()
        return dropped

    def release(self, lease: Lease, *, lost: bool = False) -> None:
        """Give the slot back. ``lost``: the lease's snapshot could not be restored, so no one is sent to it again."""
        with self._changed:
            slot = self._slots[lease.slot]
            slot.busy = False
            if lease.save is not None and lease.prefix in self._led:
                # it ended before its prefix was worked through: the next in line leads
                self._led.discard(lease.prefix)
                slot.prefix, slot.text = None, ""
            if lost and lease.prefix is not None:
                self._snapshots.pop(lease.prefix, None)
            self._changed.notify_all()

    def _lease(self, free: list[_Slot], prefix: str | None, text: str) -> Lease:
        # the slot that holds most of this prompt; among equals the one that was idle longest
        slot = max(free, key=lambda one: (prefix is not None and one.prefix == prefix, _common(one.text, text), -one.used))
        restore, save = None, None
        self._leases += 1
        if prefix is not None and slot.prefix != prefix:
            if prefix in self._snapshots:
                self._snapshots.move_to_end(prefix)
                restore = self._snapshots[prefix][0]
            else:
                self._led.add(prefix)
                save = f"{self._leases}.kv"
        slot.busy, slot.prefix, slot.text, slot.used = True, prefix, text, self._leases
        return Lease(slot.number, prefix, restore, save)


def _common(one: str, other: str) -> int:
    """How many characters two texts share at their start."""
    return len(os.path.commonprefix([one, other]))  # noqa: RUF071 (these are texts, not paths)
