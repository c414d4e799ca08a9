"""Runs in MLflow; needs ``pip install 'gepa-lite[mlflow]'``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gepa_lite.core.events import Event
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import UsageError
from gepa_lite.trackers.protocol import Tracked

_KEY = "gepa_lite.key"
_LONG = 500
"""Characters that every MLflow takes as a parameter."""


class MLflowTracker:
    """A run as an MLflow run: settings as parameters, figures after each step as metrics, the best prompts as a text artifact. A resumed run goes on in the same MLflow run.

    Args:
        tracking_uri: None for MLflow's own default.
        experiment: made where it is not there.

    Raises:
        UsageError: MLflow is not installed.
    """

    name = "MLflow"

    def __init__(self, tracking_uri: str | None = None, experiment: str = "gepa_lite") -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise UsageError("the MLflow tracker needs MLflow: pip install 'gepa-lite[mlflow]'") from error
        self._client: Any = MlflowClient(tracking_uri=tracking_uri)
        self._experiment = experiment
        self._run = ""

    def begin(self, run: Tracked) -> None:
        """See ``Tracker``."""
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        earlier = self._client.search_runs([experiment], filter_string=f"tags.`{_KEY}` = '{run.key}'", max_results=1)
        if earlier:
            self._run = earlier[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        made = self._client.create_run(experiment, run_name=run.name, tags={_KEY: run.key, "gepa_lite.run": run.name})
        self._run = made.info.run_id
        for name, value in run.params.items():
            self._client.log_param(self._run, name, str(value)[:_LONG])

    def event(self, event: Event) -> None:
        """Figures tell what there is to see."""

    def rollout(self, rollout: Rollout, ended: int) -> None:
        """Figures tell what there is to see."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def text(self, name: str, text: str) -> None:
        """See ``Tracker``."""
        self._client.log_text(self._run, text, f"{name.replace(' ', '_')}.md")

    def end(self, reason: str) -> None:
        """See ``Tracker``."""
        if not self._run:
            return
        self._client.set_tag(self._run, "gepa_lite.stopped", reason or "not finished")
        self._client.set_terminated(self._run, status="FINISHED" if reason else "KILLED")
