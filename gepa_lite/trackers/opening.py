"""Trackers by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gepa_lite.core.feedback import Objective
from gepa_lite.errors import UsageError
from gepa_lite.trackers.observer import TrackerObserver
from gepa_lite.trackers.protocol import Tracker

TRACKERS = ("mlflow", "opentelemetry", "wandb")
"""Names that ``optimize(trackers=[...])`` takes: each with its own defaults."""


def observers_of(trackers: Sequence[str | Tracker] | str | Tracker, folder: Path, objective: Objective) -> list[TrackerObserver]:
    """An observer for each tracker.

    Args:
        trackers: names or objects.
        folder: the run's.
        objective: of its scores.

    Raises:
        UsageError: an unknown name, or a library that is not installed.
    """
    given = [trackers] if isinstance(trackers, str) or not isinstance(trackers, Sequence) else list(trackers)
    opened = [open_tracker(each) for each in given]
    return [TrackerObserver(each, folder, objective, _warn) for each in opened]


def open_tracker(tracker: str | Tracker) -> Tracker:
    """The tracker that is meant.

    Raises:
        UsageError: an unknown name, or a library that is not installed.
    """
    if tracker == "mlflow":
        from gepa_lite.trackers.mlflow_tracker import MLflowTracker

        return MLflowTracker()
    if tracker == "wandb":
        from gepa_lite.trackers.wandb_tracker import WandbTracker

        return WandbTracker()
    if tracker == "opentelemetry":
        from gepa_lite.trackers.opentelemetry_tracker import OpenTelemetryTracker

        return OpenTelemetryTracker()
    if isinstance(tracker, str):
        raise UsageError(f"trackers={tracker!r}: one of {', '.join(map(repr, TRACKERS))} is needed, or a tracker object.")
    return tracker


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, RuntimeWarning, stacklevel=2)
