"""Runs in Weights & Biases; needs ``pip install 'gepa-lite[wandb]'``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from gepa_lite.core.events import Event
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import UsageError
from gepa_lite.trackers.protocol import Tracked


class WandbTracker:
    """A run as a W&B run: settings as its config, figures after each step, the best prompts in its summary. A resumed run goes on in the same W&B run.

    Args:
        project: of W&B.
        mode: ``"offline"`` writes to a folder, to be sent later by ``wandb sync``; None for W&B's own default.
        folder: where W&B keeps its files; None for its own default.

    Raises:
        UsageError: W&B is not installed.
    """

    name = "Weights & Biases"

    def __init__(
        self, project: str = "gepa_lite", mode: Literal["online", "offline"] | None = None, folder: str | Path | None = None
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UsageError("the Weights & Biases tracker needs wandb: pip install 'gepa-lite[wandb]'") from error
        self._wandb: Any = wandb
        self._project, self._mode, self._folder = project, mode, None if folder is None else str(folder)
        self._run: Any = None

    def begin(self, run: Tracked) -> None:
        """See ``Tracker``."""
        self._run = self._wandb.init(
            project=self._project,
            name=run.name,
            id=run.key,
            resume="allow",
            config=dict(run.params),
            dir=self._folder,
            mode=self._mode,
            # of its own: a run that the user has open stays the user's
            reinit="create_new",
            settings=self._wandb.Settings(console="off", silent=True),
        )

    def event(self, event: Event) -> None:
        """Figures tell what there is to see."""

    def rollout(self, rollout: Rollout, ended: int) -> None:
        """Figures tell what there is to see."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._run.log({**values, "step": step})

    def text(self, name: str, text: str) -> None:
        """See ``Tracker``."""
        self._run.summary[name] = text

    def end(self, reason: str) -> None:
        """See ``Tracker``."""
        if self._run is not None:
            self._run.summary["stopped"] = reason or "not finished"
            self._run.finish(exit_code=0 if reason else 1)
