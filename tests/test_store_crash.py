"""A writer that is killed at any moment loses nothing that it was told is saved, and leaves nothing half-written.

Run as a program, this file is the writer that the tests kill: ``python test_store_crash.py MODE FOLDER``.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import threading
from pathlib import Path

from gepa_lite.core.call import Usage
from gepa_lite.core.events import StepEnded
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.errors import StoreError, UsageError
from gepa_lite.lm.protocol import Completion
from gepa_lite.store.run_store import RunStore

KILLS = 24
BOUND = Usage(1, 100, 10, 0.5)
COST = Usage(1, 70, 7, 0.25)


def rollout_of(key: str, text: str = "fine") -> Rollout:
    return Rollout(RolloutKey("c", key), 0.5, Feedback(0.5, text))


def tell(line: str) -> None:
    """One line to the test, in one piece, at once."""
    os.write(1, f"{line}\n".encode())


def resume(folder: Path) -> RunStore:
    """Open the run; start it where an earlier process died before it had."""
    try:
        return RunStore.open(folder)
    except (UsageError, StoreError):
        return RunStore.create(folder)


def write_until_killed(folder: Path) -> None:
    store = resume(folder)
    session = store.begin_session({"pid": os.getpid()})
    tell(f"session {session}")

    def work(name: int) -> None:
        for number in range(1_000_000):
            key = f"{session}-{name}-{number}"
            store.begin_call(f"answered {key}", "task", "m", BOUND)
            store.begin_call(f"open {key}", "judge", "m", BOUND)
            store.save_completion(key, Completion("reply " + key, usage=COST), "task", 0.5, f"answered {key}")
            tell(f"completion {key}")
            store.save_rollout(rollout_of(key))
            tell(f"rollout {key}")

    def journal() -> None:
        for number in range(1_000_000):
            step = session * 1_000_000 + number
            store.commit([StepEnded(step), StepEnded(step), StepEnded(step)])
            tell(f"events {step}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)] + [threading.Thread(target=journal)]
    for thread in threads:
        thread.start()


def fill_a_small_disk(folder: Path) -> None:
    """Write until the limit on the size of files stops it, like a full disk; then lift the limit and go on."""
    store = RunStore.create(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    failures: list[str] = []

    def work(name: int) -> None:
        for number in range(1000):
            key = f"{name}-{number}"
            store.begin_call(f"call {key}", "task", "m", BOUND)
            try:
                store.save_rollout(rollout_of(key, "x" * 2000))
            except StoreError as error:
                failures.append(str(error))
                return
            tell(f"rollout {key}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(f"failed {len(failures)} {failures[0]}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.commit([StepEnded(7)])
    store.save_rollout(rollout_of("later"))
    tell("rollout later")
    tell(f"events {len(store.events())}")
    store.close()


def spawn(mode: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, mode, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    folder, moments = tmp_path / "run", random.Random(0)
    acknowledged: dict[str, set[str]] = {"session": set(), "completion": set(), "rollout": set(), "events": set()}
    for kill in range(KILLS):
        writer = spawn("work", folder)
        assert writer.stdout is not None
        first = b""
        if kill % 4:  # most at work, some while they start
            first = writer.stdout.readline()
        threading.Event().wait(moments.uniform(0.0, 0.08) if first else moments.uniform(0.05, 0.3))
        writer.kill()
        out, err = writer.communicate()
        assert writer.returncode == -9, err.decode()
        for line in (first + out).decode().splitlines():
            what, _, name = line.partition(" ")
            acknowledged[what].add(name)
        check(folder, acknowledged)
    assert all(len(names) > 10 for names in acknowledged.values()), acknowledged


def check(folder: Path, acknowledged: dict[str, set[str]]) -> None:
    with resume(folder) as store:  # the lock is free again
        steps = [event.step for event in store.events() if isinstance(event, StepEnded)]
        assert len(steps) % 3 == 0
        assert all(len(set(steps[start : start + 3])) == 1 for start in range(0, len(steps), 3)), "half a transaction"
        assert acknowledged["events"] <= set(map(str, steps))
        assert acknowledged["rollout"] <= {rollout.key.example_id for rollout in store.rollouts()}
        assert all(store.completion(key) == Completion("reply " + key, usage=COST) for key in acknowledged["completion"])
        paid = store.paid()
        assert paid.settled["task"].calls >= len(acknowledged["completion"])
        assert paid.settled["task"].tokens == 77 * paid.settled["task"].calls
        # the call that was noted just before an acknowledged reply is known, and it was never answered
        assert paid.lost["judge"].calls >= len(acknowledged["completion"])
        assert paid.lost["judge"].input_tokens == 100 * paid.lost["judge"].calls
        assert paid.lost["judge"].usd == 0.5 * paid.lost["judge"].calls
        assert bool(acknowledged["rollout"]) <= (store.seconds() > 0)


def test_a_full_disk_stops_in_words_and_the_store_works_again_afterwards(tmp_path: Path) -> None:
    writer = spawn("fill", tmp_path / "run")
    out, err = writer.communicate(timeout=60)
    assert writer.returncode == 0, err.decode()
    lines = [line.split(" ", 1) for line in out.decode().splitlines()]
    (failed,) = [rest for what, rest in lines if what == "failed"]
    assert failed.startswith("8 ")
    assert all(word in failed for word in ("run.db", "full", "resume"))
    saved = {rest for what, rest in lines if what == "rollout"}
    assert len(saved) > 20
    assert ["events", "1"] in lines
    with RunStore.open(tmp_path / "run") as store:
        assert {rollout.key.example_id for rollout in store.rollouts()} == saved
        assert store.events() == [StepEnded(7)]
        # calls that were noted while the disk was full were written when it no longer was
        assert store.paid().lost["task"].calls == len(saved) - 1 + 8


if __name__ == "__main__":
    {"work": write_until_killed, "fill": fill_a_small_disk}[sys.argv[1]](Path(sys.argv[2]))
