"""What a person asks of a run that another process works on: to pause, to finish now, or to go on with a larger budget.

An ask is one small file beside the run's, written in one move by whoever may write to the folder and read by the run at most once a second. What comes of it is an event of the run;
the file itself decides nothing afterwards, and a new session starts without it.
"""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from gepa_lite.core.budget import Budget
from gepa_lite.errors import GepaLiteError, UsageError

Stop = Literal["", "pause", "finish"]
_NAME = "run.asks"
_EVERY = 1.0
_FIELDS = tuple(item.name for item in dataclasses.fields(Budget))


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked.

    Attributes:
        stop: ``"pause"`` as Ctrl-C does, to be resumed; ``"finish"`` ends the search and scores the test set; ``""`` goes on.
        budget: the bounds from now on; None leaves them.
    """

    stop: Stop = ""
    budget: Budget | None = None


def ask(folder: Path, wanted: Ask) -> None:
    """Leave an ask for the process that works on a run; it replaces one that was not read yet.

    Raises:
        UsageError: the folder can't be written to.
    """
    budget = None if wanted.budget is None else dataclasses.asdict(wanted.budget)
    # of this ask alone: two of one process may be written at once
    part = folder / f"{_NAME}.{uuid.uuid4().hex}"
    try:
        part.write_text(json.dumps({"stop": wanted.stop, "budget": budget}), encoding="utf-8")
        part.replace(folder / _NAME)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise UsageError(f"Can't write to {folder}: {error.strerror}. Stop the run with Ctrl-C where it was started.") from error


def read_ask(folder: Path) -> Ask:
    """What is asked now; nothing where the file is not there or makes no sense."""
    with suppress(OSError, ValueError, TypeError, AttributeError, GepaLiteError):
        data = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        bounds = data.get("budget")
        budget = None if bounds is None else Budget(**{name: bounds.get(name) for name in _FIELDS})
        stop = data.get("stop", "")
        if stop in get_args(Stop) and (budget is None or budget.bounded):
            return Ask(stop, budget)
    return Ask()


class Asks:
    """A run's own view of what is asked of it: the file is looked at once a second at most.

    Args:
        folder: the run's; None for a run kept in memory, which nobody can ask anything.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known = Ask()
        self._looked = float("-inf")
        if folder is not None:
            with suppress(OSError):
                (folder / _NAME).unlink(missing_ok=True)

    def now(self) -> Ask:
        """What is asked, as of the last second. Thread-safe: two threads that look at once read the same file."""
        moment = time.monotonic()
        if self._folder is not None and moment - self._looked >= _EVERY:
            self._looked = moment
            self._known = read_ask(self._folder)
        return self._known
