"""Addressed randomness (design decision 2).

No generator is shared or carried along: each draw names its seed, its purpose and its step, so a resumed run draws what the uninterrupted one
would have drawn, and one worker draws what sixteen do.
"""

from __future__ import annotations

import hashlib
import random


def stream(seed: int, purpose: str, *address: int | str) -> random.Random:
    """A generator of its own for one purpose at one address, e.g. ``stream(0, "parent", 17)``.

    The same arguments give the same numbers on every platform, in every process, under every ``PYTHONHASHSEED``.
    """
    key = "\x1f".join((str(seed), purpose, *map(str, address)))
    return random.Random(int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "big"))
