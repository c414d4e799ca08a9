"""Trackers: what they are told, in their own stores, and that no fault of theirs harms a run."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.core.events import Event
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import UsageError
from gepa_lite.store.run_store import RunStore
from gepa_lite.trackers import observer
from gepa_lite.trackers.protocol import Tracked
from tests import triage


def optimize(folder: Path, trackers: Any, rollouts: int = 120) -> gl.Result[Any]:
    options: dict[str, Any] = {"reflection_lm": triage.reflector(), "budget": gl.Budget(rollouts=rollouts), "trackers": trackers}
    return gl.optimize(triage.program(), triage.rows(12, 1), triage.rows(12, 2), testset=triage.rows(12, 3), run=folder, **options)


def log_of(folder: Path) -> list[Event]:
    with RunStore.read(folder) as store:
        return store.events()


class Notes:
    """A tracker that keeps what it is told."""

    name = "notes"

    def __init__(self) -> None:
        self.run: Tracked | None = None
        self.events: list[Event] = []
        self.rollouts = 0
        self.figures: list[tuple[int, Mapping[str, float]]] = []
        self.texts: list[str] = []
        self.ended: list[str] = []

    def begin(self, run: Tracked) -> None:
        self.run = run

    def event(self, event: Event) -> None:
        self.events.append(event)

    def rollout(self, rollout: Rollout, ended: int) -> None:
        self.rollouts += 1

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.figures.append((step, values))

    def text(self, name: str, text: str) -> None:
        self.texts.append(text)

    def end(self, reason: str) -> None:
        self.ended.append(reason)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    folder = tmp_path_factory.mktemp("runs") / "plain"
    optimize(folder, [])
    return log_of(folder)


def test_a_tracker_is_told_all_in_order(tmp_path: Path) -> None:
    notes = Notes()
    result = optimize(tmp_path / "a", [notes])
    assert notes.events == log_of(tmp_path / "a")
    assert notes.run is not None
    assert not notes.run.resumed
    assert notes.run.params["search.seed"] == 0
    assert notes.run.params["train_examples"] == 12
    assert notes.rollouts == result.costs.logical.rollouts
    last = notes.figures[-1][1]
    assert last["rollouts"] == result.costs.logical.rollouts
    assert last["best_validation"] == result.validation.after
    assert result.test is not None
    assert (last["seed_test"], last["winner_test"]) == (result.test.before, result.test.after)
    assert "urgent" in notes.texts[0]
    assert len(notes.ended) == 1
    assert notes.ended[0] == result.stopped
    more, again = Notes(), tmp_path / "a"
    optimize(again, [more], rollouts=200)
    assert more.run is not None
    assert more.run.resumed
    assert more.run.key == notes.run.key


def test_a_run_that_is_deleted_and_started_again_is_another(tmp_path: Path) -> None:
    first, second = Notes(), Notes()
    optimize(tmp_path / "a", [first], rollouts=80)
    shutil.rmtree(tmp_path / "a")
    optimize(tmp_path / "a", [second], rollouts=80)
    assert first.run is not None
    assert second.run is not None
    assert first.events == second.events
    assert not second.run.resumed
    assert second.run.key != first.run.key


@pytest.mark.parametrize("method", ["begin", "event", "rollout", "metrics", "text", "end"])
def test_a_tracker_that_fails_never_harms_the_run(method: str, plain: list[Event], tmp_path: Path) -> None:
    class Broken(Notes):
        pass

    def fail(*arguments: Any) -> None:
        raise OSError("the server is gone")

    broken, other = Broken(), Notes()
    setattr(broken, method, fail)
    with pytest.warns(RuntimeWarning, match=r"notes failed.*OSError: the server is gone"):
        optimize(tmp_path / "a", [broken, other])
    assert log_of(tmp_path / "a") == plain == other.events


def test_a_tracker_that_hangs_is_left_behind(plain: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "WAIT", 0.05)
    release = threading.Event()

    class Slow(Notes):
        def begin(self, run: Tracked) -> None:
            release.wait(60)

    with pytest.warns(RuntimeWarning, match="did not take all"):
        optimize(tmp_path / "a", [Slow()])
    release.set()
    assert log_of(tmp_path / "a") == plain


def test_unknown_trackers_are_refused_before_anything_is_paid_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mlflow"):
        optimize(tmp_path / "a", ["mlfow"])
    assert not (tmp_path / "a" / "run.db").exists()


def test_opentelemetry_spans(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    result = optimize(tmp_path / "a", [gl.OpenTelemetryTracker(provider)])
    spans = exporter.get_finished_spans()
    (root,) = [span for span in spans if span.name == "gepa_lite.run"]
    rollouts = [span for span in spans if span.name == "gepa_lite.rollout"]
    calls = [span for span in spans if span.name.startswith("chat ")]
    assert len(rollouts) == result.costs.logical.rollouts
    assert {span.parent.span_id for span in rollouts if span.parent} == {root.context.span_id}
    assert {span.parent.span_id for span in calls if span.parent} == {span.context.span_id for span in rollouts}
    assert len(calls) == 2 * len(rollouts)
    assert all(span.start_time <= span.end_time for span in spans)
    assert root.attributes is not None
    assert root.attributes["gepa_lite.best_validation"] == result.validation.after
    assert sum(event.name == "proposed" for event in root.events) == len(result.state.proposals)
    told = str([(span.name, dict(span.attributes or {}), [dict(event.attributes or {}) for event in span.events]) for span in spans])
    assert "a refund number" not in told


@pytest.mark.heavy
def test_mlflow_goes_on_in_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a SQLite store keeps artifacts where the process runs
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    result = optimize(tmp_path / "a", [gl.MLflowTracker(uri)])
    optimize(tmp_path / "a", [gl.MLflowTracker(uri)], rollouts=200)
    client: Any = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("gepa_lite").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["train_examples"] == "12"
    history = client.get_metric_history(run.info.run_id, "best_validation")
    assert len(history) > 2
    assert max(point.value for point in history) >= result.validation.after
    shutil.rmtree(tmp_path / "a")
    optimize(tmp_path / "a", [gl.MLflowTracker(uri)])
    assert len(client.search_runs([client.get_experiment_by_name("gepa_lite").experiment_id])) == 2


@pytest.mark.heavy
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    optimize(tmp_path / "a", [gl.WandbTracker(mode="offline", folder=tmp_path)])
    (log,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = log.read_bytes()
    assert b"best_validation" in content
    assert b"winner_test" in content
    assert b"a refund number" not in content
