"""The store: one contract, kept in a file and in memory; and what only a file has to face."""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gepa_lite.core.budget import ROLES
from gepa_lite.core.call import Call, Trace, Usage
from gepa_lite.core.events import Event, SeedValidated, StepEnded, Stopped, Validated
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Failure, Rollout, RolloutKey
from gepa_lite.errors import RunLockedError, StoreError, UsageError
from gepa_lite.lm.protocol import Completion
from gepa_lite.store import MemoryStore, Paid, RunStore, Store, find_run, list_runs, run_folder
from gepa_lite.store.lock import refuse_network
from gepa_lite.store.schema import connect, connect_writer
from gepa_lite.store.writer import Writer

BOUND = Usage(1, 100, 10, 0.5)
COST = Usage(1, 70, 7, 0.25)


def a_rollout(example: str = "e", candidate: str = "c", value: float | None = 0.5, sample: int = 0) -> Rollout:
    call = Call("route", {"q": "hi"}, ({"role": "user", "content": "hi"},), "reply", {"a": "x"}, usage=COST, seconds=0.1)
    feedback = None if value is None else Feedback(value, "so so", {"route": "be brief"}, {"speed": 1.0})
    return Rollout(RolloutKey(candidate, example, sample), value, feedback, {"a": "x"}, Trace((call,)), usage=COST)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run ``work`` in so many threads and raise the first error of any."""
    errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def guarded(name: int) -> None:
        try:
            work(name)
        except BaseException as error:
            errors.put(error)

    threads = [threading.Thread(target=guarded, args=(name,)) for name in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not errors.empty():
        raise errors.get()


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with RunStore.create(tmp_path / "run") if request.param == "file" else MemoryStore() as opened:
        yield opened


class TestStore:
    """What every store does."""

    def test_events_are_kept_in_order_with_numbers(self, store: Store) -> None:
        events: list[Event] = [SeedValidated((0.5, None)), StepEnded(0), Stopped("budget", "spent")]
        store.commit(events[:1])
        store.commit([])
        store.commit(events[1:])
        assert store.events() == events
        assert store.events_since(0) == list(enumerate(events, 1))
        assert store.events_since(2) == [(3, events[2])]
        assert store.events_since(3) == []

    def test_completions_are_found_by_key_and_the_first_stays(self, store: Store) -> None:
        assert store.completion("k") is None
        store.save_completion("k", Completion("first", usage=COST), "task", 0.1)
        store.save_completion("k", Completion("second"), "task", 0.1)
        assert store.completion("k") == Completion("first", usage=COST)
        assert store.paid() == Paid()

    def test_rollouts_are_found_by_key_and_the_first_stays(self, store: Store) -> None:
        first, other, sample = a_rollout("e1"), a_rollout("e1", "d"), a_rollout("e1", sample=1)
        assert store.rollout(first.key) is None
        for rollout in (first, other, sample, a_rollout("e1", value=0.0)):
            store.save_rollout(rollout)
        assert store.rollout(first.key) == first
        assert store.rollout(sample.key) == sample
        assert list(store.rollouts()) == [first, other, sample]
        assert list(store.rollouts_of("c")) == [first, sample]
        assert list(store.rollouts_of("nobody")) == []

    def test_many_rollouts_are_looked_up_at_once(self, store: Store) -> None:
        kept = [a_rollout(f"e{number}", candidate, sample=sample) for number in range(600) for candidate in "cd" for sample in (0, 1)]
        waits = [store.hand_in_rollout(rollout) for rollout in kept]
        for wait in waits:
            wait()
        asked = [rollout.key for rollout in kept if rollout.key.candidate_id == "c" or rollout.key.sample == 1]
        assert store.rollouts_at([*asked, RolloutKey("c", "never"), RolloutKey("nobody", "e1")]) == {
            rollout.key: rollout for rollout in kept if rollout.key in set(asked)
        }
        assert store.rollouts_at([]) == {}

    def test_what_is_handed_in_is_there_after_the_wait_for_every_thread(self, store: Store) -> None:
        wait = store.hand_in_rollout(a_rollout("e"))

        def work(name: int) -> None:
            wait()
            assert store.rollout(RolloutKey("c", "e")) == a_rollout("e")

        in_threads(8, work)
        wait()
        with pytest.raises(ValueError, match="missing"):
            store.hand_in_rollout(a_rollout("f", value=None))

    def test_a_failed_rollout_is_kept_and_a_missing_one_is_refused(self, store: Store) -> None:
        failed = Rollout(RolloutKey("c", "e"), 0.0, Feedback(0.0, "it raised"), failure=Failure("parse", "candidate", "it raised"))
        store.save_rollout(failed)
        assert store.rollout(failed.key) == failed
        with pytest.raises(ValueError, match="missing"):
            store.save_rollout(a_rollout("f", value=None))
        assert store.rollout(RolloutKey("c", "f")) is None

    def test_calls_are_paid_when_they_are_settled(self, store: Store) -> None:
        store.begin_session({})
        store.begin_call("a", "task", "m", BOUND)
        store.begin_call("b", "reflection", "m", BOUND)
        store.begin_call("c", "task", "m", BOUND)
        assert store.paid() == Paid()
        store.save_completion("k", Completion("x", usage=COST, attempts=2), "task", 1.5, call_id="a")
        store.end_call("b", Usage(1, 5, 0, None), 0.5, 3, "rate_limit")
        paid = store.paid()
        assert paid.settled == {"task": COST, "reflection": Usage(1, 5, 0, None), "judge": Usage(), "training": Usage()}
        assert paid.seconds == {"task": 1.5, "reflection": 0.5, "judge": 0.0, "training": 0.0}
        assert all(paid.lost[role] == Usage() for role in ROLES)
        assert paid.total == Usage(2, 75, 7, None)

    def test_a_call_is_settled_once(self, store: Store) -> None:
        store.begin_call("a", "task", "m", BOUND)
        with pytest.raises(ValueError, match="open already"):
            store.begin_call("a", "task", "m", BOUND)
        store.end_call("a", COST, 0.1, 1, "ok")
        with pytest.raises(ValueError, match="'a' is not open"):
            store.end_call("a", COST, 0.1, 1, "ok")
        with pytest.raises(ValueError, match="'z' is not open"):
            store.save_completion("k", Completion("x"), "task", 0.1, call_id="z")
        assert store.completion("k") is None
        store.begin_call("a", "task", "m", BOUND)  # an id may come again once it is free
        assert store.paid().settled["task"] == COST

    def test_calls_of_an_earlier_session_are_lost_unless_they_are_settled_after_all(self, store: Store) -> None:
        store.begin_session({})
        store.begin_call("a", "task", "m", BOUND)
        store.begin_call("b", "judge", "m", BOUND)
        store.begin_session({})
        store.begin_call("c", "task", "m", BOUND)
        assert store.paid().lost == {"task": BOUND, "judge": BOUND, "reflection": Usage(), "training": Usage()}
        store.end_call("a", COST, 0.1, 1, "ok")
        assert store.paid().lost["task"] == Usage()
        assert store.paid().settled["task"] == COST

    def test_examples_by_split(self, store: Store) -> None:
        train = [Example("1", {"q": "a"}, {"y": 1}), Example("2", {"q": "b"}, {"y": None})]
        store.save_examples("train", [Example("0", {}, {})] * 3)
        store.save_examples("train", train)
        assert [(item.id, item.inputs, item.labels) for item in store.examples("train")] == [(i.id, i.inputs, i.labels) for i in train]
        assert store.examples("test") == []

    def test_meta_is_replaced_and_copied(self, store: Store) -> None:
        assert store.meta("x") is None
        store.put_meta("x", {"a": (1, 2)})
        store.put_meta("x", {"a": [3.5, "ü"]})
        store.meta("x")["a"].append("not kept")
        assert store.meta("x") == {"a": [3.5, "ü"]}

    def test_sessions_add_up(self, store: Store) -> None:
        assert store.seconds() == 0.0
        assert store.begin_session({"host": "a"}) == 1
        store.commit([StepEnded(0)])
        assert store.seconds() == 0.0  # the current one is the caller's to add
        store.end_session(12.5, "done")
        assert store.seconds() == 12.5
        with pytest.raises(ValueError, match="no session is open"):
            store.end_session(1.0, "done")
        assert store.begin_session({}) == 2
        store.end_session(0.5, "done")
        assert store.seconds() == 13.0

    def test_after_close_nothing_works(self, store: Store) -> None:
        store.begin_call("a", "task", "m", BOUND)
        store.close()
        store.close()
        uses: list[Callable[[], object]] = [
            lambda: store.commit([StepEnded(0)]),
            store.events,
            lambda: store.events_since(0),
            lambda: store.completion("k"),
            lambda: store.save_completion("k", Completion("x"), "task", 0.1),
            lambda: store.rollout(RolloutKey("c", "e")),
            lambda: store.save_rollout(a_rollout()),
            lambda: store.hand_in_rollout(a_rollout()),
            lambda: store.rollouts_at([RolloutKey("c", "e")]),
            lambda: list(store.rollouts()),
            lambda: list(store.rollouts_of("c")),
            lambda: store.begin_call("b", "task", "m", BOUND),
            lambda: store.end_call("a", COST, 0.1, 1, "ok"),
            store.paid,
            lambda: store.save_examples("train", []),
            lambda: store.examples("train"),
            lambda: store.put_meta("x", 1),
            lambda: store.meta("x"),
            lambda: store.begin_session({}),
            lambda: store.end_session(1.0, "x"),
            store.seconds,
        ]
        for use in uses:
            with pytest.raises(StoreError, match="closed"):
                use()

    def test_many_threads_at_once(self, store: Store) -> None:
        def work(name: int) -> None:
            for number in range(8):
                key = f"{name}-{number}"
                store.begin_call(key, "task", "m", BOUND)
                store.save_completion(key, Completion(key, usage=Usage(1, 1, 1, 0.5)), "task", 0.5, call_id=key)
                assert store.completion(key) is not None  # what was saved is there
                store.save_rollout(a_rollout(key))
                assert store.rollout(RolloutKey("c", key)) == a_rollout(key)
                store.commit([StepEnded(name), StepEnded(name)])

        in_threads(32, work)
        assert len(list(store.rollouts())) == 256
        assert store.paid().settled["task"] == Usage(256, 256, 256, 128.0)
        steps = [event.step for event in store.events() if isinstance(event, StepEnded)]
        assert len(steps) == 512
        assert steps[::2] == steps[1::2]  # each commit is in one piece

    def test_threads_that_save_one_key_agree_on_what_it_holds(self, store: Store) -> None:
        seen: set[str] = set()

        def work(name: int) -> None:
            store.save_completion("k", Completion(str(name)), "task", 0.1)
            completion = store.completion("k")
            assert completion is not None
            seen.add(completion.text)

        in_threads(16, work)
        assert len(seen) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "some where" / "run"


def filled(folder: Path) -> None:
    with RunStore.create(folder) as store:
        store.begin_session({})
        store.commit([SeedValidated((1.0,)), *[StepEnded(step) for step in range(2000)]])
        store.save_rollout(a_rollout())
        store.save_completion("k", Completion("x"), "task", 0.1)
        store.end_session(2.0, "done")


def test_a_run_is_one_file_once_it_is_closed(folder: Path) -> None:
    filled(folder)
    assert {path.name for path in folder.iterdir()} <= {"run.db", "run.lock"}
    with RunStore.open(folder) as store:
        assert len(store.events()) == 2001
        assert store.rollout(a_rollout().key) == a_rollout()
        assert store.completion("k") == Completion("x")
        assert store.seconds() == 2.0
        assert store.begin_session({}) == 2


def test_what_is_on_disk_is_plain_and_dated(folder: Path) -> None:
    with RunStore.create(folder) as store:
        store.commit([Validated(3, (0,), {"route": "Decide."}, (0.5,)), Stopped("budget", "spent")])
    rows = sqlite3.connect(folder / "run.db").execute("SELECT seq, step, kind, version, body, at FROM events").fetchall()
    assert [row[:4] for row in rows] == [(1, 3, "validated", 1), (2, None, "stopped", 1)]
    assert json.loads(rows[1][4]) == {"code": "budget", "reason": "spent"}
    assert datetime.fromisoformat(rows[1][5]).utcoffset() == timedelta(0)


def test_a_second_writer_is_refused_and_told_who_holds_the_run(folder: Path) -> None:
    with RunStore.create(folder):
        for attempt in (RunStore.open, RunStore.create):
            with pytest.raises(RunLockedError, match=r"this process on host .+, since \d{4}-"):
                attempt(folder)
        code = f"import pathlib; from gepa_lite.store import RunStore; RunStore.open(pathlib.Path({str(folder)!r}))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"is being written by process {os.getpid()} on host" in other.stderr
        (folder / "run.holder").unlink()
        with pytest.raises(RunLockedError, match="another process"):
            RunStore.open(folder)
    RunStore.open(folder).close()


def test_create_wants_a_new_run_and_open_a_run(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        RunStore.open(folder)
    with pytest.raises(UsageError, match="no run"):
        RunStore.read(folder)
    assert not folder.exists()
    filled(folder)
    with pytest.raises(UsageError, match="already"):
        RunStore.create(folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="Can't make"):
        RunStore.create(tmp_path / "file" / "run")
    RunStore.open(folder).close()  # a failed attempt keeps no lock


def test_a_folder_that_cannot_be_written_is_a_usage_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(folder)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the superuser may write anywhere, so permissions alone can't show it
    with pytest.raises(UsageError, match="can't be written to"):
        RunStore.open(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_finished_run_is_read_from_a_folder_that_takes_no_files(folder: Path) -> None:
    filled(folder)
    folder.chmod(0o500)
    try:
        with RunStore.read(folder) as reader:
            assert len(reader.events()) == 2001
    finally:
        folder.chmod(0o700)


def test_create_finishes_what_a_crash_left_blank(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "run.db").touch()
    for attempt in (RunStore.open, RunStore.read):
        with pytest.raises(StoreError, match="empty"):
            attempt(folder)
    with RunStore.create(folder) as store:
        store.commit([StepEnded(0)])


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 // 4096 * 4096])


def garbled(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def holed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xff" * (len(content) - 4096 * 3)
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncated, garbled, holed])
def test_a_damaged_file_is_named(folder: Path, damage: Callable[[Path], None]) -> None:
    filled(folder)
    damage(folder / "run.db")

    def use(attempt: Callable[[Path], RunStore]) -> None:
        with attempt(folder) as store:
            store.events()
            list(store.rollouts())

    for attempt in (RunStore.open, RunStore.read):
        with pytest.raises(StoreError, match=r"run\.db.*damaged"):
            use(attempt)


def test_files_of_others_and_of_later_releases_are_left_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    path = folder / "run.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE cats (name)")
    other.close()
    before = path.read_bytes()
    for attempt in (RunStore.open, RunStore.read):
        with pytest.raises(StoreError, match="not one of a gepa_lite run"):
            attempt(folder)
    with pytest.raises(UsageError, match="already"):
        RunStore.create(folder)
    assert path.read_bytes() == before
    path.unlink()
    filled(folder)
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(StoreError, match="Upgrade"):
        RunStore.open(folder)


def test_events_of_later_releases_say_to_upgrade(folder: Path) -> None:
    filled(folder)
    with sqlite3.connect(folder / "run.db") as later:
        later.execute("INSERT INTO events (kind, version, body, at) VALUES ('dreamt', 1, '{}', '')")
    later.close()
    with RunStore.read(folder) as store, pytest.raises(StoreError, match="Upgrade"):
        store.events()


def test_readers_follow_a_writer_and_never_write(folder: Path) -> None:
    with RunStore.create(folder) as store, RunStore.read(folder) as reader, RunStore.read(folder) as second:
        done = threading.Event()

        def write() -> None:
            for step in range(200):
                store.commit([StepEnded(step), StepEnded(step)])
            done.set()

        seen = 0
        writing = threading.Thread(target=write)
        writing.start()
        while not done.is_set():
            new = reader.events_since(seen)
            assert len(new) % 2 == 0  # whole commits only
            seen += len(new)
            assert len(second.events()) >= seen
        writing.join()
        assert len(reader.events()) == 400
        for use in (
            lambda: reader.commit([StepEnded(0)]),
            lambda: reader.begin_call("a", "task", "m", BOUND),
            lambda: reader.begin_session({}),
        ):
            with pytest.raises(StoreError, match="opened for reading"):
                use()


def test_readers_see_the_ledger(folder: Path) -> None:
    with RunStore.create(folder) as store, RunStore.read(folder) as reader:
        assert reader.paid() == Paid()
        store.begin_session({})
        store.begin_call("a", "task", "m", BOUND)
        store.begin_call("b", "task", "m", BOUND)
        store.end_call("b", Usage(1, 2, 3, None), 0.5, 1, "refused")
        store.put_meta("x", 1)
        assert reader.paid() == store.paid()  # "a" is in flight, not lost
        assert reader.paid().settled["task"] == Usage(1, 2, 3, None)
        store.end_session(4.0, "stopped")
        assert reader.seconds() == 4.0
        assert reader.paid().lost["task"] == BOUND
    with RunStore.open(folder) as store:
        assert store.paid().lost["task"] == BOUND
        assert store.paid().settled["task"] == Usage(1, 2, 3, None)


def test_an_id_that_comes_again_in_a_later_session_hides_no_loss(folder: Path) -> None:
    with RunStore.create(folder) as store:
        store.begin_session({})
        store.begin_call("a", "task", "m", BOUND)
    with RunStore.open(folder) as store:
        store.begin_session({})
        store.begin_call("a", "task", "m", BOUND)
        store.save_completion("k", Completion("x", usage=COST), "task", 0.5, call_id="a")
        assert (store.paid().settled["task"], store.paid().lost["task"]) == (COST, BOUND)


def test_a_session_that_never_ended_counts_up_to_its_last_write(folder: Path) -> None:
    with RunStore.create(folder) as store, RunStore.read(folder) as reader:
        store.begin_session({})
        time.sleep(0.05)
        store.put_meta("x", 1)
        counted = reader.seconds()
        assert 0.05 <= counted < 5
        time.sleep(0.05)
    with RunStore.open(folder) as store:
        assert store.seconds() == counted
        store.begin_session({})
    rows = sqlite3.connect(folder / "run.db").execute("SELECT reason FROM sessions ORDER BY id").fetchall()
    assert rows == [("crashed",), (None,)]


def test_a_locked_database_is_told_and_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gepa_lite.store.schema._BUSY_SECONDS", 0.05)
    with RunStore.create(folder) as store:
        other = sqlite3.connect(folder / "run.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.begin_call("a", "task", "m", BOUND)
        with pytest.raises(StoreError, match=r"Can't write .*run\.db: another program holds the database"):
            store.commit([StepEnded(0)])
        other.execute("ROLLBACK")
        other.close()
        store.commit([StepEnded(1)])
        assert store.events() == [StepEnded(1)]
    with RunStore.open(folder) as store:  # the note that nobody waited for was written later
        assert store.paid().lost["task"] == BOUND


def test_notes_that_cannot_be_written_are_told_at_close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gepa_lite.store.schema._BUSY_SECONDS", 0.05)

    def use(fails: bool) -> None:
        with RunStore.create(folder / str(fails)) as store:
            other = sqlite3.connect(store.path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            store.begin_call("a", "task", "m", BOUND)
            if fails:
                raise KeyError("mine")

    with pytest.raises(StoreError, match="1 notes of model calls"):
        use(fails=False)
    with pytest.raises(KeyError, match="mine"):  # an error that is under way is not hidden by one of closing
        use(fails=True)
    RunStore.open(folder / "False").close()  # the lock is free all the same


def test_a_record_that_cannot_be_kept_leaves_nothing_and_harms_nobody(folder: Path) -> None:
    with RunStore.create(folder) as store:
        with pytest.raises(ValueError, match="finite"):
            store.commit([StepEnded(0), SeedValidated((float("nan"),))])
        with pytest.raises(ValueError, match="valid Unicode"):
            store.save_completion("\ud800", Completion("x"), "task", 0.1)
        with pytest.raises(ValueError, match="too large"):
            store.begin_call("a", "task", "m", Usage(1, 2**63, 0, 0.0))
        with pytest.raises(ValueError, match="finite"):
            store.begin_call("a", "task", "m", Usage(1, 1, 0, float("nan")))
        store.save_completion("k", Completion("cut \ud83d", usage=COST), "task", 0.1)
        assert store.completion("k") == Completion("cut \ud83d", usage=COST)
        assert store.events() == []


def test_one_bad_operation_does_not_fail_its_group(folder: Path) -> None:
    filled(folder)
    path = folder / "run.db"
    hold, entered = threading.Event(), threading.Event()

    def heartbeat() -> tuple[()]:
        entered.set()
        hold.wait(5)
        return ()

    writer = Writer(path, connect_writer(path), heartbeat)
    outcomes: dict[str, str] = {}

    def write(key: str) -> None:
        body = None if key == "bad" else "1"
        try:
            writer.write([("INSERT INTO meta (key, body) VALUES (?, ?)", (key, body))])
            outcomes[key] = "written"
        except StoreError as error:
            outcomes[key] = str(error)

    writer.queue([("INSERT INTO meta (key, body) VALUES ('first', '1')", ())])
    entered.wait(5)  # the first group is held, so the others gather in one
    threads = [threading.Thread(target=write, args=(key,)) for key in ("a", "bad", "b")]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    hold.set()
    for thread in threads:
        thread.join()
    writer.close()
    assert "NOT NULL" in outcomes.pop("bad")
    assert outcomes == {"a": "written", "b": "written"}
    keys = connect(path, "ro").execute("SELECT key FROM meta ORDER BY key").fetchall()
    assert keys == [("a",), ("b",), ("first",)]


def test_a_connection_that_broke_is_made_anew(folder: Path) -> None:
    filled(folder)
    path = folder / "run.db"
    connection = connect_writer(path)
    writer = Writer(path, connection, lambda: ())
    connection.close()
    with pytest.raises(StoreError, match=r"Can't write .*run\.db"):
        writer.write([("INSERT INTO meta (key, body) VALUES ('a', '1')", ())])
    writer.write([("INSERT INTO meta (key, body) VALUES ('b', '1')", ())])
    writer.close()
    assert connect(path, "ro").execute("SELECT key FROM meta").fetchall() == [("b",)]


@pytest.mark.parametrize(
    ("place", "kind"),
    [("/data/runs/a", "nfs4"), ("/data/local/a", None), ("/mnt/my share/a", "cifs"), ("/home/a", None), ("/over/a", "fuse.sshfs")],
)
def test_network_file_systems_are_refused(tmp_path: Path, place: str, kind: str | None) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\n/dev/b /data/local xfs rw 0 0\n//nas/s /mnt/my\\040share cifs rw 0 0\n"
        "/dev/c /over ext4 rw 0 0\nhost: /over fuse.sshfs rw 0 0\n"
    )
    if kind is None:
        refuse_network(Path(place), mounts)
        return
    with pytest.raises(StoreError, match=f"{place} is on a network file system \\({kind}\\).*local disk"):
        refuse_network(Path(place), mounts)


def test_systems_without_a_table_of_mounts_take_any_folder(tmp_path: Path) -> None:
    refuse_network(tmp_path, tmp_path / "none")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEPA_LITE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


class TestFolders:
    """Where runs live."""

    def test_a_bare_name_is_under_the_root_which_git_ignores(self, root: Path) -> None:
        assert run_folder("triage-1", "Triage") == root / "triage-1"
        assert (root / ".gitignore").read_text() == "*\n"
        assert not (root / "triage-1").exists()

    def test_the_default_root_is_where_the_program_runs(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GEPA_LITE_RUNS")
        assert run_folder("a", "P") == Path("gepa_runs/a")
        assert (root.parent / "gepa_runs" / ".gitignore").exists()

    def test_a_root_that_is_there_keeps_its_own_ignore_file(self, root: Path) -> None:
        root.mkdir()
        run_folder("a", "P")
        assert not (root / ".gitignore").exists()

    def test_a_path_is_taken_as_it_is(self, root: Path) -> None:
        assert run_folder("some/where", "P") == Path("some/where")
        assert run_folder(Path("here"), "P") == Path("here")
        assert run_folder("~/x", "P") == Path.home() / "x"
        Path("docs").mkdir()
        assert run_folder("docs", "P") == root / "docs"  # a folder that is no run is not meant
        filled(Path("mine"))
        assert run_folder("mine", "P") == Path("mine")

    @pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-x", "a b", "a:b", "ä", "a" * 101, "a\n"])
    def test_names_that_may_trouble_are_refused(self, root: Path, name: str) -> None:
        with pytest.raises(UsageError, match="letters, digits"):
            run_folder(name, "P")
        with pytest.raises(UsageError, match="letters, digits"):
            find_run(name)

    def test_automatic_names_are_unique_even_at_once(self, root: Path) -> None:
        folders: list[Path] = []
        in_threads(8, lambda name: folders.append(run_folder(None, "My program/2")))
        assert len(set(folders)) == 8
        assert all(folder.is_dir() and folder.parent == root for folder in folders)
        assert all(folder.name.startswith("My-program-2-20") for folder in folders)
        with RunStore.create(folders[0]) as store:
            store.commit([StepEnded(0)])

    def test_a_root_that_cannot_be_made_is_told(self, root: Path) -> None:
        root.write_text("a file")
        for run in ("a", None):
            with pytest.raises(UsageError, match="GEPA_LITE_RUNS"):
                run_folder(run, "P")

    def test_runs_are_found_by_name_and_path(self, root: Path) -> None:
        filled(root / "triage-1")
        assert find_run("triage-1") == root / "triage-1"
        assert find_run(root / "triage-1") == root / "triage-1"
        assert find_run(str(root / "triage-1" / "run.db")) == root / "triage-1"

    def test_a_wrong_name_gets_near_ones(self, root: Path) -> None:
        with pytest.raises(UsageError, match="There are no runs in"):
            find_run("triage")
        for name in ("triage-1", "triage-2", "other"):
            filled(root / name)
        with pytest.raises(UsageError, match=r"Did you mean 'triage-[12]', 'triage-[12]'"):
            find_run("trige-1")
        with pytest.raises(UsageError, match="'triage-1'"):
            find_run(root / "triage-11")
        with pytest.raises(UsageError, match="'other'"):
            find_run("zzz")

    def test_runs_are_listed_the_last_written_first(self, root: Path) -> None:
        assert list_runs() == []
        for age, name in enumerate(("new", "old", "older")):
            filled(root / name)
            os.utime(root / name / "run.db", (1e9 - age, 1e9 - age))
        (root / "empty").mkdir()
        (root / "file").touch()
        assert [folder.name for folder in list_runs()] == ["new", "old", "older"]
        with RunStore.open(root / "older") as store:
            store.commit([StepEnded(0)])
            assert list_runs(root)[0].name == "older"
